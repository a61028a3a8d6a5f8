//! Posts: hits that were admitted while the store did not answer, and that it counts afterwards.
//!
//! A store to which nothing is owed takes none, and passes.

use ratekeeper_core::{Algorithm, Limit, Micros};
use ratekeeper_store::{Charge, Post, Step, Store};

use super::{NOW, every_budget, every_rate, hourly, name, one, remaining, taking, wait};

/// Posts the hits of `step`, admitted so long ago. Returns false if the store takes no posts.
fn post<S: Store>(store: &S, id: u128, step: Step, age: Micros) -> bool {
    let post = Post {
        id,
        step,
        age,
        named_by: None,
    };
    let Some(ticket) = store.post(&post) else {
        return false;
    };
    // Its verdicts mean nothing.
    wait(ticket).expect("the store answers");
    true
}

/// A post counts, and once, however often it is sent. A store that takes none counts nothing.
pub fn a_post_counts_once<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_rate(10)) {
        let two = taking(2, &limit, number);
        assert!(one(&store, NOW, two).0, "{}", name(&limit));
        let id = u128::from(number) << 64 | 1;
        let three = Step { hits: 3, ..two };
        for _ in 0..3 {
            let counted = if post(&store, id, three, Micros::ZERO) {
                3
            } else {
                0
            };
            let left = remaining(&store, NOW, two);
            assert_eq!(left, 8 - counted, "{}", name(&limit));
        }
        let more = if post(&store, id + 1, two, Micros::ZERO) {
            5
        } else {
            0
        };
        let left = remaining(&store, NOW, two);
        assert_eq!(left, 8 - more, "{}: another post", name(&limit));
    }
}

/// A post is charged as far as there is room: the limit is full then, and not beyond.
pub fn a_post_takes_no_more_than_is_left<S: Store>(make: impl Fn() -> S) {
    for (number, limit) in (0..).zip(every_rate(10)) {
        // The time of a store never goes back, even for another counter, so each case has its own.
        let store = make();
        let eight = taking(8, &limit, number);
        assert!(one(&store, NOW, eight).0, "{}", name(&limit));
        if !post(&store, u128::from(number) + 1, eight, Micros::ZERO) {
            return;
        }
        assert_eq!(remaining(&store, NOW, eight), 0, "{}", name(&limit));
        let wait = one(&store, NOW, Step { hits: 1, ..eight }).1.retry_after;
        // As soon as without it, and with no debt.
        let full = taking(10, &limit, number + 100);
        assert!(one(&store, NOW, full).0, "{}", name(&limit));
        let expected = one(&store, NOW, Step { hits: 1, ..full }).1.retry_after;
        assert_eq!(wait, expected, "{}", name(&limit));
    }
}

/// A charge to a budget counts in full when it is posted, as when it is charged at once.
pub fn a_posted_charge_counts_in_full<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let charge = |hits, limit: &Limit, number| Step {
        charge: Charge::Always,
        ..taking(hits, limit, number)
    };
    for (number, limit) in (0..).step_by(2).zip(every_budget(10)) {
        let [posted, charged] = [number, number + 1].map(|number| charge(8, &limit, number));
        one(&store, NOW, posted);
        if !post(&store, u128::from(number) + 1, posted, Micros::ZERO) {
            return;
        }
        for _ in 0..2 {
            one(&store, NOW, charged);
        }
        let look = |step| one(&store, NOW, Step { hits: 0, ..step });
        assert_eq!(look(posted), look(charged), "{}", name(&limit));
        assert!(!look(posted).0, "{}", name(&limit));
    }
}

/// Hits of a window that is over count in none.
pub fn a_post_of_what_no_longer_counts_takes_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let windows = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
    ];
    for (number, algorithm) in (0..).zip(windows) {
        let limit = hourly(algorithm, 10);
        let three = taking(3, &limit, number);
        assert!(one(&store, NOW, three).0);
        post(
            &store,
            u128::from(number) + 1,
            three,
            Micros::from_secs(2 * 3_600),
        );
        assert_eq!(remaining(&store, NOW, three), 7, "{}", name(&limit));
    }
}
