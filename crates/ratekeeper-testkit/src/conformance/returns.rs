//! Giving back what was taken for a request that is denied after all, and hits of which nobody knows.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, Mode};
use ratekeeper_store::{Charge, Request, Step, StepOutcome, Store, StoreError, Verdicts};

use super::{NOW, at, decide, every_rate, hourly, name, remaining, taking};
use crate::process::{DEADLINE, within};

/// The interval between looks at a counter.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Takes three hits of each of two counters, of which two were used before, and gives them back where they were answered:
/// by the first.
fn taken<S: Store>(store: &S, limit: &Limit, number: u64) -> [Step; 2] {
    let steps = [number, number + 1].map(|number| taking(3, limit, number));
    let before = steps.map(|step| Step { hits: 2, ..step });
    assert!(at(store, NOW, &before).allowed, "{}", name(limit));
    let request = Request::new(&steps, Mode::default(), NOW);
    let mut verdicts: Verdicts = decide(store, &request);
    assert!(verdicts.allowed, "{}", name(limit));
    verdicts.outcomes[1] = StepOutcome::Unanswered(StoreError::Unavailable);
    store.give_back(&request, &verdicts);
    steps
}

/// Nothing is given back of what others took, or of a request that was not answered. A store that always answers need
/// give nothing back.
pub fn giving_back_frees_no_more_than_was_taken<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).step_by(10).zip(every_rate(10)) {
        let [answered, other] = taken(&store, &limit, number);
        // It may be on its way: several looks.
        for _ in 0..20 {
            let left = remaining(&store, NOW, answered);
            assert!(left == 5 || left == 8, "{left} of {}", name(&limit));
            assert_eq!(remaining(&store, NOW, other), 5, "{}", name(&limit));
        }
    }
    // What is charged in any case stays charged.
    let limit = hourly(Algorithm::FixedWindow, 10);
    let always = [Step {
        charge: Charge::Always,
        ..taking(3, &limit, 1_000)
    }];
    let request = Request::new(&always, Mode::default(), NOW);
    let verdicts = decide(&store, &request);
    store.give_back(&request, &verdicts);
    for _ in 0..20 {
        assert_eq!(remaining(&store, NOW, always[0]), 7);
    }
}

/// A store that gives back frees what the request has taken, soon.
pub fn what_was_taken_is_given_back<S: Store>(make: impl Fn() -> S) {
    what_was_taken_is_given_back_within(DEADLINE, make);
}

/// The same within that time.
pub fn what_was_taken_is_given_back_within<S: Store>(patience: Duration, make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).step_by(10).zip(every_rate(10)) {
        let [answered, other] = taken(&store, &limit, number);
        let is_back = within(patience, LOOK_EVERY, || {
            remaining(&store, NOW, answered) == 8
        });
        assert!(is_back, "{}: waited {patience:?}", name(&limit));
        assert_eq!(remaining(&store, NOW, other), 5, "{}", name(&limit));
    }
}

/// Hits of which nobody knows are only counted: no counter changes.
pub fn stranded_hits_change_nothing<S: Store>(make: impl Fn() -> S) {
    let store = make();
    for (number, limit) in (0..).step_by(2).zip(every_rate(10)) {
        let four = taking(4, &limit, number);
        assert!(at(&store, NOW, &[four]).allowed, "{}", name(&limit));
        let unknown = taking(4, &limit, number + 1);
        store.strand(&four);
        store.strand(&unknown);
        assert_eq!(remaining(&store, NOW, four), 6, "{}", name(&limit));
        assert_eq!(remaining(&store, NOW, unknown), 10, "{}", name(&limit));
    }
}
