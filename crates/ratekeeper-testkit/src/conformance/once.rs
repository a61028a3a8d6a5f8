//! Idempotent requests, and giving back hits taken earlier.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use ratekeeper_core::{Algorithm, Micros, Mode, Moment, Timestamp};
use ratekeeper_store::{Charge, Execution, Extra, Once, Request, Step, Store, Until, Verdicts};

use super::{NOW, at, decide, every_rate, hourly, name, remaining, step, taking};

fn later(micros: u64) -> Timestamp {
    NOW.after(Micros::new(micros))
}

fn with<S: Store>(store: &S, now: Timestamp, extra: Extra, steps: &[Step]) -> Verdicts {
    let request = Request {
        extra: Some(&extra),
        ..Request::new(steps, Mode::default(), now)
    };
    decide(store, &request)
}

/// An idempotent request under `id`, remembered for a minute from [`NOW`].
fn once(id: u128) -> Extra {
    let until = later(60_000_000);
    Extra {
        once: Some(Once {
            id,
            until: Until::At(until),
            content: 7,
        }),
        ..Extra::default()
    }
}

/// A repeat gets the first answer and takes nothing, until the record expires.
pub fn a_repeat_takes_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let limits = every_rate(5);
    for (number, limit) in (0..).zip(limits) {
        let take = taking(2, &limit, number);
        let id = u128::from(number) + 1;
        let first = with(&store, NOW, once(id), &[take]);
        assert_eq!((first.allowed, first.execution), (true, Execution::Now));
        for _ in 0..2 {
            let repeat = with(&store, NOW, once(id), &[take]);
            assert_eq!(repeat.execution, Execution::Before, "{}", name(&limit));
            assert_eq!((repeat.allowed, repeat.at), (true, first.at));
            assert_eq!(repeat.outcomes, first.outcomes, "{}", name(&limit));
        }
        assert_eq!(remaining(&store, NOW, take), 3, "{}", name(&limit));
        let other = with(&store, NOW, once(id + 1_000), &[take]);
        assert_eq!(other.execution, Execution::Now, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, take), 1, "{}", name(&limit));
    }
}

/// The same id with a different content is not a repeat, and is not executed.
pub fn an_id_stands_for_one_request<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), hourly(Algorithm::FixedWindow, 5));
    assert!(with(&store, NOW, once(1), &[step(&limit, 0)]).allowed);
    let mut other = once(1);
    if let Some(once) = &mut other.once {
        once.content += 1;
    }
    let steps = [step(&limit, 0), step(&limit, 1)];
    let refused = with(&store, NOW, other, &steps);
    assert_eq!(
        (refused.allowed, refused.execution),
        (false, Execution::Conflict)
    );
    assert_eq!(refused.outcomes.len(), 2);
    assert_eq!(remaining(&store, NOW, step(&limit, 0)), 4);
    assert_eq!(remaining(&store, NOW, step(&limit, 1)), 5);
}

/// A request that undoes another deletes its record: repeated, it takes its hits again, and not for nothing.
pub fn an_undone_request_is_carried_out_again<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).zip(every_rate(5)) {
        let take = taking(2, &limit, number);
        let id = u128::from(number) + 1;
        let first = with(&store, NOW, once(id), &[take]);
        assert_eq!(first.execution, Execution::Now, "{}", name(&limit));
        let undo = Extra {
            forgets: Some(id),
            taken_at: Some(first.at),
            ..Extra::default()
        };
        with(&store, NOW, undo, &[Step { hits: -2, ..take }]);
        assert_eq!(remaining(&store, NOW, take), 5, "{}", name(&limit));
        let again = with(&store, NOW, once(id), &[take]);
        assert_eq!(again.execution, Execution::Now, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, take), 3, "{}", name(&limit));
    }
}

/// The same content is not a repeat if its steps have changed with the rules: neither with more
/// steps nor with fewer.
pub fn other_steps_are_no_repeat<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), hourly(Algorithm::FixedWindow, 5));
    let steps = [step(&limit, 0), step(&limit, 1), step(&limit, 2)];
    assert!(with(&store, NOW, once(1), &steps[..2]).allowed);
    for number in [1, 3] {
        let other = with(&store, NOW, once(1), &steps[..number]);
        assert_eq!(
            (other.allowed, other.execution, other.outcomes.len()),
            (false, Execution::Conflict, number)
        );
    }
    let repeat = with(&store, NOW, once(1), &steps[..2]);
    assert_eq!(
        (repeat.allowed, repeat.execution),
        (true, Execution::Before)
    );
    for (step, left) in steps.into_iter().zip([4, 4, 5]) {
        assert_eq!(remaining(&store, NOW, step), left);
    }
}

/// A request that only gives back is remembered even if it is denied, or else it would give back
/// twice.
pub fn giving_back_is_remembered_in_any_case<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), hourly(Algorithm::FixedWindow, 5));
    let none = hourly(Algorithm::FixedWindow, 0);
    let over = Step {
        charge: Charge::Always,
        ..step(&none, 1)
    };
    assert!(!at(&store, NOW, &[over]).allowed);
    let take = taking(4, &limit, 0);
    assert!(at(&store, NOW, &[take]).allowed);
    let back = [Step { hits: -1, ..take }, Step { hits: 0, ..over }];
    for execution in [Execution::Now, Execution::Before, Execution::Before] {
        assert_eq!(with(&store, NOW, once(1), &back).execution, execution);
        assert_eq!(remaining(&store, NOW, take), 2);
    }
}

/// A denied request took nothing, so it may be repeated; an expired record is forgotten.
pub fn a_denied_or_forgotten_request_is_decided_again<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), hourly(Algorithm::SlidingLog, 2));
    let take = taking(2, &limit, 0);
    assert!(at(&store, NOW, &[take]).allowed);
    assert!(!with(&store, NOW, once(1), &[take]).allowed);
    assert!(at(&store, NOW, &[Step { hits: -2, ..take }]).allowed);
    let retried = with(&store, NOW, once(1), &[take]);
    assert_eq!((retried.allowed, retried.execution), (true, Execution::Now));
    let repeat = with(&store, later(59_999_999), once(1), &[take]);
    assert_eq!(repeat.execution, Execution::Before);
    let late = with(&store, later(60_000_000), once(1), &[take]);
    assert_eq!((late.allowed, late.execution), (false, Execution::Unknown));
    let mut second_id = once(1);
    if let Some(once) = &mut second_id.once {
        once.until = Until::At(later(90_000_000));
    }
    let forgotten = with(&store, later(60_000_000), second_id, &[take]);
    assert_eq!(
        (forgotten.allowed, forgotten.execution),
        (false, Execution::Now)
    );
}

/// The time to remember begins when the store executes the request, by the store's clock.
pub fn a_repeat_is_known_for_a_span<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), hourly(Algorithm::FixedWindow, 5));
    let mut extra = once(1);
    if let Some(once) = &mut extra.once {
        once.until = Until::After(Micros::from_secs(60));
    }
    let seen = [0, 59_999_999, 60_000_000, 119_999_999].map(|micros| {
        let verdicts = with(&store, later(micros), extra, &[step(&limit, 0)]);
        assert!(verdicts.allowed, "{micros}");
        verdicts.execution
    });
    let (now, before) = (Execution::Now, Execution::Before);
    assert_eq!(seen, [now, before, now, before]);
}

/// Concurrent copies count as one request.
pub fn copies_that_arrive_together_are_one<S: Store>(make: impl Fn() -> S) {
    const THREADS: usize = 16;
    let (store, limit) = (make(), hourly(Algorithm::FixedWindow, 1_000));
    for id in 1..20 {
        let (barrier, first) = (Barrier::new(THREADS), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    barrier.wait();
                    let verdicts = with(&store, NOW, once(id), &[step(&limit, 0)]);
                    let is_first = verdicts.execution == Execution::Now;
                    first.fetch_add(u64::from(is_first), Ordering::Relaxed);
                });
            }
        });
        assert_eq!(first.into_inner(), 1);
    }
    assert_eq!(remaining(&store, NOW, step(&limit, 0)), 1_000 - 19);
}

/// Hits are given back while they count; afterwards giving back does not touch other hits.
pub fn hits_come_back_while_they_count<S: Store>(make: impl Fn() -> S) {
    let limits = every_rate(10);
    for (number, limit) in (0..).zip(limits) {
        // To the middle of the window, just before and just after its end, and far beyond.
        for wait in [
            1,
            1_800_000_000,
            3_599_999_999,
            3_600_000_000,
            9_000_000_000,
        ] {
            let store = make();
            let take = taking(6, &limit, number);
            let taken = at(&store, NOW, &[take]);
            assert!(taken.allowed && taken.at == NOW, "{}", name(&limit));
            let now = later(wait);
            let one = Step { hits: 1, ..take };
            assert!(at(&store, now, &[one]).allowed, "{}", name(&limit));
            let before = remaining(&store, now, one);
            let extra = Extra {
                taken_at: Some(taken.at),
                ..Extra::default()
            };
            with(&store, now, extra, &[Step { hits: -4, ..take }]);
            let after = remaining(&store, now, one);
            let counts = limit.still_counts(taken.at, &Moment::at(now));
            let case = format!("{} after {wait}: {before}, {after}", name(&limit));
            assert_eq!(
                counts,
                wait < 3_600_000_000 && is_same_window(&limit, now) || is_bucket(&limit),
                "{case}"
            );
            match counts {
                true => assert!(after >= before, "{case}"),
                false => assert_eq!(after, before, "{case}"),
            }
            if wait == 1 {
                assert_eq!(after, before + 4, "{case}");
            }
        }
    }
}

fn is_bucket(limit: &ratekeeper_core::Limit) -> bool {
    matches!(
        limit.algorithm(),
        Algorithm::TokenBucket | Algorithm::Gcra | Algorithm::LeakyBucket
    )
}

/// Returns true if `now` is in the hour of [`NOW`], for limits that count by the hour.
fn is_same_window(limit: &ratekeeper_core::Limit, now: Timestamp) -> bool {
    let hour = |time: Timestamp| time.as_micros() / 3_600_000_000;
    limit.algorithm() != Algorithm::FixedWindow || hour(now) == hour(NOW)
}
