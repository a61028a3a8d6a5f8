//! `token_bucket`: `burst` tokens at most, `limit` new ones a window; n hits pass iff
//! burst - deficit >= n after the refill, which is computed when looked at.
//!
//! ```text
//!  tokens 4 |*        *
//!         3 | *     *  *            spent at once, refilled one every T = window / limit
//!         2 |  *  *     *   *
//!         1 |   *        * *
//! ```
//!
//! The token bucket of RFC 2212 (Shenker, Partridge, Guerin: rate r, depth b, at most r * T + b
//! in any time T) and of Stripe's <https://stripe.com/blog/rate-limiters>. At most
//! burst + limit * w / window hits pass in any span w; T is rounded up, by less than 0.1 %.
//!
//! State: word 0 the deficit in whole tokens, words 1 and 2 the time up to which it has been
//! refilled (microseconds, 2^-32 of one). The deficit is kept rather than the tokens, so that
//! a changed burst takes effect at once; one above a lowered burst is clamped to it, and a
//! charge writes that down, one of 0 hits too. A changed rate counts from the last charge on.
//! After a clock went back the next token is a whole T away.

use crate::ask::Finding;
use crate::rate::{Instant, Rate};
use crate::{Ask, Outcome, Timestamp, Words};

/// A deficit, and the time since which the next token is on its way; never after the current time.
#[derive(Clone, Copy)]
struct Bucket {
    deficit: u64,
    since: Instant,
}

impl Bucket {
    /// The bucket at `now`: refilled by whole tokens, with the time towards the next one kept.
    fn at(rate: Rate, words: &Words, now: Timestamp) -> Self {
        let kept = Self {
            deficit: words[0],
            since: Instant {
                micros: words[1],
                fraction: words[2],
            },
        };
        if kept.deficit > rate.burst() || kept.since.micros > now.as_micros() {
            return kept.out_of_range(rate, now);
        }
        let left = kept.until(rate, kept.deficit, now);
        if left == 0 {
            return Self::fresh(0, now);
        }
        let refilled = kept.deficit.saturating_sub(rate.hits_begun(left));
        Self {
            deficit: kept.deficit - refilled,
            since: kept.since.moved(rate, rate.span(refilled)),
        }
    }

    /// A bucket whose next token is on its way from now.
    const fn fresh(deficit: u64, now: Timestamp) -> Self {
        Self {
            deficit,
            since: Instant {
                micros: now.as_micros(),
                fraction: 0,
            },
        }
    }

    /// The result of [`Self::at`] after the burst was lowered below the deficit, or the clock went
    /// back: too rare to be fast.
    fn out_of_range(self, rate: Rate, now: Timestamp) -> Self {
        let (refilled, since) = rate.whole_hits(self.since, now);
        let deficit = self.deficit.saturating_sub(refilled);
        if deficit > rate.burst() || deficit == 0 || self.since.micros > now.as_micros() {
            return Self::fresh(deficit.min(rate.burst()), now);
        }
        Self { deficit, since }
    }

    /// The span from `now` until `tokens` (at most the burst) have refilled, in units of `rate`.
    fn until(self, rate: Rate, tokens: u64, now: Timestamp) -> u64 {
        rate.until(self.since.moved(rate, rate.span(tokens)), now)
    }
}

pub(crate) fn test(rate: Rate, words: &Words, ask: Ask, now: Timestamp) -> Outcome {
    let mut bucket = Bucket::at(rate, words, now);
    if ask.refund() >= bucket.deficit {
        bucket = Bucket::fresh(0, now);
    } else {
        bucket.deficit -= ask.refund();
    }
    let room = rate.burst() - bucket.deficit;
    let deficit = bucket.deficit + ask.spent(room);
    let full_after = rate.micros(bucket.until(rate, deficit, now));
    Finding {
        capacity: rate.burst(),
        room,
        full_after,
    }
    .outcome(
        ask,
        |hits| rate.micros(bucket.until(rate, hits - room, now)),
        // The next token is on its way already, or starts with this take.
        |_| rate.micros(bucket.until(rate, 1, now)),
    )
}

pub(crate) fn charge(rate: Rate, words: &mut Words, hits: i64, now: Timestamp) {
    let bucket = Bucket::at(rate, words, now);
    let deficit = bucket.deficit.saturating_add_signed(hits);
    let Bucket { deficit, since } = if deficit > rate.burst() {
        // Emptied, along with the fraction of the next token.
        Bucket::fresh(rate.burst(), now)
    } else {
        Bucket { deficit, ..bucket }
    };
    *words = [deficit, since.micros, since.fraction, 0];
}

/// Returns true if the last charge is further ahead of now than the bucket's time to fill.
pub(crate) fn is_ahead(rate: Rate, words: &Words, now: Timestamp) -> bool {
    Timestamp::from_micros(words[1]).since(now) > rate.micros(rate.full())
}

pub(crate) fn expires_at(rate: Rate, words: &Words) -> Timestamp {
    let since = Instant {
        micros: words[1],
        fraction: words[2],
    };
    let full = since.moved(rate, rate.span(words[0].min(rate.burst())));
    Timestamp::from_micros(full.micros.saturating_add(u64::from(full.fraction > 0)))
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Limit, LimitSpec, Micros, Moment, Outcome, State, Timestamp, Verdict};

    /// A limit of this many tokens, refilled one every 100 ms.
    fn limit(burst: u64) -> Limit {
        let spec = LimitSpec::new(Algorithm::TokenBucket, 10, Micros::from_secs(1));
        Limit::try_new(LimitSpec {
            burst: Some(burst),
            ..spec
        })
        .expect("a valid limit")
    }

    fn step(limit: &Limit, state: &mut State, hits: i64, micros: u64) -> Outcome {
        let at = Moment::at(Timestamp::from_micros(1_000_000_000 + micros));
        limit.step(state, hits, &at)
    }

    #[test]
    fn a_token_comes_in_whole_at_its_tick() {
        let limit = limit(3);
        let mut state = State::new(limit.shape());
        assert_eq!(step(&limit, &mut state, 3, 0).remaining, 0);
        assert_eq!(
            step(&limit, &mut state, 1, 99_999).retry_after,
            Micros::new(1)
        );
        assert_eq!(step(&limit, &mut state, 0, 100_000).remaining, 1);
        assert_eq!(step(&limit, &mut state, 0, 100_001).remaining, 1);
        // A take does not lose the fraction of the next token.
        assert_eq!(step(&limit, &mut state, 1, 150_000).verdict, Verdict::Fits);
        assert_eq!(
            step(&limit, &mut state, 1, 150_000).retry_after,
            Micros::from_millis(50)
        );
    }

    #[test]
    fn a_lowered_burst_settles_at_the_first_denial() {
        let (high, low) = (limit(100), limit(2));
        let mut state = State::new(high.shape());
        step(&high, &mut state, 100, 0);
        // 95 of 100 are missing, but of two at most two can be missing.
        let denied = step(&low, &mut state, 1, 500_000);
        assert_eq!(denied.retry_after, Micros::from_millis(100));
        assert_eq!(step(&low, &mut state, 1, 599_999).verdict, Verdict::Later);
        assert_eq!(step(&low, &mut state, 1, 600_000).verdict, Verdict::Fits);
    }

    #[test]
    fn a_raised_burst_is_there_at_once_and_usage_stays() {
        let (low, high) = (limit(2), limit(5));
        let mut state = State::new(low.shape());
        step(&low, &mut state, 2, 0);
        assert_eq!(step(&high, &mut state, 0, 0).remaining, 3);
    }
}
