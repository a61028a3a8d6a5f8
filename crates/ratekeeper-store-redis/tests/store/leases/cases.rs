//! The counters that are flooded, and what may pass.

use ratekeeper_core::lease::Terms;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};
use ratekeeper_store::Step;

use crate::support::{LASTING, step};

const SECOND: u64 = 1_000_000;

/// The longest time of a lease.
const LEASE: Micros = Micros::from_millis(100);

/// The times right before and right after a request that was admitted, in microseconds of the system's clock.
pub(super) type Admission = (u64, u64);

/// A counter and its limit.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) number: u64,
    name: &'static str,
    limit: Limit,
}

/// Every algorithm that is leased, in the same order in every process.
pub(super) fn cases() -> Vec<Case> {
    let per_second = |algorithm, quota, burst, sub_windows| LimitSpec {
        burst,
        sub_windows,
        ..LimitSpec::new(algorithm, quota, Micros::from_secs(1))
    };
    let specs = [
        (
            "fixed",
            per_second(Algorithm::FixedWindow, 2_000, None, None),
        ),
        (
            "groups",
            per_second(Algorithm::SlidingWindow, 2_000, None, None),
        ),
        (
            "sub-windows",
            per_second(Algorithm::SlidingWindow, 2_000, None, Some(10)),
        ),
        (
            "tokens",
            per_second(Algorithm::TokenBucket, 1_000, Some(2_000), None),
        ),
        (
            "gcra",
            per_second(Algorithm::Gcra, 1_000, Some(2_000), None),
        ),
        (
            "lasting",
            LimitSpec::new(Algorithm::FixedWindow, 5_000, LASTING),
        ),
    ];
    let case = |(number, (name, spec))| Case {
        number,
        name,
        limit: Limit::try_new(spec).expect("a valid limit"),
    };
    (0..).zip(specs).map(case).collect()
}

/// The step, leased.
pub(crate) fn leased(step: &Step) -> Step {
    let terms = Terms::try_new(&step.limit, LEASE).expect("it can be leased");
    Step {
        limit: *terms.limit(),
        lease: terms.ttl(),
        ..*step
    }
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

impl Case {
    pub(super) fn step(&self) -> Step {
        leased(&step(&self.limit, 1_000 + self.number))
    }

    /// Holds what was admitted to the limit.
    pub(super) fn check(&self, admitted: &mut [Admission]) {
        admitted.sort_unstable();
        match self.limit.algorithm() {
            Algorithm::FixedWindow => self.check_fixed(admitted),
            Algorithm::TokenBucket | Algorithm::Gcra => {
                let (burst, quota) = (self.limit.capacity(), self.limit.quota());
                self.check_intervals(admitted, |span| burst + span * quota / SECOND);
            }
            _ => {
                let most = self.limit.most_in_any_window().expect("it has a window");
                self.check_intervals(admitted, |span| most * (1 + span / SECOND));
            }
        }
    }

    fn check_fixed(&self, admitted: &[Admission]) {
        let window = self.limit.window().get();
        let mut counts = std::collections::BTreeMap::new();
        for (before, after) in admitted {
            if before / window == after / window {
                *counts.entry(before / window).or_insert(0_u64) += 1;
            }
        }
        for (number, count) in counts {
            let limit = self.limit.quota();
            assert!(
                count <= limit,
                "{self:?}: {count} of {limit} in window {number}"
            );
        }
    }

    /// No interval has more than `most` says of its length.
    fn check_intervals(&self, admitted: &[Admission], most: impl Fn(u64) -> u64) {
        for (first, (begin, _)) in admitted.iter().enumerate().step_by(7) {
            let mut ends: Vec<u64> = admitted[first..].iter().map(|(_, after)| *after).collect();
            ends.sort_unstable();
            for (count, end) in (1_u64..).zip(ends) {
                let most = most(end - begin);
                assert!(
                    count <= most,
                    "{self:?}: {count} of {most} within {} us",
                    end - begin
                );
            }
        }
    }
}
