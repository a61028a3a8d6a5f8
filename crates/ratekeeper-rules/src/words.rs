//! Limits in words, for operators: amount, algorithm and accuracy.

use std::fmt;

use ratekeeper_core::{Algorithm, Limit};

use crate::{Enforce, Rule, RuleLimit};

/// The accuracy of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Accuracy {
    /// Never more than the limit in any window.
    Exact,
    /// Never more than the limit in each window of the clock or calendar, up to twice the limit in
    /// a span of the same length that crosses an edge.
    AcrossAnEdge,
    /// So many hits more than the limit in the worst window.
    AtMostMore(u64),
    /// Never more than the limit, and from so many hits on some are refused that would have fitted.
    Strict {
        /// The most hits from idle.
        refuses_from: u64,
    },
    /// Counted in so many parts: up to twice the limit in the worst window.
    Parts(u32),
    /// So many at once from idle, then at the rate: together at most so many in any window.
    Burst {
        /// At once.
        burst: u64,
        /// In the worst window.
        most: u64,
    },
    /// Leaves at the rate, of a queue of so many.
    Queue(u64),
}

impl From<&Limit> for Accuracy {
    fn from(limit: &Limit) -> Self {
        let (quota, capacity) = (limit.quota(), limit.capacity());
        let most = limit.most_in_any_window().unwrap_or(quota);
        match limit.algorithm() {
            Algorithm::FixedWindow => Self::AcrossAnEdge,
            Algorithm::SlidingWindow if limit.sub_windows() > 0 => Self::Parts(limit.sub_windows()),
            Algorithm::SlidingWindow if limit.is_strict() && capacity < quota => Self::Strict {
                refuses_from: capacity,
            },
            Algorithm::SlidingWindow if most > quota => Self::AtMostMore(most - quota),
            Algorithm::SlidingWindow | Algorithm::SlidingLog | Algorithm::Concurrency => {
                Self::Exact
            }
            Algorithm::TokenBucket | Algorithm::Gcra => Self::Burst {
                burst: capacity,
                most,
            },
            Algorithm::LeakyBucket => Self::Queue(capacity),
        }
    }
}

impl fmt::Display for Accuracy {
    /// `exact`, `at most 6 more in any window`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Exact => write!(f, "exact"),
            Self::AcrossAnEdge => {
                write!(
                    f,
                    "exact in each window, up to twice the limit across an edge"
                )
            }
            Self::AtMostMore(more) => write!(f, "at most {more} more in any window"),
            Self::Strict { refuses_from } => {
                write!(f, "strict: never more, may refuse from {refuses_from} on")
            }
            Self::Parts(1) => write!(f, "1 sub-window: up to twice the limit in a window"),
            Self::Parts(parts) => {
                write!(f, "{parts} sub-windows: up to twice the limit in a window")
            }
            Self::Burst { burst, most } => write!(f, "burst {burst}, at most {most} in any window"),
            Self::Queue(places) => write!(f, "queue of {places}"),
        }
    }
}

/// `100 per 1m, sliding_window, at most 6 more in any window`, and that often where so many regions lend each other parts. A
/// budget is called one.
fn in_words(limit: &RuleLimit, window: &str, lending: u64) -> String {
    let RuleLimit::Limited(limit) = limit else {
        return "unlimited".to_owned();
    };
    let (quota, algorithm) = (limit.quota(), limit.algorithm());
    if algorithm.holds_permits() {
        return format!("{quota} at a time, {}", algorithm.name());
    }
    let accuracy = match Accuracy::from(limit) {
        // Each region has groups of its own, which may be as large as those of the whole limit.
        Accuracy::AtMostMore(more) => Accuracy::AtMostMore(more.saturating_mul(lending)),
        accuracy => accuracy,
    };
    let budget = match (limit.is_post_paid(), limit.max_debt()) {
        (false, _) => String::new(),
        (true, None) => ", budget (post_paid)".to_owned(),
        (true, Some(debt)) => format!(", budget (post_paid), up to {debt} in debt"),
    };
    format!(
        "{quota} per {window}, {}, {accuracy}{budget}",
        algorithm.name()
    )
}

impl Rule {
    /// The quota in words: `100 per 1m`, `5 at a time`.
    #[must_use]
    pub fn quota_in_words(&self) -> String {
        match self.limited() {
            None => "unlimited".to_owned(),
            Some(limit) if limit.algorithm().holds_permits() => {
                format!("{} at a time", limit.quota())
            }
            Some(limit) => format!("{} per {}", limit.quota(), self.window_text),
        }
    }

    /// The limit in words: how much passes, by which algorithm, how exactly.
    #[must_use]
    pub fn in_words(&self) -> String {
        let share = self.share.as_ref().filter(|share| share.is_lent);
        let lending = share.map_or(1, |share| share.regions.all().len() as u64);
        in_words(&self.limit, &self.window_text, lending)
    }

    /// The ways in which its denials count less than others, in words: `shadow`, `enforced for 10%, shadow for
    /// the rest`, `quota mode`, `off`. Empty if it is enforced for everybody.
    #[must_use]
    pub fn exceptions_in_words(&self) -> String {
        let share = self.enforce;
        let enforced = match () {
            () if !self.enabled => "off".to_owned(),
            () if self.shadow || share == Enforce::NONE => "shadow".to_owned(),
            () if share.is_all() => String::new(),
            () => format!("enforced for {share}, shadow for the rest"),
        };
        match (enforced.is_empty(), self.quota_mode) {
            (_, false) => enforced,
            (true, true) => "quota mode".to_owned(),
            (false, true) => enforced + ", quota mode",
        }
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

    use super::Accuracy;

    fn told(change: impl FnOnce(&mut LimitSpec)) -> String {
        let mut spec = LimitSpec::new(Algorithm::SlidingWindow, 100, Micros::from_secs(60));
        change(&mut spec);
        let limit = Limit::try_new(spec).expect("a valid limit");
        Accuracy::from(&limit).to_string()
    }

    #[test]
    fn sliding_windows_tell_the_most_that_passes() {
        assert_eq!(told(|_| {}), "at most 6 more in any window");
        assert_eq!(told(|spec| spec.quota = 23), "exact");
        assert_eq!(told(|spec| spec.quota = 24), "at most 1 more in any window");
        let strict = told(|spec| spec.strict = true);
        assert_eq!(strict, "strict: never more, may refuse from 95 on");
        let small = told(|spec| (spec.strict, spec.quota) = (true, 23));
        assert_eq!(small, "exact");
        let parts = told(|spec| spec.sub_windows = Some(12));
        assert_eq!(parts, "12 sub-windows: up to twice the limit in a window");
    }

    #[test]
    fn the_other_algorithms_do_too() {
        let of = |algorithm| told(|spec| spec.algorithm = algorithm);
        let edge = "exact in each window, up to twice the limit across an edge";
        assert_eq!(of(Algorithm::FixedWindow), edge);
        assert_eq!(of(Algorithm::SlidingLog), "exact");
        assert_eq!(of(Algorithm::Concurrency), "exact");
        assert_eq!(of(Algorithm::Gcra), "burst 100, at most 200 in any window");
        let bucket = told(|spec| (spec.algorithm, spec.burst) = (Algorithm::TokenBucket, Some(30)));
        assert_eq!(bucket, "burst 30, at most 130 in any window");
        assert_eq!(of(Algorithm::LeakyBucket), "queue of 100");
    }
}
