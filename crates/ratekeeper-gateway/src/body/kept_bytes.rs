//! The bytes of bodies that are kept until a decision is made.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most of one body that is kept before the decision, in bytes.
pub(crate) const AHEAD_MAX: usize = 4 << 20;

/// The most that is kept of all bodies.
const AHEAD_SUM_MAX: usize = 64 << 20;

/// The bytes that are kept of one body.
#[derive(Debug)]
pub(crate) struct KeptBytes {
    sum: Arc<AtomicUsize>,
    own: usize,
}

impl KeptBytes {
    /// Counts the bytes of one body to the `sum` of all.
    pub(crate) fn of(sum: &Arc<AtomicUsize>) -> Self {
        Self {
            sum: Arc::clone(sum),
            own: 0,
        }
    }

    /// Counts so many more; false if there is no room for them.
    pub(crate) fn add(&mut self, bytes: usize) -> bool {
        // Relaxed: only the sum counts.
        let before = self.sum.fetch_add(bytes, Ordering::Relaxed);
        self.own += bytes;
        before + bytes <= AHEAD_SUM_MAX
    }
}

impl Drop for KeptBytes {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.own, Ordering::Relaxed);
    }
}
