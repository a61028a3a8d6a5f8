//! n hits at once are n hits one by one: they pass together exactly if each of them passes, and
//! leave the same state behind.

use ratekeeper_core::{Ask, Moment, State};
use ratekeeper_testkit::model::history::History;

/// The most hits to try one by one.
const MOST: u64 = 40;

fn check(history: &History) {
    let limit = history.limit();
    let mut state = State::new(limit.shape());
    history.play(|now, hits| {
        let at = Moment::at(now);
        let room = limit.test(state.as_ref(), Ask::hits(0), &at).remaining;
        let n = room.min(MOST);
        let mut together = state.clone();
        let mut apart = state.clone();
        let at_once = limit.step(&mut together, n as i64, &at);
        assert!(at_once.fits());
        for taken in 1..=n {
            let one = limit.step(&mut apart, 1, &at);
            assert!(one.fits());
            assert_eq!(one.remaining, room - taken);
        }
        if n > 0 {
            assert_eq!(together, apart);
        }
        if room <= MOST {
            assert!(!limit.step(&mut apart, 1, &at).fits());
        }
        limit.step(&mut state, hits, &at)
    });
}

histories_hold! { check }

histories_hold! { check: concurrency Concurrency }
