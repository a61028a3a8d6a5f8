//! Fixed and sliding window, counted from the list.

use super::timeline::{Timeline, left};
use ratekeeper_core::{LimitSpec, Timestamp};

/// `fixed_window`: the hits since the start of the window.
#[derive(Clone, Debug)]
pub struct FixedWindow {
    pub(crate) quota: u64,
    window: u64,
    /// Edges of the windows, if they follow a calendar.
    edges: Vec<Timestamp>,
    hits: Timeline,
    /// The latest charge: the counter never goes back to an earlier window.
    latest: Timestamp,
}

impl FixedWindow {
    pub(crate) fn new(spec: LimitSpec) -> Self {
        Self::with_edges(spec, Vec::new())
    }

    pub(crate) fn with_edges(spec: LimitSpec, edges: Vec<Timestamp>) -> Self {
        Self {
            quota: spec.quota,
            window: spec.window.get(),
            edges,
            hits: Timeline::default(),
            latest: Timestamp::EPOCH,
        }
    }

    /// Start and end of the window at `now`.
    fn bounds(&self, now: Timestamp) -> (u64, u64) {
        let now = now.max(self.latest);
        if self.edges.is_empty() {
            let start = now.as_micros() / self.window * self.window;
            return (start, start + self.window);
        }
        let next = self.edges.partition_point(|edge| *edge <= now);
        let edge = |index: usize| self.edges.get(index).map(|edge| edge.as_micros());
        let start = next.checked_sub(1).and_then(edge).unwrap_or(0);
        (start, edge(next).unwrap_or(u64::MAX))
    }

    pub(crate) fn room(&self, now: Timestamp) -> u64 {
        left(self.quota, self.count(now))
    }

    /// Returns true if more hits were counted than the limit holds.
    pub(crate) fn is_over(&self, now: Timestamp) -> bool {
        self.count(now) > self.quota.into()
    }

    fn count(&self, now: Timestamp) -> u128 {
        let (start, end) = self.bounds(now);
        self.hits.count(|time| (start..end).contains(&time))
    }

    pub(crate) fn charge(&mut self, hits: i64, now: Timestamp) {
        self.latest = self.latest.max(now);
        let (start, end) = self.bounds(now);
        let latest = self.latest.as_micros();
        self.hits
            .charge(hits, latest, |time| (start..end).contains(&time));
    }
}

/// `sliding_window` with `sub_windows`: current + (k - 1) full + oldest * (1 - f), each counted from the list.
#[derive(Clone, Debug)]
pub struct SubWindows {
    pub(crate) quota: u64,
    /// The number of sub-windows, k.
    count: u64,
    /// The length of a sub-window in microseconds, s: w / k rounded up.
    length: u64,
    hits: Timeline,
    latest: Timestamp,
}

impl SubWindows {
    pub(crate) fn new(spec: LimitSpec) -> Self {
        let count = u64::from(spec.sub_windows.unwrap_or(1));
        Self {
            quota: spec.quota,
            count,
            length: spec.window.get().div_ceil(count),
            hits: Timeline::default(),
            latest: Timestamp::EPOCH,
        }
    }

    /// The time to use: it never goes back to an earlier sub-window.
    fn now(&self, now: Timestamp) -> u64 {
        let latest = self.latest.as_micros();
        now.as_micros().max(latest - latest % self.length)
    }

    /// The hits of the oldest sub-window, of which the window covers only a part.
    fn oldest(&self, now: Timestamp) -> u128 {
        let index = self.now(now) / self.length;
        self.hits
            .count(|time| time / self.length + self.count == index)
    }

    /// The hits in the window plus the counting share of the oldest sub-window, rounded up to a
    /// whole hit.
    #[must_use]
    pub fn used(&self, now: Timestamp) -> u128 {
        let now_counts = self.now(now);
        let index = now_counts / self.length;
        let whole = self
            .hits
            .count(|time| time / self.length + self.count > index && time / self.length <= index);
        let inside = u128::from(self.length - now_counts % self.length);
        whole + (self.oldest(now) * inside).div_ceil(u128::from(self.length))
    }

    /// The number of hits by which the production step may exceed the definition, now or later: its
    /// doubles are exact while the hits of a sub-window times its microseconds stay below 2^53, and
    /// lose at most two parts in 2^50 above.
    #[must_use]
    pub fn tolerance(&self, now: Timestamp) -> u64 {
        let index = self.now(now) / self.length;
        let hits = self
            .hits
            .count(|time| time / self.length + self.count >= index);
        if hits * u128::from(self.length) < 1 << 53 {
            return 0;
        }
        u64::try_from(hits >> 49).unwrap_or(u64::MAX - 1) + 1
    }

    pub(crate) fn room(&self, now: Timestamp) -> u64 {
        left(self.quota, self.used(now))
    }

    pub(crate) fn charge(&mut self, hits: i64, now: Timestamp) {
        if hits == 0 {
            return;
        }
        let now = self.now(now);
        self.latest = self.latest.max(Timestamp::from_micros(now));
        let (index, length, count) = (now / self.length, self.length, self.count);
        self.hits
            .charge(hits, now, |time| time / length + count > index);
    }
}
