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
//! refilled (microseconds, 2^-32 of one), word 3 the time of the last charge, less than T later.
//! [`gcra`] counts by the same steps in the same state.
//!
//! **Two limits on one counter**, before and after a change or on two nodes: the state names no
//! limit, so each step refills by its own rate from the last charge on, and holds what is then
//! missing against its own burst. A deficit above the burst is kept: the bucket denies, and tells
//! the wait until its own rate has brought it below. Only refills and refunds make a deficit
//! smaller, so together the two admit no more than a limit with the larger burst and the faster
//! rate: between two charges at most the faster refills, and of the time towards the next token
//! nothing counts that is longer than a token of the rate that reads it.
//!
//! **Time that goes back.** A charge stores the time of its clock, whatever its limit, so one later
//! than now tells a step of the clock. One of no more than the time to fill leaves the bucket at
//! the stored time; a longer one moves it to now, with all that is missing, and the next charge
//! stores it so, one of 0 hits too. A charge of 0 hits stores nothing else.

use crate::gcra::{self, Missing};
use crate::rate::{Instant, Rate};
use crate::{Ask, Outcome, Timestamp, Words};

/// A deficit, the time since which the next token is on its way, and that of the last charge.
#[derive(Clone, Copy)]
struct Bucket {
    deficit: u64,
    since: Instant,
    at: u64,
}

impl Bucket {
    const fn read(words: &Words) -> Self {
        Self {
            deficit: words[0],
            since: Instant {
                micros: words[1],
                fraction: words[2],
            },
            at: words[3],
        }
    }

    /// The bucket as `rate` reads it at `now`.
    #[inline]
    fn of(rate: Rate, words: &Words, now: Timestamp) -> Self {
        let kept = Self::read(words);
        let towards_next = kept.at.wrapping_sub(kept.since.micros);
        if kept.deficit > rate.burst() || kept.at > now.as_micros() || towards_next > rate.below() {
            return kept.out_of_range(rate, now);
        }
        kept
    }

    /// The result of [`Self::of`] for what another limit left, or a clock that went back: too rare to
    /// be fast.
    #[cold]
    fn out_of_range(self, rate: Rate, now: Timestamp) -> Self {
        if self.deficit == 0 {
            return Self::fresh(0, now.as_micros());
        }
        let back = match self.is_ahead(rate, now) {
            true => self.at - now.as_micros(),
            false => 0,
        };
        let moved = Self {
            deficit: self.deficit.min(rate.most()),
            since: Instant {
                micros: self.since.micros.saturating_sub(back),
                ..self.since
            },
            at: self.at - back,
        };
        let towards_next = rate.between(moved.since, moved.at);
        if towards_next.is_none_or(|span| span >= rate.span(1)) {
            return Self::fresh(moved.deficit, moved.at);
        }
        moved
    }

    /// A bucket charged at `at`, whose next token is on its way from then.
    const fn fresh(deficit: u64, at: u64) -> Self {
        Self {
            deficit,
            since: Instant {
                micros: at,
                fraction: 0,
            },
            at,
        }
    }

    /// Returns true if the last charge is further ahead of `now` than a whole fill.
    fn is_ahead(self, rate: Rate, now: Timestamp) -> bool {
        let ahead = self.at.saturating_sub(now.as_micros());
        self.deficit > 0 && ahead > rate.micros(rate.full()).get()
    }

    /// The tokens missing at `now`, and the span until they have come. None come before the last
    /// charge.
    #[inline]
    fn missing(self, rate: Rate, now: Timestamp) -> Missing {
        let busy = rate.until(self.full_at(rate), now);
        Missing {
            hits: rate.hits_begun(busy).min(self.deficit),
            busy,
        }
    }

    /// The instant at which the last missing token comes.
    const fn full_at(self, rate: Rate) -> Instant {
        self.since.moved(rate, rate.span(self.deficit))
    }

    /// The bucket charged at `now` with `deficit` tokens missing, of which `missing` were before: the
    /// time towards the next token is kept.
    fn charged(self, rate: Rate, missing: u64, deficit: u64, now: Timestamp) -> Self {
        let refilled = rate.span(self.deficit - missing);
        Self {
            deficit,
            since: self.since.moved(rate, refilled),
            at: self.at.max(now.as_micros()),
        }
    }

    const fn write(self, words: &mut Words) {
        *words = [
            self.deficit,
            self.since.micros,
            self.since.fraction,
            self.at,
        ];
    }
}

pub(crate) fn test(rate: Rate, words: &Words, ask: Ask, now: Timestamp) -> Outcome {
    let missing = Bucket::of(rate, words, now).missing(rate, now);
    gcra::outcome(rate, missing, ask)
}

/// Charges `hits`, even if they do not fit: until `most` are missing, which is the burst unless the
/// bucket may go below zero.
#[inline]
pub(crate) fn charge(rate: Rate, most: u64, words: &mut Words, hits: i64, now: Timestamp) {
    if hits == 0 {
        return settle(rate, words, now);
    }
    let bucket = Bucket::of(rate, words, now);
    let missing = bucket.missing(rate, now).hits;
    let deficit = missing.saturating_add_signed(hits);
    let charged = if missing == 0 || deficit == 0 {
        // Full before, or after.
        Bucket::fresh(deficit.min(most), now.as_micros())
    } else if deficit <= most || hits < 0 {
        bucket.charged(rate, missing, deficit, now)
    } else if missing <= most {
        // Forced hits empty it, along with the fraction of the next token.
        Bucket::fresh(most, bucket.at.max(now.as_micros()))
    } else {
        // And leave one alone that is below that.
        bucket.charged(rate, missing, missing, now)
    };
    charged.write(words);
}

/// The part of `hits` that [`charge`] leaves out, as more than `most` would be missing.
pub(crate) fn cut(rate: Rate, most: u64, words: &Words, hits: i64, now: Timestamp) -> u64 {
    let missing = Bucket::of(rate, words, now).missing(rate, now).hits;
    let hits = u64::try_from(hits).unwrap_or(0);
    missing
        .saturating_add(hits)
        .saturating_sub(most.max(missing))
}

/// Stores the move of a bucket after the clock went back, and nothing else: all other states say as
/// much at any time as they do now.
fn settle(rate: Rate, words: &mut Words, now: Timestamp) {
    if is_ahead(rate, words, now) {
        Bucket::of(rate, words, now).write(words);
    }
}

/// Returns true if the last charge is further ahead of now than the bucket's time to fill.
pub(crate) fn is_ahead(rate: Rate, words: &Words, now: Timestamp) -> bool {
    Bucket::read(words).is_ahead(rate, now)
}

/// The bucket of the first rate, from now on under the second: its level stays, but for `tokens` that leave it and what is
/// above the second burst. The part of the next token that is there stays, too, but for less than a unit of the rate.
pub(crate) fn resize((from, to): (Rate, Rate), words: &mut Words, tokens: i64, now: Timestamp) {
    let bucket = Bucket::of(from, words, now);
    let missing = bucket.missing(from, now).hits;
    let deficit = i128::from(missing) + i128::from(to.burst()) - i128::from(from.burst());
    let deficit = u64::try_from(deficit + i128::from(tokens)).unwrap_or(0);
    let resized = match (deficit, missing) {
        (0, _) | (_, 0) => Bucket::fresh(deficit, now.as_micros()),
        _ => {
            let before = bucket.charged(from, missing, missing, now);
            let accrued = from.between(before.since, before.at).unwrap_or(0);
            Bucket {
                deficit,
                since: to.earlier(before.at, in_rate(accrued, (from, to))),
                at: before.at,
            }
        }
    };
    resized.write(words);
}

/// The time in which `to` accrues the part of a token that `from` does in `accrued`, in its units: rounded down, and less by
/// one, so that what doubles lose never admits more.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers from 0 to 2^53"
)]
fn in_rate(accrued: u64, (from, to): (Rate, Rate)) -> u64 {
    let part = accrued as f64 / from.span(1) as f64 * to.span(1) as f64;
    (part.floor() - 1.0).max(0.0) as u64
}

/// Lowers the burst by `less`, as of `end`: a bucket that was charged before then is missing so much less. What came since,
/// and what comes, comes at the lower rate.
pub(crate) const fn lower(less: u64, words: &mut Words, end: Timestamp) {
    if words[3] < end.as_micros() {
        words[0] = words[0].saturating_sub(less);
    }
}

pub(crate) fn expires_at(rate: Rate, words: &Words) -> Timestamp {
    let mut kept = Bucket::read(words);
    if kept.deficit > rate.burst() {
        kept.deficit = kept.deficit.min(rate.most());
    }
    let full = kept.full_at(rate);
    Timestamp::from_micros(full.micros.saturating_add(u64::from(full.fraction > 0)))
}

#[cfg(test)]
mod tests {
    use crate::rate::Rate;
    use crate::{
        Algorithm, Ask, Limit, LimitSpec, Micros, Moment, Outcome, State, StateRef, Timestamp,
        Verdict,
    };

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
    fn a_lowered_burst_denies_until_its_rate_has_paid_and_forgets_nothing() {
        let (high, low) = (limit(100), limit(2));
        let mut state = State::new(high.shape());
        step(&high, &mut state, 100, 0);
        let before = state.clone();
        // 95 are missing: 94 of them have to come back until one of two is there.
        let denied = step(&low, &mut state, 1, 500_000);
        assert_eq!(denied.retry_after, Micros::from_millis(9_400));
        assert_eq!(step(&low, &mut state, 0, 500_000).verdict, Verdict::Later);
        assert_eq!(step(&low, &mut state, 1, 9_899_999).verdict, Verdict::Later);
        assert_eq!(state, before);
        assert_eq!(step(&high, &mut state, 0, 500_000).remaining, 5);
        assert_eq!(step(&low, &mut state, 1, 9_900_000).verdict, Verdict::Fits);
        assert_eq!(step(&high, &mut state, 0, 9_900_000).remaining, 98);
    }

    #[test]
    fn two_rates_admit_no_more_than_the_larger_burst() {
        let spec = LimitSpec::new(Algorithm::TokenBucket, 60, Micros::from_secs(86_400));
        let [fast, slow] = [60, 20].map(|quota| {
            let burst = Some(60);
            Limit::try_new(LimitSpec {
                quota,
                burst,
                ..spec
            })
            .expect("a valid limit")
        });
        let mut state = State::new(fast.shape());
        assert!(step(&fast, &mut state, 60, 0).fits());
        let denied = step(&slow, &mut state, 1, 0);
        assert_eq!(denied.retry_after, Micros::from_secs(86_400 / 20));
        // The next token is the slower rate's if only that is asked, and the faster one's else.
        assert!(!step(&slow, &mut state, 1, 86_400_000_000 / 60).fits());
        assert!(step(&fast, &mut state, 1, 86_400_000_000 / 60).fits());
    }

    /// A bucket whose last charge is ahead by just its time to fill is not moved: another node's clock may be ahead.
    #[test]
    fn a_bucket_that_is_ahead_by_its_time_to_fill_stays() {
        let limit = limit(10);
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 10, 2_000_000);
        let at = |micros: u64| Timestamp::from_micros(1_000_000_000 + micros);
        assert!(!limit.is_ahead(state.as_ref(), at(2_000_000)));
        assert!(!limit.is_ahead(state.as_ref(), at(1_000_000)));
        assert!(limit.is_ahead(state.as_ref(), at(999_999)));
        let denied = step(&limit, &mut state, 1, 1_000_000);
        assert_eq!(denied.retry_after, Micros::from_millis(1_100));
    }

    /// Half a token was there before.
    #[test]
    fn a_clock_that_goes_back_keeps_the_part_of_the_next_token() {
        let limit = limit(10);
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 5, 5_000_000);
        step(&limit, &mut state, 5, 5_050_000);
        let denied = step(&limit, &mut state, 1, 0);
        assert_eq!(denied.retry_after, Micros::from_millis(50));
    }

    fn rate() -> Rate {
        Rate::try_new(10, Micros::from_secs(1), Some(10)).expect("a valid rate")
    }

    /// A full bucket is on its way to no token.
    #[test]
    fn a_full_bucket_that_is_resized_has_no_part_of_the_next_token() {
        let (limit, now) = (limit(10), Timestamp::from_micros(1_000_150_000));
        let mut words = [1, 1_000_000_000, 0, 1_000_000_000];
        super::resize((rate(), rate()), &mut words, 5, now);
        assert_eq!(words, [5, now.as_micros(), 0, now.as_micros()]);
        let later = limit.test(StateRef::Words(&words), Ask::hits(6), &Moment::at(now));
        assert_eq!(later.retry_after, Micros::from_millis(100));
        let mut words = [1, 1_000_100_000, 0, 1_000_100_000];
        super::resize((rate(), rate()), &mut words, -5, now);
        assert_eq!(words, [0, now.as_micros(), 0, now.as_micros()]);
    }

    #[test]
    fn a_bucket_that_is_charged_at_the_end_is_not_lowered() {
        for (charged_at, left) in [(999, 3), (1_000, 5), (1_001, 5)] {
            let mut words = [5, charged_at, 0, charged_at];
            super::lower(2, &mut words, Timestamp::from_micros(1_000));
            assert_eq!(words[0], left, "{charged_at}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_keeps_what_is_missing() {
        let limit = limit(3);
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 2, 0);
        let back = |state: &mut State, hits, micros: u64| {
            let at = Moment::at(Timestamp::from_micros(1_000_000_000 - micros));
            limit.step(state, hits, &at)
        };
        // By no more than the time to fill: the next token comes when it would have.
        let denied = back(&mut state, 2, 300_000);
        assert_eq!(denied.retry_after, Micros::from_millis(400));
        assert_eq!(step(&limit, &mut state, 2, 100_000).verdict, Verdict::Fits);
        // By more: as if it had been charged now, which the denial stores.
        let denied = back(&mut state, 1, 1_000_000);
        assert_eq!(denied.retry_after, Micros::from_millis(100));
        assert_eq!(back(&mut state, 1, 900_001).verdict, Verdict::Later);
        assert_eq!(back(&mut state, 1, 900_000).verdict, Verdict::Fits);
    }

    #[test]
    fn a_raised_burst_is_there_at_once_and_usage_stays() {
        let (low, high) = (limit(2), limit(5));
        let mut state = State::new(low.shape());
        step(&low, &mut state, 2, 0);
        assert_eq!(step(&high, &mut state, 0, 0).remaining, 3);
    }
}
