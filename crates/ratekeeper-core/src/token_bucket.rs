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
//! Shenker, Partridge and Guerin, RFC 2212 and RFC 2697 ("token bucket"); the form in Stripe's
//! <https://stripe.com/blog/rate-limiters>. At most burst + limit * w / window hits pass in any
//! span w; T is rounded up by at most 0.1 %.
//!
//! State: word 0 the deficit in whole tokens, words 1 and 2 the time up to which it has been
//! refilled (microseconds, 2^-32 of one). The deficit is kept rather than the tokens, so that
//! a changed burst takes effect at once; one above a lowered burst is clamped to it.

use crate::rate::{Instant, Rate};
use crate::step::Finding;
use crate::{Ask, Micros, Outcome, Timestamp, Words};

/// A deficit, and since when the next token is on its way.
#[derive(Clone, Copy)]
struct Bucket {
    deficit: u64,
    since: Instant,
}

impl Bucket {
    /// The bucket at `now`: whole tokens refilled, the time towards the next one kept.
    fn at(rate: Rate, words: &Words, now: Timestamp) -> Self {
        let fresh = Instant {
            micros: now.as_micros(),
            fraction: 0,
        };
        let since = Instant {
            micros: words[1],
            fraction: words[2],
        };
        if words[0] > rate.burst() {
            return Self {
                deficit: rate.burst(),
                since: fresh,
            };
        }
        let Self { deficit, since } = Self {
            deficit: words[0],
            since,
        };
        // From here to the moment at which the bucket is full again.
        let left = rate.until(since.moved(rate, rate.span(deficit)), now);
        if left == 0 {
            return Self {
                deficit: 0,
                since: fresh,
            };
        }
        let refilled = deficit.saturating_sub(left.div_ceil(rate.span(1)));
        Self {
            deficit: deficit - refilled,
            since: since.moved(rate, rate.span(refilled)),
        }
    }

    /// From `now` until `tokens` (at most the deficit) have come in, in units of `rate`.
    fn until(self, rate: Rate, tokens: u64, now: Timestamp) -> u64 {
        rate.until(self.since.moved(rate, rate.span(tokens)), now)
    }
}

pub(crate) fn test(rate: Rate, words: &Words, ask: Ask, now: Timestamp) -> Outcome {
    let mut bucket = Bucket::at(rate, words, now);
    bucket.deficit = bucket.deficit.saturating_sub(ask.refund());
    let room = rate.burst() - bucket.deficit;
    let (wanted, probe) = (ask.wanted(), ask.probe());
    let wait = if probe <= room || probe > rate.burst() {
        Micros::ZERO
    } else {
        rate.micros(bucket.until(rate, probe - room, now))
    };
    let spent = if wanted <= room { wanted } else { 0 };
    let deficit = bucket.deficit + spent;
    let full = bucket.until(rate, bucket.deficit, now);
    let reset_after = match (bucket.deficit, deficit) {
        (_, 0) => Micros::ZERO,
        (0, deficit) => rate.micros(rate.span(deficit)),
        _ => rate.micros(full + rate.span(spent)),
    };
    Finding {
        capacity: rate.burst(),
        room,
        reset_after,
        wait,
    }
    .outcome(ask)
}

pub(crate) fn charge(rate: Rate, words: &mut Words, hits: i64, now: Timestamp) {
    let mut bucket = Bucket::at(rate, words, now);
    if bucket.deficit == 0 {
        bucket.since = Instant {
            micros: now.as_micros(),
            fraction: 0,
        };
    }
    bucket.deficit = bucket.deficit.saturating_add_signed(hits).min(rate.burst());
    *words = [
        bucket.deficit,
        bucket.since.micros,
        bucket.since.fraction,
        0,
    ];
}

pub(crate) fn expires_at(rate: Rate, words: &Words) -> Timestamp {
    let since = Instant {
        micros: words[1],
        fraction: words[2],
    };
    let full = since.moved(rate, rate.span(words[0].min(rate.burst())));
    Timestamp::from_micros(full.micros.saturating_add(u64::from(full.fraction > 0)))
}
