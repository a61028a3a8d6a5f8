//! Rate limiting of the log lines about a server that fails and serves again.
//!
//! ```text
//!             fails                    serves
//!   serving --------> failing  ---------------------> serving
//!      |                                                 ^
//!      | fails, less than CALM after it had failed       | nothing failed for CALM
//!      `---------------------> unsteady -----------------'
//! ```
//!
//! Each change of that state is one line, however many calls fail: a server just too slow for the
//! deadline fails and serves many times a second.

use std::time::{Duration, Instant};

/// The time without a failure after which the next one is news.
const CALM: Duration = Duration::from_secs(10);

/// The condition of a server, as reported to operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Condition {
    #[default]
    Serving,
    /// It has failed since it last served.
    Failing,
    /// It alternates between failing and serving.
    Unsteady,
}

/// A server's condition, and since when.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    condition: Condition,
    failed_at: Option<Instant>,
}

impl Journal {
    pub(crate) const fn condition(&self) -> Condition {
        self.condition
    }

    /// Records a failure. Returns the new condition if it is to be logged.
    pub(crate) fn failed(&mut self, now: Instant) -> Option<Condition> {
        let is_calm = self.is_calm(now);
        self.failed_at = Some(now);
        let condition = match self.condition {
            Condition::Serving if is_calm => Condition::Failing,
            Condition::Serving => Condition::Unsteady,
            Condition::Failing | Condition::Unsteady => return None,
        };
        self.condition = condition;
        Some(condition)
    }

    /// Records a success. Returns true if it is to be logged.
    pub(crate) fn served(&mut self) -> bool {
        let is_news = self.condition == Condition::Failing;
        if is_news {
            self.condition = Condition::Serving;
        }
        is_news
    }

    /// Takes note of the time. Returns true if the server serves steadily again and this is to be logged.
    pub(crate) fn settle(&mut self, now: Instant) -> bool {
        let is_news = self.condition == Condition::Unsteady && self.is_calm(now);
        if is_news {
            self.condition = Condition::Serving;
        }
        is_news
    }

    fn is_calm(&self, now: Instant) -> bool {
        let since = self.failed_at.map(|at| now.saturating_duration_since(at));
        since.is_none_or(|since| since >= CALM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_and_its_end_are_said_once_each() {
        let (mut journal, start) = (Journal::default(), Instant::now());
        assert!(!journal.served());
        assert_eq!(journal.failed(start), Some(Condition::Failing));
        assert_eq!(journal.failed(start), None);
        assert!(journal.served());
        assert!(!journal.served() && !journal.settle(start + CALM));
        assert_eq!(journal.failed(start + CALM), Some(Condition::Failing));
    }

    #[test]
    fn what_fails_and_serves_in_turns_is_said_twice_in_all() {
        let (mut journal, mut now) = (Journal::default(), Instant::now());
        journal.failed(now);
        journal.served();
        let mut said = Vec::new();
        for _ in 0..100 {
            now += CALM / 4;
            said.extend(journal.failed(now));
            assert!(!journal.served() && !journal.settle(now + CALM / 2));
        }
        assert_eq!(said, [Condition::Unsteady]);
        assert!(journal.settle(now + CALM));
        assert_eq!(journal.condition(), Condition::Serving);
        assert!(!journal.settle(now + CALM));
    }
}
