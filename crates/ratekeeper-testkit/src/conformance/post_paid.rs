//! Budgets: limits whose hits are charged in full, and looked at before.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Verdict};
use ratekeeper_store::{Charge, Step, Store};

use super::{NOW, at, counted, every_budget, hourly, name, one, remaining, step, taking};

/// A step of so many hits on the counter with that number, which are charged in any case.
fn charging(hits: i64, limit: &Limit, number: u64) -> Step {
    Step {
        charge: Charge::Always,
        ..taking(hits, limit, number)
    }
}

/// After 500 of 100 were charged, a look is denied until something is left.
pub fn a_look_is_denied_once_nothing_is_left<S: Store>(make: impl Fn() -> S) {
    let limits: Vec<Limit> = every_budget(100).collect();
    assert_eq!(limits.len(), 5);
    for (number, limit) in (0..).zip(limits) {
        // The time of a store never goes back, even for another counter, so each case has its own.
        let store = make();
        let look = charging(0, &limit, number);
        assert!(one(&store, NOW, look).0, "{}", name(&limit));
        let (allowed, charged) = one(&store, NOW, charging(500, &limit, number));
        assert!(allowed, "{}: it was let in", name(&limit));
        assert_eq!(charged.remaining, 0, "{}", name(&limit));
        for _ in 0..3 {
            let (allowed, denied) = one(&store, NOW, look);
            assert!(!allowed, "{}", name(&limit));
            assert_eq!(denied.verdict, Verdict::Later, "{}", name(&limit));
        }
        let wait = one(&store, NOW, look).1.retry_after;
        let early = NOW.after(Micros::new(wait.get() - 1));
        assert!(!one(&store, early, look).0, "{}", name(&limit));
        assert!(one(&store, NOW.after(wait), look).0, "{}", name(&limit));
    }
}

/// Hits that were used are charged, whatever denies the request and however little is left.
pub fn a_charge_counts_even_if_the_request_is_denied<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let none = hourly(Algorithm::FixedWindow, 0);
    for (number, limit) in (0..).step_by(2).zip(every_budget(100)) {
        let charge = |hits| one(&store, NOW, charging(hits, &limit, number)).0;
        let denied = [charging(60, &limit, number), step(&none, number + 1)];
        assert!(!at(&store, NOW, &denied).allowed, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, denied[0]), 40, "{}", name(&limit));
        assert!(charge(40), "{}", name(&limit));
        // Nothing is left. An edge that asks with a hit by accident is denied, and counted.
        assert!(!charge(1), "{}", name(&limit));
        assert!(!charge(0), "{}", name(&limit));
        assert!(charge(-2), "{}", name(&limit));
        assert!(charge(0), "{}", name(&limit));
    }
}

/// A look is denied wherever more is used than the limit holds, and changes nothing.
pub fn a_look_at_what_is_overdrawn_is_denied<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let lowered = [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
    ];
    for (number, algorithm) in (0..).zip(lowered) {
        let [high, low] = [100, 10].map(|quota| hourly(algorithm, quota));
        assert!(one(&store, NOW, taking(50, &high, number)).0);
        for _ in 0..2 {
            let (allowed, denied) = one(&store, NOW, taking(0, &low, number));
            assert!(!allowed, "{}", name(&low));
            assert_eq!(denied.verdict, Verdict::Later, "{}", name(&low));
            let left = remaining(&store, NOW, taking(0, &high, number));
            assert_eq!(left, 50, "{}", name(&high));
        }
    }
    let window = hourly(Algorithm::FixedWindow, 100);
    assert!(!one(&store, NOW, charging(500, &window, 9)).0);
    assert!(!one(&store, NOW, taking(0, &window, 9)).0);
}

/// One request may look at a budget and take from another limit, which is charged only if both let
/// it pass.
pub fn a_look_and_a_take_are_one_request<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let requests = hourly(Algorithm::SlidingWindow, 10);
    for (number, limit) in (0..).step_by(2).zip(every_budget(100)) {
        let both = [charging(0, &limit, number), step(&requests, number + 1)];
        assert!(at(&store, NOW, &both).allowed, "{}", name(&limit));
        one(&store, NOW, charging(100, &limit, number));
        for _ in 0..3 {
            let denied = at(&store, NOW, &both);
            assert!(!denied.allowed, "{}", name(&limit));
            assert!(!counted(&denied, 0).fits() && counted(&denied, 1).fits());
        }
        assert_eq!(remaining(&store, NOW, both[1]), 9, "{}", name(&limit));
    }
}

/// A thousand charges in one request count one by one, and each sees those before it.
pub fn a_thousand_charges_count_each<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_budget(2_000)) {
        let charges = vec![charging(3, &limit, number); 1_000];
        let verdicts = at(&store, NOW, &charges);
        let let_in = (0..1_000).filter(|index| counted(&verdicts, *index).fits());
        // The last of them took the two that 666 had left.
        assert_eq!(let_in.count(), 667, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, charges[0]), 0, "{}", name(&limit));
    }
}

/// However much is reserved, what it took can be given back, and what was used before still counts.
pub fn a_reservation_leaves_what_was_used<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_budget(1_000)) {
        let (_, used) = one(&store, NOW, charging(990, &limit, number));
        assert_eq!(used.remaining, 10, "{}", name(&limit));
        for hits in [4, 10, 11, 5_000, 60_000] {
            let reserve = taking(hits, &limit.reserving(), number);
            let (allowed, reserved) = one(&store, NOW, reserve);
            let left = 10_u64.saturating_sub(hits.unsigned_abs());
            assert!(allowed, "{} of {}", hits, name(&limit));
            assert_eq!(reserved.remaining, left, "{} of {}", hits, name(&limit));
            assert_eq!(one(&store, NOW, reserve).0, left > 0, "{}", name(&limit));
            if left > 0 {
                one(&store, NOW, taking(-hits, &limit, number));
            }
            let taken = hits - i64::try_from(reserved.cut).expect("small");
            one(&store, NOW, taking(-taken, &limit, number));
            let left = remaining(&store, NOW, charging(0, &limit, number));
            assert_eq!(left, 10, "{} of {}", hits, name(&limit));
        }
    }
}

/// A bucket owes no more than its largest debt, however much is charged: the rest is cut.
pub fn a_debt_is_no_larger_than_allowed<S: Store>(make: impl Fn() -> S) {
    let buckets = [Algorithm::TokenBucket, Algorithm::Gcra];
    // Ten bursts, of 100 each, are the debt that is allowed without a word.
    let cases = buckets.map(|algorithm| [1, 50, 3_000].map(|debt| (algorithm, debt)));
    for (number, (algorithm, debt)) in (0..).zip(cases.into_iter().flatten()) {
        let spec = LimitSpec {
            post_paid: true,
            max_debt: Some(debt),
            ..LimitSpec::new(algorithm, 100, Micros::from_secs(3_600))
        };
        let limit = Limit::try_new(spec).expect("a valid limit");
        // The time of a store never goes back, even for another counter, so each case has its own.
        let store = make();
        let charged = one(&store, NOW, charging(5_000, &limit, number)).1;
        assert_eq!(charged.cut, 5_000 - 100 - debt, "{debt}");
        // What is owed comes back before the first hit that is let in.
        let (look, wait) = (
            charging(0, &limit, number),
            Micros::from_secs(36 * (debt + 1)),
        );
        let (allowed, denied) = one(&store, NOW, look);
        assert_eq!((allowed, denied.retry_after), (false, wait), "{debt}");
        let (allowed, paid) = one(&store, NOW.after(wait), look);
        assert_eq!((allowed, paid.remaining), (true, 1), "{debt}");
    }
}
