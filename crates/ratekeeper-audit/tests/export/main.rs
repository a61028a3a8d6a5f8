//! Exports of the audit trail to real servers: complete, in order, and over failures.

mod deployments;
#[cfg(feature = "nats")]
mod nats;
#[cfg(feature = "nats")]
mod nats_users;
mod redis;
mod support;
