//! Logs counters in this node's memory that were forgotten with the hash key that they were named by.

use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use tracing::warn;

/// The counters that were logged so far.
#[derive(Debug, Default)]
pub(crate) struct ForgottenLog {
    told: u64,
}

impl ForgottenLog {
    /// Logs what was forgotten since the last line. A hash key is replaced so seldom that each time is told.
    pub(crate) fn look(&mut self, limiter: &Limiter<Stores>) {
        let forgotten = limiter.forgotten();
        let counters = forgotten - self.told;
        if counters > 0 {
            warn!(
                counters,
                "the counters in this node's memory, with those of its state file, are forgotten: another hash key named them \
                 than the one of the Redis that names all counters from now on"
            );
        }
        self.told = forgotten;
    }
}
