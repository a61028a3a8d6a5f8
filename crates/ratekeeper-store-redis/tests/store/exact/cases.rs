//! The counters that are flooded.

use ratekeeper_core::{Algorithm, Bounds, Limit, LimitSpec, Micros, Timestamp};
use ratekeeper_store::Step;

use crate::support::step;

/// The quota of each counter.
pub(super) const QUOTA: u64 = 500;

const DAY: u64 = 86_400;

/// So long that nothing comes back while a test runs.
const YEAR: Micros = Micros::from_secs(365 * DAY);

/// The shortest to the longest that rules accept.
const WINDOWS: [Micros; 8] = [
    Micros::from_secs(1),
    Micros::from_secs(10),
    Micros::from_secs(60),
    Micros::from_secs(3_600),
    Micros::from_secs(DAY),
    Micros::from_secs(7 * DAY),
    Micros::from_secs(30 * DAY),
    YEAR,
];

/// A counter and its limit.
#[derive(Clone, Debug)]
pub(super) struct Case {
    number: u64,
    limit: Limit,
    calendar: Option<Bounds>,
}

/// Every algorithm with every window, in the same order in every process.
pub(super) fn cases() -> Vec<Case> {
    let mut limits = Vec::new();
    for window in WINDOWS {
        for algorithm in Algorithm::ALL {
            if algorithm != Algorithm::Concurrency {
                limits.push((limit(algorithm, window, None), None));
            }
        }
        let leaky = limit(Algorithm::LeakyBucket, window, None);
        limits.push((leaky.without_delay(), None));
        for sub_windows in [1, 60] {
            let sliding = limit(Algorithm::SlidingWindow, window, Some(sub_windows));
            limits.push((sliding, None));
        }
    }
    let month = limit(Algorithm::FixedWindow, Micros::from_secs(30 * DAY), None);
    limits.push((month, Some(calendar())));
    limits.push((limit(Algorithm::Concurrency, YEAR, None), None));
    let numbered = (0..).zip(limits);
    let case = |(number, (limit, calendar))| Case {
        number,
        limit,
        calendar,
    };
    numbered.map(case).collect()
}

fn limit(algorithm: Algorithm, window: Micros, sub_windows: Option<u32>) -> Limit {
    let spec = LimitSpec {
        sub_windows,
        ..LimitSpec::new(algorithm, QUOTA, window)
    };
    Limit::try_new(spec).expect("a valid limit")
}

/// A window that no clock leaves while a test runs.
fn calendar() -> Bounds {
    Bounds {
        start: Timestamp::from_secs(1_600_000_000),
        end: Timestamp::from_secs(6_600_000_000),
        next_end: Timestamp::from_secs(6_700_000_000),
    }
}

impl Case {
    /// One hit.
    pub(super) fn step(&self) -> Step {
        Step {
            calendar: self.calendar,
            ..step(&self.limit, self.number)
        }
    }

    /// Returns true if it counts permits.
    pub(super) fn is_permit(&self) -> bool {
        self.limit.algorithm() == Algorithm::Concurrency
    }

    /// The number that passes in any flood, if time gives nothing back meanwhile.
    pub(super) fn admits(&self) -> Option<u64> {
        let is_long = self.limit.window() == YEAR || self.calendar.is_some();
        let is_leaky = self.limit.algorithm() == Algorithm::LeakyBucket;
        // Without waiting, a request passes only if the queue is empty.
        let most = match is_leaky && self.limit == self.limit.without_delay() {
            true => 1,
            false => QUOTA,
        };
        is_long.then_some(most)
    }
}
