//! One counter at a time.

use ratekeeper_core::{Algorithm, Bounds, Limit, LimitSpec, Micros, Timestamp, Verdict};
use ratekeeper_store::{Charge, Step, Store};

use super::{
    NOW, every_budget, every_limit, every_rate, hourly, name, one, remaining, step, taking,
};
use crate::random::Random;

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

/// A limit may grow as well: what was used before still counts, and not more. Leaky buckets are left out: turns that were
/// taken stay as long as they were.
pub fn a_raised_limit_keeps_what_was_used<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let pairs = every_limit(10).zip(every_limit(100));
    let pairs = pairs.filter(|(low, _)| low.algorithm() != Algorithm::LeakyBucket);
    for (number, (low, high)) in (0..).zip(pairs) {
        assert!(
            one(&store, NOW, taking(10, &low, number)).0,
            "{}",
            name(&low)
        );
        assert!(!one(&store, NOW, step(&low, number)).0, "{}", name(&low));
        let rest = taking(90, &high, number);
        assert_eq!(remaining(&store, NOW, rest), 90, "{}", name(&high));
        assert!(one(&store, NOW, rest).0, "{}", name(&high));
        assert!(!one(&store, NOW, step(&high, number)).0, "{}", name(&high));
    }
}

/// A counter stays until none of its hits counts any more, however long that is.
pub fn nothing_is_forgotten_early<S: Store>(make: impl Fn() -> S) {
    let year = Micros::from_secs(365 * 86_400);
    let lasting = Algorithm::ALL.into_iter().filter_map(|algorithm| {
        let limit = Limit::try_new(LimitSpec::new(algorithm, 5, year)).ok()?;
        (algorithm != Algorithm::Concurrency).then_some(limit)
    });
    let limits = every_rate(5).chain(lasting).chain(every_budget(5));
    for (number, limit) in (0..).zip(limits) {
        // The time of a store never goes back, even for another counter, so each case has its own.
        let store = make();
        let charge = match limit.is_post_paid() {
            true => Charge::Always,
            false => Charge::IfAllowed,
        };
        let all = Step {
            charge,
            ..taking(5, &limit, number)
        };
        let lasts = one(&store, NOW, all).1.full_after;
        assert!(!lasts.is_zero(), "{}", name(&limit));
        let look = Step { hits: 0, ..all };
        let before = NOW.after(Micros::new(lasts.get() - 1));
        let left = one(&store, before, look).1.full_after;
        assert_eq!(left, Micros::new(1), "{} of {lasts:?}", name(&limit));
        let (allowed, unused) = one(&store, NOW.after(lasts), look);
        assert!(allowed && unused.full_after.is_zero(), "{}", name(&limit));
        assert_eq!(unused.remaining, 5, "{}", name(&limit));
    }
}

/// A strict sliding window admits at most its quota in any window, and less at once: it rounds what it counts up.
pub fn a_strict_limit_never_exceeds_its_quota<S: Store>(make: impl Fn() -> S) {
    const QUOTA: u64 = 1_000;
    let store = make();
    let spec = LimitSpec {
        strict: true,
        ..LimitSpec::new(Algorithm::SlidingWindow, QUOTA, Micros::from_secs(3_600))
    };
    let strict = Limit::try_new(spec).expect("a valid limit");
    assert!(strict.capacity() < hourly(Algorithm::SlidingWindow, QUOTA).capacity());
    let most = taking(strict.capacity().cast_signed(), &strict, 0);
    let more = Step {
        hits: most.hits + 1,
        ..most
    };
    assert_eq!(one(&store, NOW, more).1.verdict, Verdict::Never);
    assert!(one(&store, NOW, most).0);
    assert!(!one(&store, NOW, step(&strict, 0)).0);

    let (mut random, mut now, mut admitted) = (Random::new(7), NOW, Vec::new());
    for _ in 0..400 {
        now = now.after(Micros::new(random.below(60_000_000)));
        let hits = 1 + random.below(30);
        if one(&store, now, taking(hits.cast_signed(), &strict, 1)).0 {
            admitted.push((now, hits));
        }
        let counts = |at: Timestamp| now.since(at) < strict.window();
        let within = admitted.iter().filter(|(at, _)| counts(*at));
        let within: u64 = within.map(|(_, hits)| hits).sum();
        assert!(within <= QUOTA, "{within} hits within an hour");
    }
}

/// Callers that wait for so long and no longer are denied a turn that is further away, and take none.
pub fn a_queue_is_no_longer_than_callers_wait<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let spec = LimitSpec {
        burst: Some(10),
        ..LimitSpec::new(Algorithm::LeakyBucket, 60, Micros::from_secs(3_600))
    };
    let queue = Limit::try_new(spec).expect("a valid limit");
    let minutes = |count: u64| Micros::from_secs(60 * count);
    let waiting = step(&queue.with_delay_max(minutes(2)), 0);
    for turn in 0..3 {
        let (allowed, outcome) = one(&store, NOW, waiting);
        assert_eq!((allowed, outcome.delay), (true, minutes(turn)));
    }
    for _ in 0..3 {
        let (allowed, denied) = one(&store, NOW, waiting);
        assert_eq!((allowed, denied.verdict), (false, Verdict::Later));
        assert_eq!(denied.retry_after, minutes(1));
    }
    assert!(!one(&store, NOW, step(&queue.without_delay(), 0)).0);
    // Nobody who was denied has a turn.
    let (allowed, outcome) = one(&store, NOW, step(&queue, 0));
    assert_eq!((allowed, outcome.delay), (true, minutes(3)));
}
