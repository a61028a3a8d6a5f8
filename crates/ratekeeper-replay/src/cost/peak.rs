//! The most that calls used of a budget in any window.

use std::collections::{HashMap, VecDeque};

use ratekeeper_core::{Limit, Micros, Timestamp};
use ratekeeper_store::CounterKey;

/// The most uses that are kept, over all counters.
const USES_MAX: usize = 1 << 22;

/// The uses of the counters of all budgets within their last window, and the most that any window had.
#[derive(Debug, Default)]
pub(crate) struct Peaks {
    /// By counter: the uses in its window, oldest first, and their sum.
    counters: HashMap<CounterKey, (VecDeque<(Timestamp, u64)>, u64)>,
    uses: usize,
    /// By rule.
    most: Vec<u64>,
    has_ended: bool,
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
        let (uses, sum) = self.counters.entry(key).or_default();
        let begins = begin(limit, now);
        while let Some((at, gone)) = uses.front().copied().filter(|(at, _)| *at < begins) {
            debug_assert!(at < now);
            uses.pop_front();
            self.uses -= 1;
            *sum -= gone;
        }
        uses.push_back((now, hits));
        self.uses += 1;
        *sum = sum.saturating_add(hits);
        self.most[rule] = self.most[rule].max(*sum);
        // What was counted up to here would look like the most of the whole trace.
        self.has_ended = self.uses >= USES_MAX;
    }

    /// The most that a window of `rule` had; None if that is not known.
    pub(crate) fn most(&self, rule: usize, limit: &Limit) -> Option<u64> {
        (!limit.is_calendar() && !self.has_ended).then(|| self.most[rule])
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
