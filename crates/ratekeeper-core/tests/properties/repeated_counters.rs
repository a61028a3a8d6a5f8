//! A counter that a request names twice answers the second time as if the first take had been
//! charged. Only the retry time covers all of the request's hits together.

use ratekeeper_core::{Ask, Limit, Moment, State, Timestamp, Verdict};
use ratekeeper_testkit::model::history::History;

fn check_ask(limit: &Limit, state: &State, ask: Ask, now: Timestamp) {
    let at = Moment::at(now);
    let answer = limit.test(state.as_ref(), ask, &at);
    let mut charged = state.clone();
    crate::charge(limit, &mut charged, ask.taken as i64, now);
    let expected = limit.test(charged.as_ref(), Ask::hits(ask.hits), &at);
    assert_eq!(answer.fits(), expected.fits(), "{ask:?}");
    assert_eq!(answer.remaining, expected.remaining, "{ask:?}");
    assert_eq!(answer.full_after, expected.full_after, "{ask:?}");
    let look = || limit.test(charged.as_ref(), Ask::hits(0), &at);
    let more = match answer.verdict {
        Verdict::Later => answer.retry_after,
        Verdict::Fits => expected.reset_after,
        Verdict::Never => look().reset_after,
    };
    assert_eq!(answer.reset_after, more, "{ask:?}");
    if ask.hits > 0 {
        let together = ask.taken as i64 + ask.hits;
        let together = limit.test(state.as_ref(), Ask::hits(together), &at);
        assert_eq!(answer.verdict, together.verdict, "{ask:?}");
        assert_eq!(answer.retry_after, together.retry_after, "{ask:?}");
        assert_eq!(answer.delay, together.delay, "{ask:?}");
        let never = ask.wanted() > limit.capacity();
        assert_eq!(answer.verdict == Verdict::Never, never);
    }
}

trait Wanted {
    fn wanted(&self) -> u64;
}

impl Wanted for Ask {
    fn wanted(&self) -> u64 {
        self.taken + self.hits.unsigned_abs()
    }
}

fn check(history: &History) {
    check_limit(history, &history.limit());
}

fn check_limit(history: &History, limit: &Limit) {
    let mut state = State::new(limit.shape());
    history.play(|now, hits| {
        let room = limit.test(state.as_ref(), Ask::hits(0), &Moment::at(now));
        let room = room.remaining.min(1_000);
        for taken in [0, 1, room / 2, room] {
            for hits in [-2, -1, 0, 1, 2, (room - taken.min(room)) as i64, hits] {
                // A request that may not wait takes nothing, so there is nothing to repeat.
                let first = limit.test(state.as_ref(), Ask::hits(taken as i64), &Moment::at(now));
                if taken <= room && first.fits() {
                    check_ask(limit, &state, Ask { taken, hits }, now);
                }
            }
        }
        limit.step(&mut state, hits, &Moment::at(now))
    });
}

histories_hold! { check }

histories_hold! { check: concurrency Concurrency }
