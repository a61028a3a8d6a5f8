//! Admitted requests for each key in each window of the wall clock.

use std::collections::HashMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// Admitted requests for each key in each whole window of a run, to show if a limit is exact.
///
/// Windows are aligned to the epoch by this machine's clock, as fixed windows are by the store's. A
/// request sent in one window and answered in another may have been decided in either: `passed_max`
/// leaves it out and `passed_min` includes it, so that both bounds are certain.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Windows {
    /// The length of a window.
    pub window_seconds: f64,
    /// Windows that lay entirely in the run, warm-up included.
    pub windows: u64,
    /// The fewest requests for any key in any of these windows; 0 without a whole window.
    pub asked_min: u64,
    /// The fewest admitted requests for any key in any of these windows.
    pub passed_min: u64,
    /// The most admitted requests for any key in any of these windows.
    pub passed_max: u64,
    /// The requests that would have fit, if the limit was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<Due>,
}

/// The requests that fit the limit of their key in their window, summed up over keys and windows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Due {
    /// Requests that fit: for each key and window what was asked, up to the limit.
    pub requests: u64,
    /// Those of them that were denied.
    pub denied: u64,
}

/// The same moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Anchor {
    at: Instant,
    since_epoch: Duration,
}

impl Anchor {
    pub(crate) fn now() -> Self {
        Self {
            at: Instant::now(),
            // A clock before 1970 has no windows to compare with.
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
    limit: Option<u64>,
    anchor: Anchor,
    /// By window number and key number.
    counts: HashMap<(u64, u32), Count>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Count {
    asked: u64,
    /// Admitted in this window for certain.
    passed: u64,
    /// Admitted in this window or another.
    perhaps: u64,
}

impl WindowCounts {
    /// Empty counts for windows of that length, which is not 0, and for that limit of a key, if it is known.
    pub(crate) fn new(length: Duration, limit: Option<u64>, anchor: Anchor) -> Self {
        Self {
            length,
            limit,
            anchor,
            counts: HashMap::new(),
        }
    }

    fn number(&self, at: Instant) -> u64 {
        let number = self.anchor.since_epoch(at).as_nanos() / self.length.as_nanos().max(1);
        u64::try_from(number).unwrap_or(u64::MAX)
    }

    /// Counts a request with `key`; a failed one was not admitted.
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

    /// The results for `keys` keys and a run between these times.
    pub(crate) fn results(&self, keys: u32, start: Instant, end: Instant) -> Windows {
        // From the first window that begins after the start to the last one that ends before the
        // end.
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
            due: self.limit.map(|limit| {
                each().fold(Due::default(), |sum, count| {
                    let fit = count.asked.min(limit);
                    Due {
                        requests: sum.requests + fit,
                        denied: sum.denied + fit.saturating_sub(count.passed + count.perhaps),
                    }
                })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_on_an_edge_is_never_held_against_a_limit() {
        let anchor = Anchor {
            at: Instant::now(),
            since_epoch: Duration::from_millis(100_500),
        };
        let at = |millis: u64| anchor.at + Duration::from_millis(millis);
        let mut counts = WindowCounts::new(Duration::from_secs(1), Some(2), anchor);
        // Whole windows: 500 to 1500 ms, and 1500 to 2500 ms after the anchor.
        counts.answered(0, at(400), at(450), true);
        counts.answered(0, at(600), at(700), true);
        counts.answered(0, at(1400), at(1600), true);
        counts.answered(0, at(1700), at(1800), false);
        let mut other = WindowCounts::new(Duration::from_secs(1), Some(2), anchor);
        other.answered(0, at(2000), at(2100), true);
        other.answered(0, at(2600), at(2700), true);
        counts.add(&other);
        let results = counts.results(1, at(0), at(2600));
        let expected = Windows {
            window_seconds: 1.0,
            windows: 2,
            asked_min: 2,
            passed_min: 2,
            passed_max: 1,
            // In the second window two of two fit, and one for certain or perhaps passed in each.
            due: Some(Due {
                requests: 4,
                denied: 0,
            }),
        };
        assert_eq!(results, expected);
        assert_eq!(
            counts.results(2, at(0), at(2600)).asked_min,
            0,
            "the other key was never asked for"
        );
        assert_eq!(counts.results(1, at(600), at(1400)).windows, 0);
    }
}
