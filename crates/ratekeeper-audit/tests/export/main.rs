//! Exports of the audit trail to real servers: complete, in order, and over failures.

#[cfg(feature = "nats")]
mod nats;
mod redis;
mod support;
