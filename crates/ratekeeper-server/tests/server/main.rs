//! A real server on free ports, and real clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod drain;
mod faults;
mod grpc_extras;
mod hostile;
mod http;
mod rls;
mod support;
