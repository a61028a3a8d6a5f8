//! `leaky_bucket`: hits leave one every T; those that find the queue full are refused, the
//! others are told how long to wait for their turn.
//!
//! ```text
//!          now    +T     +2T    +3T            burst 4: the one leaving now and three in the queue
//!  ---------|------|------|------|---> time
//!           1      2      3      4      5 refused until the first has left
//! ```
//!
//! The leaky bucket as a queue (J. Turner, "New Directions in Communications", 1986, has the
//! meter; Tanenbaum, Computer Networks, the queue; NGINX `limit_req` with a `burst` is one). It
//! is the [`gcra`](crate::gcra) with a delay: the same state, the same envelope on admissions,
//! and departures never closer than T, rounded up by at most 0.1 %. A request of several hits
//! leaves whole, when the first of them may; those after it wait for all of them.
//!
//! State: word 0 the next free slot in microseconds, word 1 its fraction in 2^-32 of one.
//! A refund frees slots at the tail of the queue that nobody has left from yet.

use crate::limit::Waiting;
use crate::rate::Rate;
use crate::{Ask, Outcome, Timestamp, Verdict, Words, gcra};

pub(crate) fn test(
    rate: Rate,
    waiting: Waiting,
    words: &Words,
    ask: Ask,
    now: Timestamp,
) -> Outcome {
    let outcome = gcra::test(rate, words, ask, now);
    let turn = rate.micros(rate.until(gcra::tat(words), now));
    if turn.is_zero() || ask.hits < 0 || outcome.verdict == Verdict::Never {
        return outcome;
    }
    match waiting {
        Waiting::Delays if outcome.fits() && ask.hits > 0 => Outcome {
            delay: turn,
            ..outcome
        },
        Waiting::Delays => outcome,
        // Whatever fits a bucket fits an empty one, so the wait is the same for all.
        Waiting::Refuses if ask.hits > 0 => Outcome {
            verdict: Verdict::Later,
            retry_after: turn,
            ..gcra::test(rate, words, Ask { hits: 0, ..ask }, now)
        },
        Waiting::Refuses => Outcome {
            retry_after: turn.max(outcome.retry_after),
            ..outcome
        },
    }
}
