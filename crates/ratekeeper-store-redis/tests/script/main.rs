//! The script compared with the steps of core, in a real server.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod clock;
mod conformance;
mod counted;
mod differential;
mod extras;
mod formats;
mod leases;
mod lent;
mod loans;
mod long_logs;
mod merging;
mod posts;
mod simulation;
mod synced;
mod timed_store;
