//! `leaky_bucket`: hits leave one every T; those that find the queue full are refused, the
//! others are told how long to wait for their turn.
//!
//! ```text
//!          now    +T     +2T    +3T            burst 4: the one leaving now and three in the queue
//!  ---------|------|------|------|---> time
//!           1      2      3      4      5 refused until the first has left
//! ```
//!
//! The leaky bucket as a queue (Tanenbaum, Computer Networks; NGINX `limit_req` with a
//! `burst`). It is the [`gcra`](crate::gcra) with a delay: the same state, the same envelope on
//! admissions, and departures never closer than T, rounded up by at most 0.1 %.
//!
//! State: word 0 the next free slot in microseconds, word 1 its fraction in 2^-32 of one.
//! A refund frees slots at the tail of the queue that nobody has left from yet.

use crate::limit::Waiting;
use crate::rate::Rate;
use crate::{Ask, Micros, Outcome, Timestamp, Verdict, Words, gcra};

pub(crate) fn test(
    rate: Rate,
    waiting: Waiting,
    words: &Words,
    ask: Ask,
    now: Timestamp,
) -> Outcome {
    let mut outcome = gcra::test(rate, words, ask, now);
    if !outcome.fits() || ask.hits <= 0 {
        return outcome;
    }
    let delay = rate.micros(rate.until(gcra::tat(words), now) + rate.span(ask.taken));
    if waiting == Waiting::Delays || delay == Micros::ZERO {
        outcome.delay = delay;
        return outcome;
    }
    let free = gcra::test(rate, words, Ask { hits: 0, ..ask }, now);
    Outcome { verdict: Verdict::Later, retry_after: delay, ..free }
}
