//! `gcra`: the generic cell rate algorithm. With T the time one hit takes and B the burst,
//! new = max(now, TAT) + n * T is allowed iff new - now <= B * T.
//!
//! ```text
//!          now            TAT          now + B*T
//!  ---------|==============|--------------|------> time
//!            already taken    room for n*T
//! ```
//!
//! ITU-T I.371 (the virtual scheduling algorithm), as Brandur Leach's throttled made it
//! popular for APIs: <https://brandur.org/rate-limiting>. Admits at most
//! burst + limit * w / window hits in any span w; exact against that definition but for T,
//! which is rounded up by at most 0.1 %.
//!
//! State: word 0 the theoretical arrival time (TAT) in microseconds, word 1 its fraction in
//! units of 2^-32 microseconds, 0 for every rate up to a thousand a second. On every read
//! TAT <= now + B * T, so that a limit lowered in use does not punish for longer than its
//! own burst takes.

use crate::rate::{Instant, Rate};
use crate::step::Finding;
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
    let reset_after = rate.micros(busy + rate.span(ask.spent(room)));
    Finding {
        capacity: rate.burst(),
        room,
        reset_after,
    }
    .outcome(ask, |hits| {
        rate.micros(busy + rate.span(hits) - rate.full())
    })
}

/// Refunds larger than the bucket fill it, and no more.
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
