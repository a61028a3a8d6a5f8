//! The fault campaign: three nodes of the shipped binary under load over gRPC and HTTP while their Redis fails.
//!
//! Each fault is a row of a table. A row tells what callers were answered, what the limits let pass beside what they may,
//! and whether readiness, metrics and log told the truth meanwhile. It fails if a caller saw an error, if more passed
//! than a limit without being marked, if a signal lied, or if sharing took more than a second to come back.
//!
//! [`upgrade`] replaces nodes by those of another version instead. [`run_regions`] runs several regions that share limits.
//!
//! A second table counts what passes of one limit in each window while nodes or Redis stand still for moments.
//!
//! `cargo xtask chaos` runs all of it. It asks from outside, as any client does, and knows no crate of the product but
//! its wire format.
#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]
#![cfg(unix)]

mod ask;
mod campaign;
mod fault;
mod ledger;
mod load;
mod look;
mod node;
mod regions;
mod row;
mod rules;
mod scenes;
mod still;
mod verdict;
mod watch;
mod windows;

pub use campaign::{Plan, run, upgrade};
pub use regions::{RegionFiles, RegionPlan, run_regions};
