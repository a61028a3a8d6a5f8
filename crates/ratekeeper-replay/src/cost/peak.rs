//! The most that calls used of a budget in any window.

use std::collections::{HashMap, VecDeque};

use ratekeeper_core::{Limit, Micros, Timestamp};
use ratekeeper_store::CounterKey;

/// The most uses that are kept, over all counters.
const USES_MAX: usize = 1 << 22;

/// No sweep happens below this many counters.
const SWEEP_MIN: usize = 1 << 12;

/// The uses of the counters of all budgets within their last window, and the most that any window had.
///
/// Counters whose window has passed are dropped from time to time.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    counters: HashMap<CounterKey, InWindow>,
    /// The uses of all counters.
    uses: usize,
    /// Counters after the last sweep; the next sweep is due at twice as many.
    swept: usize,
    /// By rule.
    most: Vec<u64>,
    has_ended: bool,
}

/// The uses of a counter in its window.
#[derive(Debug)]
struct InWindow {
    limit: Limit,
    /// Oldest first.
    uses: VecDeque<(Timestamp, u64)>,
    sum: u64,
}

impl Peaks {
    pub(crate) fn new(rules: usize) -> Self {
        Self {
            most: vec![0; rules],
            ..Self::default()
        }
    }

    /// Adds `hits` that were used at `now`, which never goes back.
    pub(crate) fn add(
        &mut self,
        rule: usize,
        (key, limit): (CounterKey, &Limit),
        hits: u64,
        now: Timestamp,
    ) {
        // Nothing stands for a calendar window's beginning here.
        if hits == 0 || limit.is_calendar() || self.has_ended {
            return;
        }
        let counter = self.counters.entry(key).or_insert_with(|| InWindow {
            limit: *limit,
            uses: VecDeque::new(),
            sum: 0,
        });
        self.uses -= counter.forget(now);
        self.uses += 1;
        counter.uses.push_back((now, hits));
        counter.sum = counter.sum.saturating_add(hits);
        self.most[rule] = self.most[rule].max(counter.sum);
        let is_full = self.uses >= USES_MAX;
        if is_full || self.counters.len() >= 2 * self.swept.max(SWEEP_MIN) {
            self.sweep(now);
        }
        // What was counted up to here would look like the most of the whole trace. Half, because otherwise the next few
        // uses would be cause for another sweep.
        if is_full && self.uses > USES_MAX / 2 {
            self.has_ended = true;
            self.counters = HashMap::new();
        }
    }

    /// Drops what is no longer in a window.
    fn sweep(&mut self, now: Timestamp) {
        let uses = &mut self.uses;
        self.counters.retain(|_, counter| {
            *uses -= counter.forget(now);
            !counter.uses.is_empty()
        });
        self.swept = self.counters.len();
    }

    /// The most that a window of `rule` had; None if that is not known.
    pub(crate) fn most(&self, rule: usize, limit: &Limit) -> Option<u64> {
        (!limit.is_calendar() && !self.has_ended).then(|| self.most[rule])
    }
}

impl InWindow {
    /// Drops the uses that the window of `now` has not, and returns their number.
    fn forget(&mut self, now: Timestamp) -> usize {
        let begins = begin(&self.limit, now);
        let before = self.uses.len();
        while let Some((at, gone)) = self.uses.front().copied().filter(|(at, _)| *at < begins) {
            debug_assert!(at < now);
            self.uses.pop_front();
            self.sum -= gone;
        }
        before - self.uses.len()
    }
}

/// The first moment of the window that `now` is in.
fn begin(limit: &Limit, now: Timestamp) -> Timestamp {
    let (now, window) = (now.as_micros(), limit.window().get());
    let begins = if limit.algorithm().has_fixed_windows() {
        now - now % window.max(1)
    } else {
        // A hit counts until the moment a window after it.
        (now + 1).saturating_sub(window)
    };
    Timestamp::EPOCH.after(Micros::new(begins))
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, LimitSpec};

    use super::*;

    fn limit() -> Limit {
        let spec = LimitSpec::new(Algorithm::SlidingWindow, 100, Micros::from_secs(60));
        Limit::try_new(spec).expect("a hundred in a minute is a valid limit")
    }

    fn key(number: u64) -> CounterKey {
        CounterKey {
            subject: number,
            identity: number,
        }
    }

    /// A budget of each user is kept while the user's window lasts, however many come one after the other.
    #[test]
    fn counters_go_with_their_windows() {
        let (mut peaks, limit) = (Peaks::new(1), limit());
        let users = 20 * SWEEP_MIN as u64;
        for user in 0..users {
            peaks.add(0, (key(user), &limit), 3, Timestamp::from_secs(user));
        }
        assert!(
            peaks.counters.len() <= 2 * SWEEP_MIN + 60,
            "{}",
            peaks.counters.len()
        );
        assert!(peaks.uses <= peaks.counters.len(), "{}", peaks.uses);
        // What is swept is what no window has any more.
        let last = Timestamp::from_secs(users - 1);
        peaks.add(0, (key(users - 1), &limit), 4, last);
        assert_eq!(peaks.most(0, &limit), Some(7));
    }

    #[test]
    fn too_many_uses_within_a_window_end_it_and_free_the_memory() {
        let (mut peaks, limit) = (Peaks::new(1), limit());
        for _ in 0..USES_MAX {
            peaks.add(0, (key(1), &limit), 1, Timestamp::from_secs(100));
        }
        assert_eq!(peaks.most(0, &limit), None);
        assert_eq!(peaks.counters.capacity(), 0);
    }
}
