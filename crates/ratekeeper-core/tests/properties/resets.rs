//! `reset_after` is exactly when more is left, and `full_after` when the limit is unused: at every
//! tick before they are not yet, at it they are. Concurrency can only hint.

use ratekeeper_core::{Ask, Limit, Micros, Moment, Outcome, State, Timestamp, Verdict};
use ratekeeper_testkit::model::history::History;

use crate::waiting::ticks_before;

/// A counter at a given time.
struct Counter<'a> {
    limit: &'a Limit,
    state: &'a State,
    now: Timestamp,
}

impl Counter<'_> {
    fn answer(&self, hits: i64, wait: Micros) -> Outcome {
        let at = Moment::at(self.now.after(wait));
        self.limit.test(self.state.as_ref(), Ask::hits(hits), &at)
    }

    /// Checks the answer given when the state became what it is.
    fn assert_told(&self, told: &Outcome) {
        let capacity = self.limit.capacity();
        if told.verdict == Verdict::Later {
            assert_eq!(told.reset_after, told.retry_after);
        } else if told.remaining == capacity {
            assert_eq!(told.reset_after, Micros::ZERO);
        } else {
            let more = told.remaining as i64 + 1;
            for tick in ticks_before(told.reset_after) {
                let early = self.answer(more, tick);
                assert!(!early.fits(), "{tick:?} of {:?}", told.reset_after);
            }
            let then = self.answer(more, told.reset_after);
            assert!(then.fits(), "{more} not after {:?}", told.reset_after);
        }
        for tick in ticks_before(told.full_after) {
            let early = self.answer(0, tick).remaining;
            assert!(early < capacity, "{tick:?} of {:?}", told.full_after);
        }
        assert_eq!(self.answer(0, told.full_after).remaining, capacity);
    }
}

fn check(history: &History) {
    check_limit(history, &history.limit());
}

fn check_without_delay(history: &History) {
    check_limit(history, &history.limit().without_delay());
}

fn check_with_some_delay(history: &History) {
    let limit = history.limit();
    let most = Micros::new(limit.window().get() / 3);
    check_limit(history, &limit.with_delay_max(most));
}

fn check_limit(history: &History, limit: &Limit) {
    let mut state = State::new(limit.shape());
    history.play(|now, hits| {
        let outcome = limit.step(&mut state, hits, &Moment::at(now));
        let counter = Counter {
            limit,
            state: &state,
            now,
        };
        counter.assert_told(&outcome);
        counter.assert_told(&counter.answer(0, Micros::ZERO));
        outcome
    });
}

/// Hits counted without fitting (`count_denied`) come back as a peek reports.
fn check_counting_denied(history: &History) {
    let limit = history.limit();
    let mut state = State::new(limit.shape());
    history.play(|now, hits| {
        let outcome = limit.test(state.as_ref(), Ask::hits(hits), &Moment::at(now));
        crate::charge(&limit, &mut state, hits.clamp(-1_000_000, 1_000_000), now);
        let counter = Counter {
            limit: &limit,
            state: &state,
            now,
        };
        counter.assert_told(&counter.answer(0, Micros::ZERO));
        outcome
    });
}

fn check_both(history: &History) {
    check(history);
    check_counting_denied(history);
}

histories_hold! { check_both }

histories_hold! { check_without_delay: leaky_bucket_that_refuses LeakyBucket }

histories_hold! { check_with_some_delay: leaky_bucket_that_waits_for_so_long LeakyBucket }
