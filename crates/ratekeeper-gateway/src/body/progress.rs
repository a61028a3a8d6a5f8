//! The progress of a request's body, as its exchange sees it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::held_slot::SlotAndPermits;

/// The progress of a request's body.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(super) frames: AtomicU64,
    pub(super) is_done: AtomicBool,
    pub(super) is_awaited: AtomicBool,
    pub(super) is_too_large: AtomicBool,
    pub(super) is_too_slow: AtomicBool,
    pub(super) is_broken: AtomicBool,
    /// The request's slot at its upstream: an answer may be over before its request is.
    pub(super) slot: OnceLock<SlotAndPermits>,
}

impl Progress {
    /// The number of frames so far: it changes whenever part of the body arrives.
    pub(crate) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
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
