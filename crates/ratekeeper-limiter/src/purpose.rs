//! The purpose of a check, and the use that it makes of budgets.

use ratekeeper_core::{Limit, MAX_COUNT, Micros};
use ratekeeper_store::{Charge, Step};

/// The purpose that a check is matched for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To take its hits, or to reserve them.
    Charge,
    /// To take its hits, and permits that come back.
    Hold,
    /// To give its hits back.
    Refund,
    /// To look at its limits.
    Peek,
    /// To tell how it is decided.
    Explain,
    /// To tell how much of each limit is used.
    Inspect,
}

impl Purpose {
    /// Returns true if concurrency limits take part: where permits come back, or nothing is taken.
    #[inline]
    const fn has_permits(self) -> bool {
        matches!(self, Self::Hold | Self::Peek | Self::Inspect)
    }

    /// The hits of a step whose descriptor costs `hits`.
    #[inline]
    pub(crate) fn hits(self, hits: i64) -> i64 {
        match self {
            Self::Charge | Self::Hold => hits,
            Self::Refund => -hits.max(0),
            Self::Peek | Self::Explain | Self::Inspect => 0,
        }
    }

    /// The same of a step of `limit`, where permits count requests, whatever they cost; [`None`] if such a limit takes no part.
    #[inline]
    pub(crate) fn hits_of(self, limit: &Limit, hits: i64) -> Option<i64> {
        let hits = self.hits(hits);
        match limit.algorithm().holds_permits() {
            false => Some(hits),
            true => self.has_permits().then(|| hits.signum()),
        }
    }

    /// Returns true if all that is used of a limit is to be told.
    #[inline]
    pub(crate) const fn tells_use(self) -> bool {
        matches!(self, Self::Explain | Self::Inspect)
    }

    /// Returns true if the check appears in statistics and traces.
    #[inline]
    pub(crate) const fn is_counted(self) -> bool {
        !matches!(self, Self::Explain | Self::Inspect)
    }
}

/// The use that a check makes of limits that are paid afterwards. The other limits take its hits in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BudgetUse {
    /// They are charged its hits, as if those had been used already.
    #[default]
    Charge,
    /// They are looked at. [`Limiter::admit`](crate::Limiter::admit) returns a [`Bill`](crate::Bill) to be paid when the cost is known.
    Look,
    /// So many hits are taken of them, as far as that [takes from no other](ratekeeper_core::Limit::reserving), and settled by the [`Bill`](crate::Bill).
    Reserve(u64),
}

impl BudgetUse {
    /// Changes a step on such a limit, which takes the hits of its descriptor so far.
    #[inline]
    pub(crate) fn apply(self, step: &mut Step) {
        match self {
            Self::Charge => {}
            Self::Look => step.hits = 0,
            Self::Reserve(hits) => {
                step.hits = hits.min(MAX_COUNT).cast_signed();
                reserve(step);
                // What is settled later is counted in the store.
                step.sync = Micros::ZERO;
            }
        }
    }
}

/// Makes a step on a limit that is paid afterwards one that reserves its hits. [`is_reserve`] knows it by its charge: rules
/// have such a limit charged always.
pub(crate) fn reserve(step: &mut Step) {
    // What is held stands for work that is yet to be done: denied, it costs nothing.
    step.charge = Charge::IfAllowed;
    step.limit = step.limit.reserving();
}

/// Returns true if `step` [reserves](reserve) hits of a limit that is paid afterwards: what that cuts off them was not used
/// yet. A bucket's limit is the same for both, so the limit does not tell.
pub(crate) fn is_reserve(step: &Step) -> bool {
    step.limit.is_post_paid() && step.charge == Charge::IfAllowed
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::{Algorithm, Limit, LimitSpec};
    use ratekeeper_store::CounterKey;

    use super::*;

    #[test]
    fn a_step_that_reserves_is_known_again() {
        for algorithm in [
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::SlidingLog,
            Algorithm::TokenBucket,
            Algorithm::Gcra,
        ] {
            let spec = LimitSpec {
                post_paid: true,
                ..LimitSpec::new(algorithm, 100, Micros::from_secs(60))
            };
            let limit = Limit::try_new(spec).expect("a valid limit");
            let key = CounterKey {
                subject: 1,
                identity: 1,
            };
            let mut step = Step {
                charge: Charge::Always,
                ..Step::new(key, limit)
            };
            assert!(!is_reserve(&step), "{algorithm:?}");
            reserve(&mut step);
            assert!(is_reserve(&step), "{algorithm:?}");
        }
    }
}
