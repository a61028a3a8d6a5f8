//! The log, a list in production as well.

use super::timeline::{Timeline, left};
use ratekeeper_core::{LimitSpec, Timestamp};

/// `sliding_log`: the hits in (now - w, now].
#[derive(Clone, Debug)]
pub struct SlidingLog {
    pub(crate) quota: u64,
    window: u64,
    hits: Timeline,
}

impl SlidingLog {
    pub(crate) fn new(spec: LimitSpec) -> Self {
        Self {
            quota: spec.quota,
            window: spec.window.get(),
            hits: Timeline::default(),
        }
    }

    /// The time to use: never before the newest hit.
    fn now(&self, now: Timestamp) -> u64 {
        self.hits.newest().unwrap_or_default().max(now).as_micros()
    }

    /// The hits in the window that ends at `now`.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> u128 {
        let now = self.now(now);
        self.hits.count(|time| time + self.window > now)
    }

    pub(crate) fn room(&self, now: Timestamp) -> u64 {
        left(self.quota, self.used(now))
    }

    /// Charges hits. A log never outgrows its quota, or its length when the quota was lowered: hits
    /// beyond that drop the oldest, which would have left first anyway.
    pub(crate) fn charge(&mut self, hits: i64, now: Timestamp) {
        let (time, window) = (self.now(now), self.window);
        self.hits.forget(|hit| hit + window <= time);
        let most = self.hits.count(|_| true).max(u128::from(self.quota));
        let hits = hits.min(i64::try_from(self.quota).unwrap_or(i64::MAX));
        self.hits.charge(hits, time, |_| true);
        self.hits.forget_oldest(most);
    }
}
