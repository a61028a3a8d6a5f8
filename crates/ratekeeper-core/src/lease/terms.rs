//! The limits that can be leased, as their counters are charged then.

use crate::limit::Kind;
use crate::{Algorithm, Limit, Micros};

/// The drift of a clock that the proof allows for, in millionths.
pub const DRIFT_PPM: u64 = 500;

/// The smallest burst of a bucket that is leased. A smaller one would lose too much of it.
pub const LEASED_BURST_MIN: u64 = 32;

/// The shortest lease that is worth a call.
const TTL_MIN: Micros = Micros::from_millis(5);

/// Leases of a sliding window in groups end after this part of it: hits count for so much longer.
const PART_OF_WINDOW: u64 = 64;

/// The reason for not leasing a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unleasable {
    /// Its hits cannot be taken in advance.
    #[error("{} cannot be leased: {}", .0.name(), reason(*.0))]
    Algorithm(Algorithm),
    /// The bucket is too small.
    #[error("a burst below {LEASED_BURST_MIN} is not leased: a lease would hold most of it")]
    BurstTooSmall,
    /// The lease that its window or burst allows is not worth a call.
    #[error("its leases would last less than {} ms", TTL_MIN.as_millis_ceil())]
    TooShort,
}

const fn reason(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::SlidingLog => "it remembers when each hit was admitted",
        Algorithm::LeakyBucket => "each request has a turn of its own",
        Algorithm::Concurrency => "permits are released one by one",
        _ => "",
    }
}

/// A limit that is leased, and for how long.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Terms {
    limit: Limit,
    ttl: Micros,
}

impl Terms {
    /// The terms of `limit` with leases of `ttl`, shorter where a bucket or a sliding window wants it.
    ///
    /// # Errors
    /// [`Unleasable`]: the reason to count it exactly.
    pub fn try_new(limit: &Limit, ttl: Micros) -> Result<Self, Unleasable> {
        let (window, quota) = (limit.window().get(), limit.quota());
        let ttl = match limit.kind {
            Kind::SlidingLog | Kind::LeakyBucket(..) | Kind::Concurrency => {
                return Err(Unleasable::Algorithm(limit.algorithm()));
            }
            Kind::TokenBucket(rate) | Kind::Gcra(rate) if rate.burst() < LEASED_BURST_MIN => {
                return Err(Unleasable::BurstTooSmall);
            }
            // A lease takes at most 1/32 of the burst.
            Kind::TokenBucket(rate) | Kind::Gcra(rate) => {
                let most = u128::from(rate.burst()) * u128::from(window);
                let most = most / (u128::from(LEASED_BURST_MIN) * u128::from(quota));
                ttl.get().min(u64::try_from(most).unwrap_or(u64::MAX))
            }
            Kind::EqualCount(cut) => (ttl.get()).min(window / PART_OF_WINDOW).min(cut.lead_max()),
            Kind::FixedWindow | Kind::SlidingWindow(_) => ttl.get(),
        };
        if ttl < TTL_MIN.get() {
            return Err(Unleasable::TooShort);
        }
        let kind = match limit.kind {
            Kind::TokenBucket(rate) => {
                Kind::TokenBucket(rate.with_burst(rate.burst() - refilled(limit, ttl)))
            }
            Kind::Gcra(rate) => Kind::Gcra(rate.with_burst(rate.burst() - refilled(limit, ttl))),
            Kind::EqualCount(cut) => Kind::EqualCount(cut.with_lead(ttl)),
            other => other,
        };
        Ok(Self {
            limit: limit.with_kind(kind),
            ttl: Micros::new(ttl),
        })
    }

    /// The terms that [`Self::limit`] and [`Self::ttl`] were read from.
    #[must_use]
    pub const fn from_parts(limit: Limit, ttl: Micros) -> Self {
        Self { limit, ttl }
    }

    /// The limit as every step in the store has to charge it, exact ones too.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The longest that a lease lasts, by the store's clock.
    #[must_use]
    pub const fn ttl(&self) -> Micros {
        self.ttl
    }
}

/// The most hits that come in while a lease lasts, by clocks that differ as much as they may:
/// less than the burst, of which a lease is at most 1/32.
fn refilled(limit: &Limit, ttl: u64) -> u64 {
    let million = 1_000_000;
    let span = u128::from(ttl) * u128::from(million + 2 * DRIFT_PPM);
    let hits = (u128::from(limit.quota()) * span)
        .div_ceil(u128::from(limit.window().get()) * u128::from(million));
    u64::try_from(hits).unwrap_or(u64::MAX)
}

/// Until when by a node's boot time something may be spent that the store says is usable for so long,
/// if its request was first sent at `first_send`. Counted from before the store can have read its clock,
/// and shorter by what the two clocks may differ in rate.
#[must_use]
pub const fn deadline(first_send: Micros, usable: Micros) -> Micros {
    // Whole seconds apart, so that nothing overflows.
    let (secs, rest) = (usable.get() / 1_000_000, usable.get() % 1_000_000);
    let drift = secs * 2 * DRIFT_PPM + (rest * 2 * DRIFT_PPM).div_ceil(1_000_000);
    let usable = usable.get() - drift;
    Micros::new(first_send.get().saturating_add(usable))
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
        let small = limit(Algorithm::TokenBucket, 100, Some(31), 60_000);
        assert_eq!(Terms::try_new(&small, ttl), Err(Unleasable::BurstTooSmall));
        // 1/64 of 300 ms.
        let short = limit(Algorithm::SlidingWindow, 100, None, 300);
        assert_eq!(Terms::try_new(&short, ttl), Err(Unleasable::TooShort));
    }

    #[test]
    fn a_bucket_gives_up_what_comes_in_during_a_lease() {
        let ttl = Micros::from_millis(100);
        // 1,000 a second: 100 in 100 ms, and one for the drift.
        let terms = Terms::try_new(&limit(Algorithm::Gcra, 1_000, Some(3_200), 1_000), ttl);
        let terms = terms.expect("it can be leased");
        assert_eq!((terms.limit().capacity(), terms.ttl()), (3_099, ttl));
        // A burst of 320 bears leases of 10 ms.
        let terms = Terms::try_new(&limit(Algorithm::Gcra, 1_000, Some(320), 1_000), ttl);
        let terms = terms.expect("it can be leased");
        assert_eq!(terms.ttl(), Micros::from_millis(10));
        assert_eq!(terms.limit().capacity(), 309);
    }

    #[test]
    fn a_deadline_counts_from_the_send_and_is_short_by_twice_the_drift() {
        let deadline = |usable| deadline(Micros::new(50), Micros::new(usable)).get();
        assert_eq!(deadline(100_000), 50 + 99_900);
        assert_eq!(deadline(1), 50);
        assert_eq!(deadline(2_000_000), 50 + 2_000_000 - 2_000);
        assert_eq!(super::deadline(Micros::MAX, Micros::MAX), Micros::MAX);
    }
}
