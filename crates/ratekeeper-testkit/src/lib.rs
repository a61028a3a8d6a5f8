//! Shared parts of the tests: the reference model, the store conformance suite, and real programs
//! to test against.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

pub mod accuracy;
pub mod certificates;
pub mod conformance;
#[cfg(feature = "xds")]
pub mod control_plane;
pub mod counting;
#[cfg(unix)]
pub mod etcd;
pub mod events;
pub mod examples;
pub mod fragile_log;
pub mod http1;
pub mod http2;
pub mod keep_alive;
pub mod leases;
pub mod library_user;
pub mod model;
#[cfg(unix)]
pub mod nats;
#[cfg(unix)]
pub mod page;
pub mod paired;
#[cfg(feature = "plot")]
pub mod plot;
#[cfg(unix)]
pub mod postgres;
#[cfg(unix)]
pub mod process;
pub mod proxy;
pub mod random;
#[cfg(unix)]
pub mod ratekeeper;
pub mod recorder;
#[cfg(unix)]
pub mod redis;
pub mod regions;

use std::path::{Path, PathBuf};

/// The folder of the repository.
///
/// # Panics
/// If this crate is not in it.
#[must_use]
pub fn repository() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("this crate lies two folders deep").to_owned()
}

/// Requires that a text contains `part`.
///
/// # Panics
/// If it does not; the message has both.
#[track_caller]
pub fn assert_contains(text: &(impl AsRef<str> + ?Sized), part: &(impl AsRef<str> + ?Sized)) {
    let (text, part) = (text.as_ref(), part.as_ref());
    assert!(text.contains(part), "no {part:?} in:\n{text}");
}
