//! The store with real servers: it counts exactly, repeats denials truly, and survives failures of the server.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

mod clock;
mod cluster;
mod conformance;
mod connections;
mod corrupt;
mod denials;
mod encrypted;
mod exact;
mod faults;
mod fleet;
mod idle_servers;
mod leases;
mod loans;
mod lowered;
mod once;
mod pauses;
mod refusals;
mod sentinel;
mod several;
mod staleness;
mod support;
mod synced;
mod timed_loans;
mod timeouts;
mod together;
mod top;
