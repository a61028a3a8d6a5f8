//! The demand for one counter, as this node sees it. No promise depends on it.

use ratekeeper_core::region::loans::{LoanKind, LoanNeeds, RegionUse, SeenDemand, expected};
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::LoanState;

use super::kept::Lending;

/// The hits asked for, averaged over half a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Demand {
    /// Hits in a second, in thousandths.
    rate: u64,
    seen: u64,
    measured_at: Micros,
    /// The last window that was looked at, the hits counted in it, and those counted in the one before.
    window: u64,
    counts: [u64; 2],
    /// The hits that the whole region takes out of a bucket.
    bucket: BucketUse,
}

/// The hits that a region takes out of a bucket, of which only the level is known.
#[derive(Clone, Copy, Debug, Default)]
struct BucketUse {
    /// The time of the last look, by the store's clock, and the hits that were missing then.
    last: Option<(Timestamp, u64)>,
    /// Hits in a second, in thousandths.
    rate: u64,
}

const SECOND: u64 = 1_000_000;

impl Demand {
    pub(super) const fn new(now: Micros) -> Self {
        Self {
            rate: 0,
            seen: 0,
            measured_at: now,
            window: 0,
            counts: [0; 2],
            bucket: BucketUse {
                last: None,
                rate: 0,
            },
        }
    }

    pub(super) const fn record(&mut self, hits: u64) {
        self.seen = self.seen.saturating_add(hits);
    }

    /// Averages over `memory`.
    pub(super) fn measure(&mut self, now: Micros, memory: Micros) {
        let span = now.get().saturating_sub(self.measured_at.get());
        if span == 0 {
            return;
        }
        let wide = |number: u64| u128::from(number);
        let seen = wide(std::mem::take(&mut self.seen)) * wide(1_000 * SECOND);
        let (memory, old) = (wide(memory.get()), wide(self.rate));
        let rate = (old * memory + seen) / (memory + wide(span));
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
        self.measured_at = now;
    }

    /// Records what was counted in the region, which has that share.
    pub(super) fn count(&mut self, state: &LoanState, (lending, share): (&Lending<'_>, u64)) {
        match lending.kind {
            LoanKind::Windows => self.count_window(state),
            LoanKind::Log => self.counts[0] = state.count,
            LoanKind::Bucket => self.bucket.look(state, share, lending.terms.window),
        }
    }

    const fn count_window(&mut self, state: &LoanState) {
        if state.window != self.window {
            let is_next = state.window == self.window + 1;
            self.counts[1] = if is_next { self.counts[0] } else { 0 };
            self.window = state.window;
        }
        self.counts[0] = state.count;
    }

    /// True if hits were asked for of late.
    pub(super) const fn is_there(&self) -> bool {
        self.rate > 0 || self.seen > 0
    }

    /// The hits that this node expects in a window, and those that it was asked for since it last measured.
    pub(super) fn expected(&self, window: Micros) -> u64 {
        expected(self.rate, window).saturating_add(self.seen)
    }

    /// The needs of the region.
    pub(super) fn needs(&self, state: &LoanState, lending: &Lending<'_>) -> LoanNeeds {
        let used = match lending.kind {
            LoanKind::Windows => RegionUse::Windows {
                count: state.count,
                before: self.before(state.window),
                left: state.left,
            },
            LoanKind::Log => RegionUse::Log(state.count),
            LoanKind::Bucket => RegionUse::Bucket(self.bucket.rate),
        };
        let rate = self.rate;
        SeenDemand { rate, used }.needs(lending.terms.window)
    }

    /// The hits counted in the window before that one, as far as this node knows.
    const fn before(&self, window: u64) -> u64 {
        match window.checked_sub(self.window) {
            Some(0) => self.counts[1],
            Some(1) => self.counts[0],
            _ => 0,
        }
    }
}

impl BucketUse {
    /// Takes in a look at a bucket, which fills up by `share` hits a window.
    fn look(&mut self, state: &LoanState, share: u64, window: Micros) {
        let last = self.last.replace((state.at, state.count));
        let Some((at, missing)) = last else {
            return;
        };
        let wide = |number: u64| u128::from(number);
        let span = wide(state.at.since(at).get());
        if span == 0 {
            self.last = last;
            return;
        }
        // More than was missing does not come.
        let filled = span * wide(share) / wide(window.get().max(1));
        let filled = filled.min(wide(missing));
        let taken = (wide(state.count) + filled).saturating_sub(wide(missing));
        let memory = wide((window.get() / 2).clamp(2 * SECOND, 10 * SECOND));
        let rate = (wide(self.rate) * memory + taken * wide(1_000 * SECOND)) / (memory + span);
        self.rate = u64::try_from(rate).unwrap_or(u64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(seconds: u64, missing: u64) -> LoanState {
        LoanState {
            at: Timestamp::from_secs(seconds),
            window: 0,
            left: Micros::ZERO,
            count: missing,
            generation: 1,
            loans: Box::default(),
            is_written: false,
        }
    }

    #[test]
    fn what_is_taken_out_of_a_bucket_is_what_it_lacks_and_what_has_come() {
        let window = Micros::from_secs(60);
        let mut bucket = BucketUse::default();
        // Empty all the time: what comes, one hit a second, is taken.
        for second in 0..200 {
            bucket.look(&look(1_000 + second, 60), 60, window);
        }
        assert!((990..=1_000).contains(&bucket.rate), "{bucket:?}");
        // Full all the time: nothing is.
        for second in 200..400 {
            bucket.look(&look(1_000 + second, 0), 60, window);
        }
        assert!(bucket.rate < 10, "{bucket:?}");
    }
}
