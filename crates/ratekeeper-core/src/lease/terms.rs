//! The limits that can be leased, as their counters are charged then.

use super::{CREDIT_MAX, LEASE_MAX, LEAST};
use crate::limit::Kind;
use crate::{Algorithm, Limit, Micros};

/// The drift of a clock that the proof allows for, in millionths.
pub const DRIFT_PPM: u64 = 500;

/// A lease holds at most this part of a limit's capacity.
pub const PART_OF_CAPACITY: u64 = 16;

/// The shortest lease that is worth a call.
const TTL_MIN: Micros = Micros::from_millis(5);

/// Leases of a sliding window in groups end after this part of it: hits may count for so much longer.
const PART_OF_WINDOW: u64 = 64;

/// The reason for not leasing a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unleasable {
    /// Its hits cannot be taken in advance.
    #[error("{} cannot be leased: {}", .0.name(), reason(*.0))]
    Algorithm(Algorithm),
    /// A lease would hold too few hits to be worth a call.
    #[error("a limit below {} is not leased: a lease would hold fewer than {LEAST} hits", LEAST * PART_OF_CAPACITY)]
    TooSmall,
    /// The lease that its window allows is not worth a call.
    #[error("its leases would last less than {} ms", TTL_MIN.as_millis_ceil())]
    TooShort,
    /// Its hits are known only afterwards.
    #[error("a post_paid limit cannot be leased: what a request costs is known only afterwards")]
    PostPaid,
}

const fn reason(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingLog => "it remembers when each hit was admitted",
        Algorithm::LeakyBucket => "each request has a turn of its own",
        Algorithm::Concurrency => "permits are released one by one",
        Algorithm::FixedWindow
        | Algorithm::SlidingWindow
        | Algorithm::TokenBucket
        | Algorithm::Gcra => "",
    }
}

/// A limit that is leased, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    limit: Limit,
    ttl: Micros,
}

impl Terms {
    /// The terms of `limit` with leases of `ttl`, shorter where a sliding window wants it, and never longer than
    /// [`LEASE_MAX`].
    ///
    /// # Errors
    /// [`Unleasable`]: the reason to count it exactly.
    pub fn try_new(limit: &Limit, ttl: Micros) -> Result<Self, Unleasable> {
        let part = Micros::new(limit.window().get() / PART_OF_WINDOW);
        let ttl = match limit.kind {
            Kind::SlidingLog | Kind::LeakyBucket(..) | Kind::Concurrency => {
                return Err(Unleasable::Algorithm(limit.algorithm()));
            }
            Kind::PostPaid(_) => return Err(Unleasable::PostPaid),
            Kind::EqualCount(_) => ttl.min(part),
            Kind::FixedWindow | Kind::SubWindows(_) | Kind::TokenBucket(_) | Kind::Gcra(_) => ttl,
        };
        let terms = Self::from_parts(*limit, ttl);
        if terms.ttl < TTL_MIN {
            Err(Unleasable::TooShort)
        } else if terms.amount_max() < LEAST {
            Err(Unleasable::TooSmall)
        } else {
            Ok(terms)
        }
    }

    /// The terms that [`Self::limit`] and [`Self::ttl`] were read from.
    #[must_use]
    pub fn from_parts(limit: Limit, ttl: Micros) -> Self {
        let ttl = ttl.min(LEASE_MAX);
        Self { limit, ttl }
    }

    /// The limit.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The longest that a lease lasts, by the store's clock.
    #[must_use]
    pub const fn ttl(&self) -> Micros {
        self.ttl
    }

    /// The most hits that a lease holds: a part of what other regions leave of the capacity.
    #[must_use]
    pub const fn amount_max(&self) -> u64 {
        let left = self.limit.capacity().saturating_sub(self.limit.elsewhere);
        let part = left / PART_OF_CAPACITY;
        if part < CREDIT_MAX { part } else { CREDIT_MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LimitSpec;

    fn limit(algorithm: Algorithm, quota: u64, burst: Option<u64>, window_ms: u64) -> Limit {
        let spec = LimitSpec::new(algorithm, quota, Micros::from_millis(window_ms));
        Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit")
    }

    #[test]
    fn what_cannot_be_taken_in_advance_is_refused_with_the_reason() {
        let ttl = Micros::from_millis(100);
        let refused = |algorithm| {
            let terms = Terms::try_new(&limit(algorithm, 100, None, 60_000), ttl);
            terms.map(|_| ()).map_err(|why| why.to_string())
        };
        let log = "sliding_log cannot be leased: it remembers when each hit was admitted";
        assert_eq!(refused(Algorithm::SlidingLog), Err(log.to_owned()));
        assert!(refused(Algorithm::LeakyBucket).is_err());
        assert!(refused(Algorithm::Concurrency).is_err());
        for algorithm in [
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow,
            Algorithm::Gcra,
        ] {
            assert_eq!(refused(algorithm), Ok(()));
        }
        let small = limit(Algorithm::TokenBucket, 100, Some(63), 60_000);
        assert_eq!(Terms::try_new(&small, ttl), Err(Unleasable::TooSmall));
        // 1/64 of 300 ms.
        let short = limit(Algorithm::SlidingWindow, 100, None, 300);
        assert_eq!(Terms::try_new(&short, ttl), Err(Unleasable::TooShort));
    }

    #[test]
    fn a_lease_is_short_and_small_and_leaves_the_limit_as_it_is() {
        let whole = limit(Algorithm::Gcra, 1_000, Some(3_200), 1_000);
        let terms = Terms::try_new(&whole, Micros::from_secs(60)).expect("it can be leased");
        assert_eq!((terms.limit(), terms.ttl()), (&whole, LEASE_MAX));
        assert_eq!(terms.amount_max(), 200);
        let groups = limit(Algorithm::SlidingWindow, 1_000, None, 1_000);
        let terms = Terms::try_new(&groups, Micros::from_millis(100)).expect("it can be leased");
        assert_eq!(terms.ttl(), Micros::new(15_625));
    }
}
