//! `gcra`: the generic cell rate algorithm. With T the time one hit takes and B the burst,
//! new = max(now, TAT) + n * T is allowed iff new - now <= B * T.
//!
//! ```text
//!          now            TAT          now + B*T
//!  ---------|==============|--------------|------> time
//!            already taken    room for n*T
//! ```
//!
//! ITU-T I.371, the virtual scheduling form; for APIs see Brandur Leach,
//! <https://brandur.org/rate-limiting>. At most burst + limit * w / window hits pass in any
//! span w. Exact against that definition but for T, which is rounded up: by less than 0.1 %,
//! and so that never more passes.
//!
//! State: that of [`token_bucket`](crate::token_bucket), by whose steps it counts: TAT is the time
//! up to which the bucket has been refilled, plus T for each missing hit. TAT alone would not do. It
//! cannot tell the hits of a longer burst from a clock that went back, and how many hits a span
//! stands for depends on the T of the limit that took them. [`leaky_bucket`](crate::leaky_bucket),
//! whose hits are places in time, keeps it.

use crate::ask::Finding;
use crate::rate::Rate;
use crate::{Ask, Micros, Outcome, Verdict};

/// The hits missing in a bucket at some time as a limit reads it, perhaps more than its burst.
#[derive(Clone, Copy)]
pub(crate) struct Missing {
    /// Their number, with one that may have begun to come back.
    pub(crate) hits: u64,
    /// The span until all of them have, TAT - now, in units of the rate.
    pub(crate) busy: u64,
}

impl Missing {
    /// The time until so many hits fit at once, of which some do not now.
    #[inline]
    const fn wait(self, rate: Rate, hits: u64) -> Micros {
        rate.micros((self.busy + rate.span(hits)).saturating_sub(rate.full()))
    }

    /// The rest after a refund, which fills the bucket and no more.
    const fn less(self, rate: Rate, refund: u64) -> Self {
        if refund >= self.hits {
            return Self { hits: 0, busy: 0 };
        }
        Self {
            hits: self.hits - refund,
            busy: self.busy - rate.span(refund),
        }
    }
}

/// The answer of a bucket in which so much is missing.
#[inline]
pub(crate) fn outcome(rate: Rate, missing: Missing, ask: Ask) -> Outcome {
    let room = rate.burst().saturating_sub(missing.hits);
    let wanted = ask.wanted();
    if ask.hits <= 0 || wanted > room {
        return unusual(rate, missing, ask);
    }
    // The general answer, of which little is left to compute.
    Outcome {
        verdict: Verdict::Fits,
        remaining: room - wanted,
        reset_after: missing.wait(rate, room + 1),
        full_after: rate.micros(missing.busy + rate.span(wanted)),
        retry_after: Micros::ZERO,
        delay: Micros::ZERO,
        cut: 0,
    }
}

/// The answer to a denial, a look or a refund.
#[inline(never)]
fn unusual(rate: Rate, missing: Missing, ask: Ask) -> Outcome {
    let missing = missing.less(rate, ask.refund());
    let room = rate.burst().saturating_sub(missing.hits);
    let outcome = Finding {
        capacity: rate.burst(),
        room,
        full_after: rate.micros(missing.busy + rate.span(ask.spent(room))),
    }
    // Spent hits move TAT and the room alike.
    .outcome(
        ask,
        |hits| missing.wait(rate, hits),
        |_| missing.wait(rate, room + 1),
    );
    if ask.hits == 0 && missing.hits > rate.burst() {
        return outcome.overdrawn(rate.burst());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Limit, LimitSpec, Micros, Moment, State, Timestamp, Verdict};

    /// Five hits a second with a burst of three: T is 200 ms.
    fn limit() -> Limit {
        let spec = LimitSpec::new(Algorithm::Gcra, 5, Micros::from_secs(1));
        Limit::try_new(LimitSpec {
            burst: Some(3),
            ..spec
        })
        .expect("a valid limit")
    }

    #[test]
    fn one_hit_comes_back_after_t_and_not_a_microsecond_sooner() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        let mut step = |hits, micros: u64| {
            let at = Moment::at(Timestamp::from_micros(1_000_000_000 + micros));
            limit.step(&mut state, hits, &at)
        };
        let full = step(3, 0);
        assert_eq!(
            (full.reset_after, full.full_after),
            (Micros::from_millis(200), Micros::from_millis(600))
        );
        assert_eq!(step(1, 0).retry_after, Micros::from_millis(200));
        assert_eq!(step(1, 199_999).retry_after, Micros::new(1));
        assert_eq!(step(1, 200_000).verdict, Verdict::Fits);
        assert_eq!(step(1, 200_001).retry_after, Micros::new(199_999));
        assert_eq!(step(4, 200_001).verdict, Verdict::Never);
    }

    #[test]
    fn a_rate_of_several_hits_a_microsecond_is_kept_within_a_thousandth() {
        for quota in [300_000, 999_999, 1_000_001, 3_000_000, u64::from(u32::MAX)] {
            let spec = LimitSpec::new(Algorithm::Gcra, quota, Micros::from_secs(1));
            let burst = Some(quota / 10);
            let limit = Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit");
            let mut state = State::new(limit.shape());
            // All available hits are taken every 7.919 ms, for a second.
            let passed = (0..127_u64).map(|step| {
                let at = Moment::at(Timestamp::from_micros(1_000_000_000 + step * 7_919));
                let there = limit.step(&mut state, 0, &at).remaining;
                limit.step(&mut state, i64::try_from(there).unwrap_or(0), &at);
                there
            });
            let refilled = passed.sum::<u64>() - quota / 10;
            let defined = quota * (126 * 7_919) / 1_000_000;
            assert!(refilled <= defined, "{refilled} of {defined}");
            assert!(
                refilled + defined / 1_000 + 1 >= defined,
                "{refilled} of {defined}"
            );
        }
    }
}
