//! Logs counters in this node's memory that were forgotten with the hash key that they were named by.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use tracing::warn;

/// The counters that were logged so far.
#[derive(Debug, Default)]
pub(crate) struct ForgottenLog(AtomicU64);

impl ForgottenLog {
    /// Logs what was forgotten since the last line. A hash key is replaced so seldom that each time is told.
    pub(crate) fn look(&self, limiter: &Limiter<Stores>) {
        let forgotten = limiter.forgotten();
        // Relaxed: one task looks.
        let counters = forgotten - self.0.swap(forgotten, Ordering::Relaxed);
        if counters > 0 {
            warn!(
                counters,
                "counters in this node's memory (also those loaded from a state file) are forgotten: another hash key named them \
                 than the one of the Redis that names all counters from now on"
            );
        }
    }
}
