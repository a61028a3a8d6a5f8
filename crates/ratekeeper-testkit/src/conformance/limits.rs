//! One counter at a time.

use ratekeeper_core::{Algorithm, Bounds, Limit, LimitSpec, Micros, Timestamp, Verdict};
use ratekeeper_store::{Step, Store};

use super::{NOW, every_limit, every_rate, name, one, remaining, step, taking};

/// Admits exactly the quota, one by one and at once.
pub fn admits_exactly_its_limit<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).step_by(2).zip(every_limit(7)) {
        for left in (0..7).rev() {
            let (allowed, outcome) = one(&store, NOW, step(&limit, number));
            assert!(allowed && outcome.fits(), "{}", name(&limit));
            assert_eq!(outcome.remaining, left, "{}", name(&limit));
        }
        let (allowed, outcome) = one(&store, NOW, step(&limit, number));
        assert!(!allowed, "{}", name(&limit));
        assert_eq!(outcome.verdict, Verdict::Later, "{}", name(&limit));
        let at_once = taking(7, &limit, number + 1);
        assert!(one(&store, NOW, at_once).0, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, at_once), 0, "{}", name(&limit));
    }
}

/// Denies at every moment before `retry_after`, and admits at it. Concurrency limits are left out:
/// permits return on release, which no hint can predict.
pub fn comes_back_exactly_when_told<S: Store>(make: impl Fn() -> S) {
    let limits = every_rate(5);
    for (number, limit) in (0..).zip(limits) {
        // The time of a store never goes back, even for another counter, so each case has its own.
        let store = make();
        let step = step(&limit, number);
        while one(&store, NOW, step).0 {}
        let wait = one(&store, NOW, step).1.retry_after;
        assert!(!wait.is_zero(), "{}", name(&limit));
        let early = NOW.after(Micros::new(wait.get() - 1));
        assert!(!one(&store, early, step).0, "{}", name(&limit));
        assert!(one(&store, NOW.after(wait), step).0, "{}", name(&limit));
    }
}

/// "Never" differs from "later", and costs nothing either.
pub fn oversized_hits_are_never_admitted<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_limit(5)) {
        let oversized = taking(6, &limit, number);
        let (allowed, outcome) = one(&store, NOW, oversized);
        assert!(!allowed, "{}", name(&limit));
        assert_eq!(outcome.verdict, Verdict::Never, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, oversized), 5, "{}", name(&limit));
    }
}

/// The edges that a step brings along count, not those of a window as long; a store with a clock of its own knows the next.
pub fn a_calendar_window_ends_at_its_edge<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let month = LimitSpec {
        calendar: true,
        ..LimitSpec::new(Algorithm::FixedWindow, 3, Micros::from_secs(31 * 86_400))
    };
    let limit = Limit::try_new(month).expect("a valid limit");
    let minute = NOW.as_micros() / 60_000_000;
    let edge = |minutes: u64| Timestamp::from_micros((minute + minutes) * 60_000_000);
    let bounds = Bounds {
        start: Timestamp::from_micros((minute - 20_000) * 60_000_000),
        end: edge(1),
        next_end: edge(30_000),
    };
    let step = Step {
        calendar: Some(bounds),
        ..step(&limit, 0)
    };
    for left in [2, 1, 0] {
        assert_eq!(one(&store, NOW, step).1.remaining, left);
    }
    let wait = edge(1).since(NOW);
    let (allowed, denied) = one(&store, NOW, step);
    assert_eq!((allowed, denied.retry_after), (false, wait));
    let early = NOW.after(Micros::new(wait.get() - 1));
    assert!(!one(&store, early, step).0);
    let (allowed, next) = one(&store, edge(1), step);
    assert_eq!((allowed, next.remaining), (true, 2));
    assert_eq!(next.full_after, edge(30_000).since(edge(1)));
}

/// A limit of 0 blocks everything; a peek is still allowed.
pub fn a_limit_of_nothing_admits_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_limit(0)) {
        let step = step(&limit, number);
        assert_eq!(
            one(&store, NOW, step).1.verdict,
            Verdict::Never,
            "{}",
            name(&limit)
        );
        assert!(
            one(&store, NOW, Step { hits: 0, ..step }).0,
            "{}",
            name(&limit)
        );
    }
}

/// An earlier time counts as the latest: it admits nothing more, and does no damage.
pub fn time_going_back_is_harmless<S: Store>(make: impl Fn() -> S) {
    let earlier = [
        Timestamp::EPOCH,
        Timestamp::from_micros(NOW.as_micros() - 7_200_000_000),
    ];
    for (number, limit) in (0..).zip(every_limit(4)) {
        // The time of a store never goes back, even for another counter, so each case has its own.
        let store = make();
        let step = step(&limit, number);
        assert!(one(&store, NOW, step).0, "{}", name(&limit));
        for now in earlier {
            assert!(one(&store, now, step).0, "{}", name(&limit));
        }
        assert!(one(&store, NOW, step).0, "{}", name(&limit));
        for now in earlier.into_iter().chain([NOW]) {
            assert!(!one(&store, now, step).0, "{}", name(&limit));
        }
        let much_later = NOW.after(Micros::from_secs(3 * 3_600));
        assert_eq!(remaining(&store, much_later, step), 4, "{}", name(&limit));
    }
}

/// Limits change while counters exist: usage is kept, and a denial under the lower one forgets none.
pub fn a_lowered_limit_takes_effect_at_once<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, (high, low)) in (0..).zip(every_limit(100).zip(every_limit(10))) {
        let fifty = taking(50, &high, number);
        assert!(one(&store, NOW, fifty).0, "{}", name(&high));
        let ten = taking(10, &low, number);
        assert!(!one(&store, NOW, ten).0, "{}", name(&low));
        assert_eq!(remaining(&store, NOW, fifty), 50, "{}", name(&high));
    }
}
