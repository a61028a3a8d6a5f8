//! From `expires_at` on a counter answers as an unused one, now and after any later step, so a
//! store may forget it. And it does expire: nothing is kept for ever.

use ratekeeper_core::{Algorithm, Arithmetic, Ask, Limit, Micros, Moment, State, Timestamp};
use ratekeeper_testkit::model::history::History;

fn assert_same(limit: &Limit, old: &State, now: Timestamp, hits: i64) {
    let fresh = State::new(limit.shape());
    let capacity = limit.capacity().min(10_000) as i64;
    for ask in [-1, 0, 1, capacity, capacity + 1, hits].map(Ask::hits) {
        let answer = limit.test(old.as_ref(), ask, &Moment::at(now));
        let expected = limit.test(fresh.as_ref(), ask, &Moment::at(now));
        assert_eq!(answer, expected, "{ask:?} at {now:?} of {old:?}");
    }
    let (mut old, mut fresh) = (old.clone(), fresh);
    let part = Micros::new(limit.window().get() / 7);
    let mut now = now;
    for hits in [hits, 1, 1, -1, capacity / 2, capacity, 1] {
        let answer = limit.step(&mut old, hits, &Moment::at(now));
        let expected = limit.step(&mut fresh, hits, &Moment::at(now));
        assert_eq!(answer, expected, "{hits} at {now:?} of {old:?}");
        now = now.after(part);
    }
}

/// The longest time for which a counter is kept after a charge.
fn longest(limit: &Limit) -> u64 {
    let window = limit.window().get();
    match limit.algorithm() {
        Algorithm::SlidingWindow if limit.sub_windows() == 0 => {
            let Arithmetic::EqualCount(groups) = limit.arithmetic() else {
                panic!("a sliding window without sub-windows");
            };
            window + groups.tick.get()
        }
        Algorithm::SlidingWindow => {
            let count = u64::from(limit.sub_windows());
            window.div_ceil(count) * (count + 1)
        }
        algorithm if algorithm.has_burst() => {
            // T is longer by at most a thousandth.
            let full = u128::from(window) * u128::from(limit.capacity()) * 1_001;
            (full / u128::from(limit.quota().max(1)) / 1_000) as u64 + 1
        }
        _ => window,
    }
}

fn check(history: &History) {
    let limit = history.limit();
    let mut state = State::new(limit.shape());
    history.play(|now, hits| {
        let outcome = limit.step(&mut state, hits, &Moment::at(now));
        let expires = limit.expires_at(state.as_ref(), &Moment::at(now));
        assert!(expires.since(now).get() <= longest(&limit), "{expires:?}");
        let from = expires.max(now);
        assert_same(&limit, &state, from, hits);
        assert_same(&limit, &state, from.after(Micros::new(1)), hits);
        assert_same(&limit, &state, from.after(limit.window()), hits);
        outcome
    });
}

histories_hold! { check }

histories_hold! { check: concurrency Concurrency }
