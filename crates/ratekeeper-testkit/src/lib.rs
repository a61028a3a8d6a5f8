//! Shared parts of the tests: the reference model, the store conformance suite, and real programs
//! to test against.

pub mod accuracy;
pub mod certificates;
pub mod conformance;
pub mod http1;
pub mod http2;
pub mod leases;
pub mod model;
pub mod paired;
#[cfg(unix)]
pub mod postgres;
#[cfg(unix)]
pub mod process;
pub mod proxy;
pub mod recorder;
#[cfg(unix)]
pub mod redis;
