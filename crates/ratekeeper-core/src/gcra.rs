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
//! State: word 0 the theoretical arrival time (TAT) in microseconds, word 1 its fraction in
//! units of 2^-32 microseconds, 0 for every rate up to a thousand a second. On every read
//! TAT <= now + B * T, so that a limit lowered in use does not punish for longer than its
//! own burst takes; a charge writes that down, one of 0 hits too, and the wait counts from it.
//! After a clock went back the same clamp holds: at most the bucket has to refill again, and
//! no more passes than in the time that went by.

use crate::ask::Finding;
use crate::rate::{Instant, Rate};
use crate::{Ask, Outcome, Timestamp, Words};

pub(crate) fn tat(words: &Words) -> Instant {
    Instant {
        micros: words[0],
        fraction: words[1],
    }
}

pub(crate) fn test(rate: Rate, words: &Words, ask: Ask, now: Timestamp) -> Outcome {
    let busy = rate
        .until(tat(words), now)
        .saturating_sub(refund_span(rate, ask.refund()));
    let room = rate.hits(rate.full() - busy);
    let full_after = rate.micros(busy + rate.span(ask.spent(room)));
    let wait = |hits: u64| rate.micros(busy + rate.span(hits) - rate.full());
    Finding {
        capacity: rate.burst(),
        room,
        full_after,
    }
    // Spent hits move TAT and the room alike.
    .outcome(ask, wait, |_| wait(room + 1))
}

/// The time span of a refund; one larger than the bucket fills it, and no more.
fn refund_span(rate: Rate, refund: u64) -> u64 {
    rate.span(refund.min(rate.burst()))
}

pub(crate) fn charge(rate: Rate, words: &mut Words, hits: i64, now: Timestamp) {
    let busy = rate.until(tat(words), now);
    let span = rate.span(hits.unsigned_abs().min(rate.burst()));
    let busy = if hits < 0 {
        busy.saturating_sub(span)
    } else {
        (busy + span).min(rate.full())
    };
    let tat = rate.instant(now, busy);
    words[0] = tat.micros;
    words[1] = tat.fraction;
}

pub(crate) fn expires_at(words: &Words) -> Timestamp {
    Timestamp::from_micros(words[0].saturating_add(u64::from(words[1] > 0)))
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
