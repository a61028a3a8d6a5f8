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
//! is the [`gcra`] with a delay: the same test, the same envelope on admissions,
//! and departures never closer than T, rounded up by at most 0.1 %. A request of several hits
//! leaves whole, when the first of them may; those after it wait for all of them. Callers that
//! can wait for so long and no longer are refused a turn that is further away, and take none.
//!
//! State: word 0 the next free slot in microseconds (TAT), word 1 its fraction in 2^-32 of one, word 2
//! the time of the last charge. A refund frees slots at the tail of the queue that have not been used
//! yet. If the caller accepts only a limited, non-zero delay, a refund frees nothing of a queue longer
//! than that: the caller names the end of its slot, and that slot is given back or none, since other
//! requests may have turns behind it.
//!
//! **Two limits on one counter.** Each slot is as long as the T of the limit that took it, and stays
//! taken: a queue longer than a lowered burst denies, and tells the wait until it is shorter. So
//! departures keep the distance that the limits set, and no caller waits longer than the longer queue.
//!
//! **Time that goes back** is told as for the [`token_bucket`](crate::token_bucket), by the time of the
//! last charge. By no more than a whole queue lasts, the slots stay where they are; by more, the queue
//! moves to now, and the next charge stores it so, one of 0 hits too. A charge of 0 hits stores nothing
//! else.

use crate::gcra::{self, Missing};
use crate::rate::{Instant, Rate};
use crate::{Ask, Micros, Outcome, Timestamp, Verdict, Words};

/// The queue as `rate` reads it at some time.
#[derive(Clone, Copy)]
struct Queue {
    /// The span until the next free slot, in units of the rate.
    busy: u64,
    /// The part of it until the last charge, if the clock went back from that.
    ahead: u64,
}

impl Queue {
    #[inline]
    fn of(rate: Rate, words: &Words, now: Timestamp) -> Self {
        let [micros, fraction, at, _] = *words;
        if at > now.as_micros() {
            return Self::from_later(rate, words, now);
        }
        Self {
            busy: rate.until(Instant { micros, fraction }, now),
            ahead: 0,
        }
    }

    /// The result of [`Self::of`] after the clock went back.
    #[cold]
    fn from_later(rate: Rate, words: &Words, now: Timestamp) -> Self {
        let [micros, fraction, at, _] = *words;
        // Moved to now, or left where it is.
        let (back, ahead) = match is_ahead(rate, words, now) {
            true => (at - now.as_micros(), 0),
            false => (0, at),
        };
        let tat = Instant {
            micros: micros.saturating_sub(back),
            fraction,
        };
        let charged = Instant {
            micros: ahead,
            fraction: 0,
        };
        Self {
            busy: rate.until(tat, now),
            ahead: rate.until(charged, now),
        }
    }

    /// The time until the next free slot, rounded up.
    fn turn(self, rate: Rate) -> Micros {
        rate.micros(self.busy)
    }

    fn missing(self, rate: Rate) -> Missing {
        Missing {
            hits: rate.hits_begun(self.busy.saturating_sub(self.ahead)),
            busy: self.busy,
        }
    }

    fn write(self, rate: Rate, words: &mut Words, now: Timestamp) {
        let tat = rate.instant(now, self.busy);
        let at = match self.ahead {
            0 => now.as_micros(),
            ahead => rate.instant(now, ahead).micros,
        };
        *words = [tat.micros, tat.fraction, at, 0];
    }
}

pub(crate) fn test(rate: Rate, most: Micros, words: &Words, ask: Ask, now: Timestamp) -> Outcome {
    let queue = Queue::of(rate, words, now);
    let turn = queue.turn(rate);
    if ask.hits < 0 && !is_tail(most, turn) {
        return Outcome {
            verdict: Verdict::Fits,
            retry_after: Micros::ZERO,
            ..look(rate, most, queue, Ask { hits: 0, ..ask })
        };
    }
    let outcome = look(rate, most, queue, ask);
    if ask.hits < 0 || outcome.verdict == Verdict::Never {
        return outcome;
    }
    if turn <= most {
        let is_held = outcome.fits() && ask.hits > 0;
        return Outcome {
            delay: if is_held { turn } else { outcome.delay },
            ..outcome
        };
    }
    // After this wait, the turn is as near as the caller accepts; there must be room as well.
    let retry_after = Micros::new(turn.get() - most.get()).max(outcome.retry_after);
    if ask.hits == 0 {
        return Outcome {
            retry_after,
            ..outcome
        };
    }
    Outcome {
        verdict: Verdict::Later,
        retry_after,
        reset_after: retry_after,
        ..gcra::outcome(rate, queue.missing(rate), Ask { hits: 0, ..ask })
    }
}

/// The meter's answer. Its reset is for a caller that accepts a delay of `most`: a free slot is of
/// use only once its turn is that near.
fn look(rate: Rate, most: Micros, queue: Queue, ask: Ask) -> Outcome {
    let outcome = gcra::outcome(rate, queue.missing(rate), ask);
    if outcome.reset_after.is_zero() {
        return outcome;
    }
    // The queue is empty when everything has come back.
    let turn = Micros::new(outcome.full_after.get().saturating_sub(most.get()));
    Outcome {
        reset_after: outcome.reset_after.max(turn),
        ..outcome
    }
}

pub(crate) fn charge(rate: Rate, most: Micros, words: &mut Words, hits: i64, now: Timestamp) {
    let queue = Queue::of(rate, words, now);
    if hits == 0 && !is_ahead(rate, words, now) {
        return;
    }
    // From the last charge, or from now if that is later.
    let taken = queue.busy.saturating_sub(queue.ahead);
    let taken = match hits {
        ..0 if !is_tail(most, queue.turn(rate)) => taken,
        ..0 => {
            let most = rate.hits_begun(taken);
            taken.saturating_sub(rate.span(hits.unsigned_abs().min(most)))
        }
        // Forced hits fill the queue, and leave one alone that is longer.
        _ => {
            let span = rate.span(hits.unsigned_abs().min(rate.burst()));
            taken.max((taken + span).min(rate.full()))
        }
    };
    let busy = taken.saturating_add(queue.ahead);
    Queue { busy, ..queue }.write(rate, words, now);
}

/// Returns true if the slots of a refund are the last of the queue, which ends after `turn`.
fn is_tail(most: Micros, turn: Micros) -> bool {
    most.is_zero() || turn <= most
}

/// Returns true if the last charge is further ahead of now than a whole queue lasts.
pub(crate) fn is_ahead(rate: Rate, words: &Words, now: Timestamp) -> bool {
    words[2].saturating_sub(now.as_micros()) > rate.micros(rate.full()).get()
}

pub(crate) fn expires_at(words: &Words) -> Timestamp {
    Timestamp::from_micros(words[0].saturating_add(u64::from(words[1] > 0)))
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Limit, LimitSpec, Micros, Moment, Outcome, State, Timestamp, Verdict};

    /// A limit where one hit leaves every 100 ms and at most three are queued.
    fn limit() -> Limit {
        let spec = LimitSpec::new(Algorithm::LeakyBucket, 10, Micros::from_secs(1));
        Limit::try_new(LimitSpec {
            burst: Some(3),
            ..spec
        })
        .expect("a valid limit")
    }

    fn step(limit: &Limit, state: &mut State, hits: i64, micros: u64) -> Outcome {
        let at = Moment::at(Timestamp::from_micros(1_000_000_000 + micros));
        limit.step(state, hits, &at)
    }

    #[test]
    fn hits_leave_one_by_one() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        let delays = [0, 1, 2].map(|_| step(&limit, &mut state, 1, 0).delay);
        assert_eq!(delays, [0, 100, 200].map(Micros::from_millis));
        let full = step(&limit, &mut state, 1, 99_999);
        assert_eq!(
            (full.verdict, full.retry_after),
            (Verdict::Later, Micros::new(1))
        );
        let queued = step(&limit, &mut state, 1, 100_000);
        assert_eq!(
            (queued.verdict, queued.delay),
            (Verdict::Fits, Micros::from_millis(200))
        );
    }

    #[test]
    fn several_hits_leave_whole_and_those_after_them_wait_for_all() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        assert_eq!(step(&limit, &mut state, 2, 0).delay, Micros::ZERO);
        assert_eq!(
            step(&limit, &mut state, 1, 0).delay,
            Micros::from_millis(200)
        );
    }

    #[test]
    fn a_caller_that_cannot_wait_so_long_takes_no_turn() {
        let limit = limit().with_delay_max(Micros::from_millis(150));
        let mut state = State::new(limit.shape());
        let delays = [0, 1].map(|_| step(&limit, &mut state, 1, 0).delay);
        assert_eq!(delays, [0, 100].map(Micros::from_millis));
        for _ in 0..3 {
            let denied = step(&limit, &mut state, 1, 0);
            assert_eq!(
                (denied.verdict, denied.retry_after),
                (Verdict::Later, Micros::from_millis(50))
            );
        }
        assert_eq!(step(&limit, &mut state, 1, 49_999).verdict, Verdict::Later);
        assert_eq!(
            step(&limit, &mut state, 1, 50_000).delay,
            Micros::from_millis(150)
        );
    }

    #[test]
    fn a_slot_is_given_back_unless_others_have_turns_behind_it() {
        let limit = limit();
        let ends = |millis| limit.with_delay_max(Micros::from_millis(millis));
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 1, 0);
        assert_eq!(
            step(&limit, &mut state, 1, 0).delay,
            Micros::from_millis(100)
        );
        assert_eq!(
            step(&limit, &mut state, 1, 0).delay,
            Micros::from_millis(200)
        );
        // At 40 ms the slot in the middle ends in 160 ms, and the last one in 260.
        assert_eq!(step(&ends(160), &mut state, -1, 40_000).remaining, 0);
        assert_eq!(step(&ends(260), &mut state, -1, 40_000).remaining, 1);
        assert_eq!(step(&ends(160), &mut state, -1, 40_000).remaining, 2);
        let next = step(&limit, &mut state, 1, 40_000);
        assert_eq!(next.delay, Micros::from_millis(60));
    }

    #[test]
    fn a_queue_stays_if_the_clock_goes_back_by_no_more_than_it_lasts() {
        let limit = limit();
        for (charged, delay) in [(300_000, 400), (300_001, 100)] {
            let mut state = State::new(limit.shape());
            step(&limit, &mut state, 1, charged);
            let next = step(&limit, &mut state, 1, 0);
            assert_eq!(next.delay, Micros::from_millis(delay), "{charged}");
        }
    }

    #[test]
    fn a_queue_expires_when_its_next_slot_is_free() {
        let limit = limit();
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 2, 0);
        let at = Moment::at(Timestamp::from_micros(1_000_000_000));
        let empty = limit.expires_at(state.as_ref(), &at).since(at.now);
        assert_eq!(empty, Micros::from_millis(200));
    }

    #[test]
    fn a_caller_that_cannot_wait_gives_back_from_any_queue() {
        let limit = limit().without_delay();
        let mut state = State::new(limit.shape());
        step(&limit, &mut state, 3, 0);
        let back = step(&limit, &mut state, -1, 0);
        assert_eq!((back.verdict, back.remaining), (Verdict::Fits, 1));
    }

    #[test]
    fn a_refund_that_frees_nothing_fits_and_tells_no_wait() {
        let long = limit();
        let spec = LimitSpec::new(Algorithm::LeakyBucket, 10, Micros::from_secs(1));
        let burst = Some(1);
        let short = Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit");
        let mut state = State::new(long.shape());
        step(&long, &mut state, 3, 0);
        // The queue is full for one limit, and longer than the other's.
        for limit in [long, short] {
            let limit = limit.with_delay_max(Micros::from_millis(50));
            assert!(!step(&limit, &mut state, 1, 0).fits());
            let kept = step(&limit, &mut state, -1, 0);
            assert_eq!((kept.verdict, kept.remaining), (Verdict::Fits, 0));
            assert_eq!(kept.retry_after, Micros::ZERO);
        }
    }

    #[test]
    fn a_wait_as_long_as_the_queue_bounds_nothing() {
        let all = limit();
        assert_eq!(all.with_delay_max(Micros::from_millis(300)), all);
        assert_eq!(all.delay_max(), Micros::MAX);
        let shorter = all.with_delay_max(Micros::from_millis(299));
        assert_eq!(shorter.delay_max(), Micros::from_millis(299));
    }

    #[test]
    fn a_caller_that_cannot_wait_is_denied_until_its_turn() {
        let limit = limit().without_delay();
        let mut state = State::new(limit.shape());
        assert_eq!(step(&limit, &mut state, 2, 0).verdict, Verdict::Fits);
        let denied = step(&limit, &mut state, 1, 199_999);
        assert_eq!(
            (denied.verdict, denied.retry_after),
            (Verdict::Later, Micros::new(1))
        );
        assert_eq!(
            step(&limit, &mut state, 0, 199_999).retry_after,
            Micros::new(1)
        );
        assert_eq!(step(&limit, &mut state, 3, 200_000).verdict, Verdict::Fits);
        assert_eq!(step(&limit, &mut state, 4, 200_000).verdict, Verdict::Never);
    }
}
