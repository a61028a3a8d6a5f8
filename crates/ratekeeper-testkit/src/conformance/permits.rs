//! Permits: taken together with other limits, renewed, released, expired.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp, Verdict};
use ratekeeper_store::{Extra, Permit, PermitAct, Request, Step, Store, Verdicts};

use super::{NOW, counted, decide, every_rate, hourly, name, remaining, step};

/// A limit of `quota` permits, each for a minute.
fn permits(quota: u64) -> Limit {
    permits_for(quota, Micros::from_secs(60))
}

/// A limit of `quota` permits with that timeout.
pub(super) fn permits_for(quota: u64, timeout: Micros) -> Limit {
    let spec = LimitSpec::new(Algorithm::Concurrency, quota, timeout);
    Limit::try_new(spec).expect("a valid limit")
}

fn later(micros: u64) -> Timestamp {
    NOW.after(Micros::new(micros))
}

pub(super) fn acts<S: Store>(
    store: &S,
    now: Timestamp,
    (act, id): (PermitAct, u128),
    steps: &[Step],
) -> Verdicts {
    let extra = Extra {
        permit: Some(Permit { id, act }),
        ..Extra::default()
    };
    let request = Request {
        extra: Some(&extra),
        ..Request::new(steps, Mode::default(), now)
    };
    decide(store, &request)
}

/// Takes the permit `id` with a step of one hit.
fn take<S: Store>(store: &S, now: Timestamp, id: u128, step: Step) -> bool {
    acts(store, now, (PermitAct::Acquire, id), &[step]).allowed
}

/// Renews or releases a permit; returns true if it was held.
fn settle<S: Store>(store: &S, now: Timestamp, act: (PermitAct, u128), step: Step) -> (bool, u64) {
    let verdicts = acts(store, now, act, &[Step { hits: 0, ..step }]);
    let outcome = counted(&verdicts, 0);
    assert_eq!(verdicts.allowed, outcome.fits());
    (outcome.fits(), outcome.remaining)
}

/// A permit is held until it is released, once, by anyone who knows its id.
pub fn a_permit_is_freed_by_its_id<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), permits(2));
    let step = step(&limit, 0);
    assert!(take(&store, NOW, 1, step) && take(&store, NOW, 2, step));
    assert!(!take(&store, NOW, 3, step));
    let stranger = settle(&store, NOW, (PermitAct::Release, 3), step);
    assert_eq!(stranger, (false, 0), "it was never taken");
    for (held, left) in [(true, 1), (false, 1)] {
        let freed = settle(&store, NOW, (PermitAct::Release, 1), step);
        assert_eq!(freed, (held, left));
    }
    assert!(take(&store, NOW, 3, step));
    assert_eq!(remaining(&store, NOW, step), 0);
}

/// A caller that got no answer may repeat the request: the permit is held once, and renewed.
pub fn a_permit_asked_for_twice_is_held_once<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), permits(2));
    let step = step(&limit, 0);
    for now in [NOW, later(59_999_999)] {
        assert!(take(&store, now, 1, step));
        assert_eq!(remaining(&store, now, step), 1);
    }
    assert_eq!(remaining(&store, later(119_999_998), step), 1);
    assert_eq!(remaining(&store, later(119_999_999), step), 2);
    // Twice in one request also counts once.
    let together = acts(
        &store,
        later(120_000_000),
        (PermitAct::Acquire, 2),
        &[step, step],
    );
    assert!(together.allowed);
    assert_eq!(remaining(&store, later(120_000_000), step), 1);
}

/// A permit whose holder is lost expires at its deadline; a renewed one does not.
pub fn a_permit_ends_at_its_deadline_unless_renewed<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), permits(2));
    let step = step(&limit, 0);
    assert!(take(&store, NOW, 1, step) && take(&store, NOW, 2, step));
    let renewed = settle(&store, later(59_999_999), (PermitAct::Renew, 1), step);
    assert_eq!(renewed, (true, 0));
    assert!(take(&store, later(60_000_000), 3, step), "2 was lost");
    let lost = settle(&store, later(60_000_000), (PermitAct::Renew, 2), step);
    assert_eq!(lost, (false, 0));
    assert!(!take(&store, later(119_999_998), 4, step));
    assert!(take(&store, later(119_999_999), 4, step), "1 has ended");
    let verdicts = acts(
        &store,
        later(119_999_999),
        (PermitAct::Release, 1),
        &[Step { hits: 0, ..step }],
    );
    assert_eq!(counted(&verdicts, 0).verdict, Verdict::Never);
}

/// Rate limits and permits of a request are taken together or not at all.
pub fn permits_and_rates_are_taken_together<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let limits = every_rate(2);
    for (number, rate) in (0..).step_by(10).zip(limits) {
        let (one, nothing) = (permits(1), hourly(Algorithm::FixedWindow, 0));
        let (rate_step, permit) = (step(&rate, number), step(&one, number + 1));
        let id = u128::from(number) + 1;
        let both = [rate_step, permit];
        assert!(acts(&store, NOW, (PermitAct::Acquire, id), &both).allowed);
        // No permit left: the rate limit is not charged.
        let denied = acts(&store, NOW, (PermitAct::Acquire, id + 1), &both);
        assert!(
            !denied.allowed && counted(&denied, 0).fits(),
            "{}",
            name(&rate)
        );
        assert_eq!(remaining(&store, NOW, rate_step), 1, "{}", name(&rate));
        assert!(settle(&store, NOW, (PermitAct::Release, id), permit).0);
        // No hits left: the permit is not taken.
        let denied = acts(
            &store,
            NOW,
            (PermitAct::Acquire, id + 2),
            &[permit, step(&nothing, number + 2)],
        );
        assert!(!denied.allowed, "{}", name(&rate));
        assert_eq!(remaining(&store, NOW, permit), 1, "{}", name(&rate));
        assert!(!settle(&store, NOW, (PermitAct::Release, id + 2), permit).0);
    }
}

/// One id in several counters: each counter releases it independently of the others.
pub fn a_permit_of_several_counters_is_freed_in_each<S: Store>(make: impl Fn() -> S) {
    let (store, limit) = (make(), permits(1));
    let steps = [0, 1, 2].map(|number| step(&limit, number));
    assert!(acts(&store, NOW, (PermitAct::Acquire, 7), &steps).allowed);
    assert!(settle(&store, NOW, (PermitAct::Release, 7), steps[1]).0);
    let looks = steps.map(|step| Step { hits: 0, ..step });
    let freed = acts(&store, NOW, (PermitAct::Release, 7), &looks);
    let held = [0, 1, 2].map(|index| counted(&freed, index).fits());
    assert_eq!((freed.allowed, held), (false, [true, false, true]));
    assert!(steps.iter().all(|step| remaining(&store, NOW, *step) == 1));
}

/// Each permit ends by the timeout that it was taken with, as while a change of the rules reaches one node after another.
/// While none is free, one that ends too far ahead may end sooner: the clock may have gone back.
pub fn a_permit_outlives_those_with_shorter_timeouts<S: Store>(make: impl Fn() -> S) {
    let store = make();
    let [long, short] = [3_600, 60].map(|timeout| permits_for(5, Micros::from_secs(timeout)));
    let [long, short] = [long, short].map(|limit| step(&limit, 0));
    assert!(take(&store, NOW, 1, long) && take(&store, NOW, 2, short));
    let stranger = settle(&store, NOW, (PermitAct::Renew, 3), short);
    assert_eq!(stranger, (false, 3), "it was never taken");
    assert!(settle(&store, NOW, (PermitAct::Renew, 1), short).0);
    // The second has ended.
    assert!(take(&store, later(60_000_000), 4, short));
    let (held, left) = settle(&store, later(3_599_999_999), (PermitAct::Release, 1), long);
    assert_eq!((held, left), (true, 5), "the first had another microsecond");
}
