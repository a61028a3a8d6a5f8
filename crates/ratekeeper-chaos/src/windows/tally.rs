//! The counts of answers by window.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::ask::Answer;

/// The time since the epoch by this machine's clock.
pub(super) fn wall() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// The answers of one window.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Count {
    /// Requests that were sent in it.
    pub(super) asked: u64,
    /// Those that passed, and were sent and answered in it.
    pub(super) passed: u64,
    /// Those of them that no failure mode let pass.
    pub(super) unmarked: u64,
    /// Answers of failure modes, whatever they were.
    pub(super) degraded: u64,
}

/// The answers of all windows, and the requests without one.
#[derive(Debug)]
pub(super) struct Tally {
    length: Duration,
    inner: Mutex<Inner>,
}

#[derive(Default, Debug)]
struct Inner {
    windows: BTreeMap<u64, Count>,
    errors: u64,
    first_error: String,
}

impl Tally {
    pub(super) fn new(length: Duration) -> Self {
        Self {
            length,
            inner: Mutex::default(),
        }
    }

    /// The number of the window at a time since the epoch.
    pub(super) fn number(&self, at: Duration) -> u64 {
        at.as_secs() / self.length.as_secs().max(1)
    }

    /// Records an answer. One that was sent in another window may have been decided in either, and did not surely pass.
    pub(super) fn record(&self, sent: Duration, done: Duration, answer: Answer) {
        let (first, last) = (self.number(sent), self.number(done));
        let mut inner = self.inner.lock();
        inner.windows.entry(first).or_default().asked += 1;
        let count = inner.windows.entry(last).or_default();
        count.degraded += u64::from(answer.degraded);
        let is_certain = answer.allowed && first == last;
        count.passed += u64::from(is_certain);
        count.unmarked += u64::from(is_certain && !answer.degraded);
    }

    /// Records that a request got no answer.
    pub(super) fn fail(&self, why: String) {
        let mut inner = self.inner.lock();
        if inner.errors == 0 {
            inner.first_error = why;
        }
        inner.errors += 1;
    }

    pub(super) fn count(&self, number: u64) -> Count {
        self.inner
            .lock()
            .windows
            .get(&number)
            .copied()
            .unwrap_or_default()
    }

    /// A line that counts the requests without an answer, if there are any.
    pub(super) fn errors(&self) -> Vec<String> {
        let inner = self.inner.lock();
        match inner.errors {
            0 => Vec::new(),
            errors => {
                let first = inner.first_error.replace(['|', '\n'], " ");
                vec![format!("{errors} errors: {first}")]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_between_two_windows_passed_in_neither_for_certain() {
        let tally = Tally::new(Duration::from_secs(10));
        let at = Duration::from_millis;
        let answer = |allowed, degraded| Answer { allowed, degraded };
        tally.record(at(20_100), at(20_200), answer(true, false));
        tally.record(at(20_300), at(20_400), answer(true, true));
        tally.record(at(20_500), at(20_600), answer(false, true));
        tally.record(at(29_900), at(30_100), answer(true, false));
        let count = |asked, passed, unmarked, degraded| Count {
            asked,
            passed,
            unmarked,
            degraded,
        };
        assert_eq!(tally.count(2), count(4, 2, 1, 2));
        assert_eq!(tally.count(3), count(0, 0, 0, 0));
    }
}
