//! The demand for one counter, as this node sees it. No promise depends on it.

use ratekeeper_core::Micros;
use ratekeeper_core::region::loans::forecast;
use ratekeeper_store::LoanState;

/// The hits that a region needs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// In this window, with those counted.
    pub(super) now: u64,
    /// In each later one.
    pub(super) next: u64,
}

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
        }
    }

    pub(super) const fn note(&mut self, hits: u64) {
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

    /// Notes what was counted in the region.
    pub(super) const fn count(&mut self, state: &LoanState) {
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

    /// The hits to provide for in `span`.
    fn within(&self, span: u64) -> u64 {
        let hits = u128::from(self.rate) * u128::from(span) / u128::from(1_000 * SECOND);
        forecast(u64::try_from(hits).unwrap_or(u64::MAX))
    }

    /// The needs of the region. Other nodes have their own demand, of which this one only sees what was counted.
    pub(super) fn needs(&self, state: &LoanState, window: Micros) -> Needs {
        let counted = match state.window.checked_sub(self.window) {
            Some(0) => self.counts[1],
            Some(1) => self.counts[0],
            _ => 0,
        };
        let window = window.get();
        let elapsed = window.saturating_sub(state.left.get()).max(window / 4 + 1);
        let whole = u128::from(state.count) * u128::from(window) / u128::from(elapsed);
        let whole = u64::try_from(whole).unwrap_or(u64::MAX);
        let soon = u128::from(whole) * u128::from(state.left.get()) / u128::from(window.max(1));
        let soon = u64::try_from(soon).unwrap_or(u64::MAX);
        let left = self.within(state.left.get()).max(forecast(soon));
        let next = forecast(whole.max(counted)).max(self.within(window));
        Needs {
            now: state.count.saturating_add(left),
            next,
        }
    }
}
