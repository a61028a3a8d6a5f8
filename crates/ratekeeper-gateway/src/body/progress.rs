//! The progress of a request's body, as its exchange sees it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::held_slot::SlotAndPermits;

/// The progress of a request's body.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last_frame: Mutex<Option<Instant>>,
    pub(super) is_done: AtomicBool,
    pub(super) is_awaited: AtomicBool,
    pub(super) is_too_large: AtomicBool,
    pub(super) is_too_slow: AtomicBool,
    pub(super) is_broken: AtomicBool,
    /// The request's slot at its upstream: an answer may be over before its request is.
    pub(super) slot: OnceLock<SlotAndPermits>,
}

impl Progress {
    /// Records that a frame of it has arrived.
    pub(crate) fn record_frame(&self) {
        *self.last_frame.lock() = Some(Instant::now());
    }

    /// The time at which a frame arrived last.
    pub(crate) fn last_frame(&self) -> Option<Instant> {
        *self.last_frame.lock()
    }

    /// Returns true if the upstream has received all of it.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Relaxed)
    }

    /// Returns true if more is expected from the client.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    pub(crate) fn is_too_slow(&self) -> bool {
        self.is_too_slow.load(Ordering::Relaxed)
    }

    pub(crate) fn is_too_large(&self) -> bool {
        self.is_too_large.load(Ordering::Relaxed)
    }

    /// Returns true if it could not be read to its end.
    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }
}
