//! What passes of each key in each window of the wall clock.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// What passed of each key in each whole window of a run: is a limit kept exactly?
///
/// Windows are aligned to the epoch by this machine's clock, as fixed windows are by the store's. A
/// request that was sent in one window and answered in another may have been decided in either:
/// `passed_max` leaves it out and `passed_min` counts it in, so that what they prove is certain.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Windows {
    /// The length of a window.
    pub window_seconds: f64,
    /// Windows that lay in the run as a whole, warm-up included.
    pub windows: u64,
    /// The least that was asked about any key in any of them; 0 if there is no whole window.
    pub asked_min: u64,
    /// The least that passed, as above.
    pub passed_min: u64,
    /// The most that passed, as above.
    pub passed_max: u64,
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    at: Instant,
    since_epoch: Duration,
}

impl Anchor {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            // A clock before 1970 has no windows that anybody could compare.
            since_epoch: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default(),
        }
    }

    fn since_epoch(&self, at: Instant) -> Duration {
        match at.checked_duration_since(self.at) {
            Some(after) => self.since_epoch + after,
            None => self.since_epoch.saturating_sub(self.at - at),
        }
    }
}

/// The counts of one thread, or of all of them.
#[derive(Clone, Debug)]
pub(crate) struct WindowCounts {
    length: Duration,
    anchor: Anchor,
    /// By the number of the window and that of the key.
    counts: HashMap<(u64, u32), Count>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    asked: u64,
    /// In this window for certain.
    passed: u64,
    /// In this window or in another.
    perhaps: u64,
}

impl WindowCounts {
    /// Nothing yet, of windows of that length, which is not 0.
    pub(crate) fn new(length: Duration, anchor: Anchor) -> Self {
        Self {
            length,
            anchor,
            counts: HashMap::new(),
        }
    }

    fn number(&self, at: Instant) -> u64 {
        let number = self.anchor.since_epoch(at).as_nanos() / self.length.as_nanos().max(1);
        u64::try_from(number).unwrap_or(u64::MAX)
    }

    /// Counts a request about `key`; none that failed has passed.
    pub(crate) fn answered(&mut self, key: u32, sent: Instant, answered: Instant, passed: bool) {
        let (first, last) = (self.number(sent), self.number(answered));
        self.counts.entry((first, key)).or_default().asked += 1;
        if !passed {
            return;
        }
        if first == last {
            self.counts.entry((first, key)).or_default().passed += 1;
            return;
        }
        for window in first..=last {
            self.counts.entry((window, key)).or_default().perhaps += 1;
        }
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        for (place, count) in &other.counts {
            let sum = self.counts.entry(*place).or_default();
            sum.asked += count.asked;
            sum.passed += count.passed;
            sum.perhaps += count.perhaps;
        }
    }

    /// What they tell of `keys` keys and a run between these times.
    pub(crate) fn told(&self, keys: u32, start: Instant, end: Instant) -> Windows {
        // The first that begins after the start, and the one that the end lies in, which is cut off.
        let whole = self.number(start) + 1..self.number(end);
        let each = || {
            let places = whole
                .clone()
                .flat_map(|window| (0..keys).map(move |key| (window, key)));
            places.map(|place| self.counts.get(&place).copied().unwrap_or_default())
        };
        Windows {
            window_seconds: self.length.as_secs_f64(),
            windows: whole.end.saturating_sub(whole.start),
            asked_min: each().map(|count| count.asked).min().unwrap_or(0),
            passed_min: each()
                .map(|count| count.passed + count.perhaps)
                .min()
                .unwrap_or(0),
            passed_max: each().map(|count| count.passed).max().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_lie_in_either_window_is_never_held_against_a_limit() {
        let anchor = Anchor {
            at: Instant::now(),
            since_epoch: Duration::from_millis(100_500),
        };
        let at = |millis: u64| anchor.at + Duration::from_millis(millis);
        let mut counts = WindowCounts::new(Duration::from_secs(1), anchor);
        // Whole windows: 500 to 1500 ms, and 1500 to 2500 ms after the anchor.
        counts.answered(0, at(400), at(450), true);
        counts.answered(0, at(600), at(700), true);
        counts.answered(0, at(1400), at(1600), true);
        counts.answered(0, at(1700), at(1800), false);
        let mut other = WindowCounts::new(Duration::from_secs(1), anchor);
        other.answered(0, at(2000), at(2100), true);
        other.answered(0, at(2600), at(2700), true);
        counts.add(&other);
        let told = counts.told(1, at(0), at(2600));
        let expected = Windows {
            window_seconds: 1.0,
            windows: 2,
            asked_min: 2,
            passed_min: 2,
            passed_max: 1,
        };
        assert_eq!(told, expected);
        assert_eq!(
            counts.told(2, at(0), at(2600)).asked_min,
            0,
            "nobody asked about the other key"
        );
        assert_eq!(counts.told(1, at(600), at(1400)).windows, 0);
    }
}
