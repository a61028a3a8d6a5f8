//! The attack campaign: the shipped binary, over its real ports, against everything a hostile client can send.
//!
//! Each family of attacks is a row of a table: attempts, and what became of them. A row fails if an attempt passed a limit
//! or a bound broke. Where a trick is an application server's, that server is really there: gunicorn with Flask, uWSGI with
//! Django, and Express, behind NGINX with `auth_request` and behind the gateway.
//!
//! `cargo xtask attack` runs all of it. The campaign attacks from outside, as a stranger does, and knows no crate of the
//! product.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]
#![cfg(unix)]

mod campaign;
mod families;
mod plan;
mod row;
mod target;
mod token;
mod upstreams;

pub use campaign::{run, spellings_that_must_pass};
pub use plan::Plan;
