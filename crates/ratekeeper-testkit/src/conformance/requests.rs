//! Requests with several steps.

use ratekeeper_core::{Algorithm, Limit, Mode, Verdict};
use ratekeeper_store::{Charge, Request, Step, Store};

use super::{
    NOW, at, counted, decide, every_limit, every_rate, hourly, name, one, remaining, step, taking,
};

/// If any step denies, no other step is charged.
pub fn a_denied_request_consumes_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (round, limit) in every_limit(3).enumerate() {
        let empty = hourly(Algorithm::FixedWindow, 0);
        for refusing in 0..3 {
            let number = |index: usize| (round * 100 + refusing * 10 + index) as u64;
            let limit_of = |index: usize| if index == refusing { &empty } else { &limit };
            let steps = [0, 1, 2].map(|index| step(limit_of(index), number(index)));
            for _ in 0..5 {
                let verdicts = at(&store, NOW, &steps);
                assert!(!verdicts.allowed, "{}", name(&limit));
                for index in (0..3).filter(|index| *index != refusing) {
                    assert!(counted(&verdicts, index).fits(), "{}", name(&limit));
                    // The answer is as if it had passed, had the others allowed it.
                    assert_eq!(counted(&verdicts, index).remaining, 2, "{}", name(&limit));
                    let left = remaining(&store, NOW, steps[index]);
                    assert_eq!(left, 3, "{}", name(&limit));
                }
            }
        }
    }
}

/// The same counter twice in one request does not get twice the limit.
pub fn a_repeated_counter_sees_the_earlier_take<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_limit(5)) {
        let two = taking(2, &limit, number);
        let three = Step { hits: 3, ..two };
        let verdicts = at(&store, NOW, &[two, two, two]);
        assert!(!verdicts.allowed, "{}", name(&limit));
        assert_eq!(counted(&verdicts, 1).remaining, 1, "{}", name(&limit));
        assert_eq!(
            counted(&verdicts, 2).verdict,
            Verdict::Never,
            "{}",
            name(&limit)
        );
        assert_eq!(remaining(&store, NOW, two), 5, "{}", name(&limit));

        // A shadow step that denies takes nothing from a later step.
        let shadow = Step {
            hits: 6,
            shadow: true,
            ..two
        };
        let verdicts = at(&store, NOW, &[two, shadow, three]);
        assert!(verdicts.allowed, "{}", name(&limit));
        assert_eq!(counted(&verdicts, 2).remaining, 0, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, two), 0, "{}", name(&limit));
    }
}

/// A shadow step is charged like any other as long as it fits.
pub fn shadow_steps_count_and_never_deny<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let wide = hourly(Algorithm::FixedWindow, 100);
    for (number, limit) in (1..).zip(every_limit(2)) {
        let shadow = Step {
            shadow: true,
            ..step(&limit, number)
        };
        for fits in [true, true, false, false] {
            let verdicts = at(&store, NOW, &[step(&wide, 0), shadow]);
            assert!(verdicts.allowed, "{}", name(&limit));
            assert_eq!(counted(&verdicts, 1).fits(), fits, "{}", name(&limit));
        }
    }
    let charged = 4 * every_limit(2).count() as u64;
    assert_eq!(remaining(&store, NOW, step(&wide, 0)), 100 - charged);
    let mode = Mode {
        shadow: true,
        ..Mode::default()
    };
    let none = hourly(Algorithm::Gcra, 0);
    let steps = [step(&none, 1_000), step(&wide, 1_001)];
    let verdicts = decide(&store, &Request::new(&steps, mode, NOW));
    assert!(verdicts.allowed && !counted(&verdicts, 0).fits());
    assert_eq!(remaining(&store, NOW, steps[1]), 99);
}

/// Quota-mode descriptors deny only if all of them are over.
pub fn quota_steps_deny_together<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let [one, two] = [1, 2].map(|quota| hourly(Algorithm::SlidingLog, quota));
    let quota = |limit, number, descriptor| Step {
        quota_mode: true,
        descriptor,
        ..step(limit, number)
    };
    let steps = [quota(&one, 0, 0), quota(&two, 1, 1)];
    for (allowed, left) in [(true, 1), (true, 0), (false, 0)] {
        assert_eq!(at(&store, NOW, &steps).allowed, allowed);
        assert_eq!(remaining(&store, NOW, steps[1]), left);
    }
    let mode = Mode {
        idle_quota: true,
        ..Mode::default()
    };
    assert!(decide(&store, &Request::new(&steps, mode, NOW)).allowed);
}

/// `count_denied`: the hits of a denied request count, but only for that step.
pub fn always_charges_what_is_denied<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let none = hourly(Algorithm::FixedWindow, 0);
    for (number, limit) in (0..).step_by(3).zip(every_limit(5)) {
        let always = Step {
            hits: 2,
            charge: Charge::Always,
            ..step(&limit, number)
        };
        let other = step(&limit, number + 1);
        for left in [3, 1] {
            let verdicts = at(&store, NOW, &[other, always, step(&none, number + 2)]);
            assert!(!verdicts.allowed, "{}", name(&limit));
            assert_eq!(remaining(&store, NOW, always), left, "{}", name(&limit));
            assert_eq!(remaining(&store, NOW, other), 5, "{}", name(&limit));
        }
        // Hits that do not fit are charged too: they fill the counter.
        assert!(!at(&store, NOW, &[always]).allowed, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, always), 0, "{}", name(&limit));
    }
}

/// Negative hits are given back even if the request is denied, never beyond the limit, and create
/// no counter.
pub fn refunds_give_back_in_any_case<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let none = hourly(Algorithm::FixedWindow, 0);
    let limits = every_rate(5);
    for (number, limit) in (0..).step_by(2).zip(limits) {
        let take = taking(4, &limit, number);
        let refund = |hits| Step { hits, ..take };
        assert_eq!(
            one(&store, NOW, refund(-1)).1.remaining,
            5,
            "{}",
            name(&limit)
        );
        assert!(one(&store, NOW, take).0);
        assert!(!at(&store, NOW, &[refund(-1), step(&none, number + 1)]).allowed);
        assert_eq!(remaining(&store, NOW, take), 2, "{}", name(&limit));
        assert!(at(&store, NOW, &[refund(-1)]).allowed);
        assert_eq!(remaining(&store, NOW, take), 3, "{}", name(&limit));
        assert!(at(&store, NOW, &[refund(-100)]).allowed);
        assert_eq!(remaining(&store, NOW, take), 5, "{}", name(&limit));
    }
}

/// A peek is always allowed, reports when one hit would pass, and costs nothing.
pub fn peeks_change_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_limit(3)) {
        let peek = taking(0, &limit, number);
        for left in [3, 2, 1, 0, 0] {
            for _ in 0..3 {
                let (allowed, outcome) = one(&store, NOW, peek);
                assert!(allowed && outcome.fits(), "{}", name(&limit));
                assert_eq!(outcome.remaining, left, "{}", name(&limit));
                assert_eq!(outcome.retry_after.is_zero(), left > 0, "{}", name(&limit));
            }
            assert_eq!(
                one(&store, NOW, step(&limit, number)).0,
                left > 0,
                "{}",
                name(&limit)
            );
        }
    }
}

/// A request without steps is allowed.
pub fn no_steps_are_allowed<S: Store>(make: impl Fn() -> S) {
    let verdicts = at(&make(), NOW, &[]);
    assert!(verdicts.allowed && verdicts.outcomes.is_empty());
}

/// A request with more steps than fit on the stack.
pub fn many_steps_are_decided_together<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let limits: Vec<Limit> = (0..15).flat_map(|_| every_limit(2)).collect();
    let steps: Vec<Step> = (0..)
        .zip(&limits)
        .map(|(n, limit)| step(limit, n))
        .collect();
    for allowed in [true, true, false] {
        let verdicts = at(&store, NOW, &steps);
        assert_eq!(verdicts.allowed, allowed);
        assert_eq!(verdicts.outcomes.len(), steps.len());
    }
    assert!(steps.iter().all(|step| remaining(&store, NOW, *step) == 0));
}
