//! Random histories of requests, compared with the pure steps of core.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, Micros, Mode, Moment, Spill, State, StateMut, Timestamp,
    combine,
};
use ratekeeper_store::{
    Charge, CounterKey, Execution, Request, Step, StepOutcome, Store, Verdicts,
};

use super::{NOW, decide, every_budget, every_limit, step};

/// A generated request.
#[derive(Clone, Debug)]
struct Drawn {
    /// Milliseconds since the previous one.
    gap: u64,
    mode: (bool, bool, bool),
    steps: Vec<DrawnStep>,
}

#[derive(Clone, Debug)]
struct DrawnStep {
    counter: usize,
    hits: i64,
    always: bool,
    shadow: bool,
    quota_mode: bool,
    next_descriptor: bool,
}

/// Checks that every field of every answer equals that of the pure steps, in so many histories.
///
/// # Panics
/// If they differ, with the smallest history found.
pub fn equals_the_pure_steps<S: Store>(make: impl Fn() -> S, histories: u32) {
    let limits: Vec<Limit> = every_limit(6)
        .chain(every_limit(0))
        .chain(every_limit(70_000))
        .chain(every_budget(6))
        .chain(every_budget(70_000))
        .chain(every_budget(6).map(|limit| limit.reserving()))
        .chain(special())
        .collect();
    let history = prop::collection::vec(request(limits.len()), 1..40);
    let config = Config {
        cases: histories,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&history, |history| {
        let (store, mut model, mut now) = (make(), Model::default(), NOW);
        for drawn in history {
            now = now.after(Micros::from_millis(drawn.gap));
            let steps = drawn.steps(&limits);
            let mode = Mode {
                shadow: drawn.mode.0,
                idle_quota: drawn.mode.1,
                denied: drawn.mode.2,
            };
            let request = Request::new(&steps, mode, now);
            prop_assert_eq!(decide(&store, &request), model.decide(&request));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Limits that say more than their quota: a strict one, and budgets with a debt of their own.
fn special() -> impl Iterator<Item = Limit> {
    let hour = Micros::from_secs(3_600);
    let strict = LimitSpec {
        strict: true,
        ..LimitSpec::new(Algorithm::SlidingWindow, 60, hour)
    };
    let budgets = [Algorithm::TokenBucket, Algorithm::Gcra].map(|algorithm| LimitSpec {
        post_paid: true,
        max_debt: Some(9),
        ..LimitSpec::new(algorithm, 6, hour)
    });
    let specs = [strict].into_iter().chain(budgets);
    specs.filter_map(|spec| Limit::try_new(spec).ok())
}

fn request(limits: usize) -> impl Strategy<Value = Drawn> {
    let gap = prop_oneof![Just(0), 0..50_u64, 0..4_000_000_u64];
    let [shadow, idle, denied] = [0.05, 0.1, 0.05].map(prop::bool::weighted);
    let mode = (shadow, idle, denied);
    let steps = prop::collection::vec(drawn_step(limits), 1..6);
    (gap, mode, steps).prop_map(|(gap, mode, steps)| Drawn { gap, mode, steps })
}

fn drawn_step(limits: usize) -> impl Strategy<Value = DrawnStep> {
    let hits = prop_oneof![6 => Just(1), 2 => 0..8_i64, 1 => -3..0_i64, 1 => 20_000..70_000_i64];
    let flags = [0.15, 0.15, 0.15, 0.5].map(prop::bool::weighted);
    (0..limits, hits, flags).prop_map(|(counter, hits, [always, shadow, quota_mode, next])| {
        DrawnStep {
            counter,
            hits,
            always,
            shadow,
            quota_mode,
            next_descriptor: next,
        }
    })
}

impl Drawn {
    fn steps(&self, limits: &[Limit]) -> Vec<Step> {
        let mut descriptor = 0;
        let make = |drawn: &DrawnStep| {
            descriptor += u16::from(drawn.next_descriptor);
            Step {
                hits: drawn.hits,
                charge: if drawn.always || is_paid(&limits[drawn.counter]) {
                    Charge::Always
                } else {
                    Charge::IfAllowed
                },
                descriptor,
                shadow: drawn.shadow,
                quota_mode: drawn.quota_mode,
                ..step(&limits[drawn.counter], drawn.counter as u64)
            }
        };
        let mut steps: Vec<Step> = self.steps.iter().map(make).collect();
        let is_spread = |one: &Step, other: &Step| one.key.subject != other.key.subject;
        if steps.iter().any(|step| is_spread(step, &steps[0])) {
            // Hits taken without a permit id cannot be identified later, so a store spread over
            // several places does not promise to give them back.
            let permits = |step: &&mut Step| step.limit.algorithm() == Algorithm::Concurrency;
            let permits = steps.iter_mut().filter(permits);
            permits.for_each(|step| step.hits = step.hits.min(0));
            // A bucket that a charge of a denied request has filled is full, however little was in it before:
            // returning another step's hits then makes room that the pure steps do not see. One
            // rule charges all steps of its counter alike, so requests do not mix the two.
            for at in 1..steps.len() {
                let (earlier, rest) = steps.split_at_mut(at);
                let same = earlier.iter().find(|step| step.key == rest[0].key);
                if let Some(same) = same {
                    rest[0].charge = same.charge;
                }
            }
        }
        steps
    }
}

/// True of a limit whose hits were used before anybody asked.
const fn is_paid(limit: &Limit) -> bool {
    limit.is_post_paid() && !limit.is_reserving()
}

/// A minimal store, neither fast nor small.
#[derive(Default)]
struct Model {
    counters: HashMap<CounterKey, State>,
    now: Timestamp,
}

impl Model {
    fn decide(&mut self, request: &Request<'_>) -> Verdicts {
        self.now = self.now.max(request.now);
        let mut taken: HashMap<CounterKey, u64> = HashMap::new();
        let mut outcomes = Vec::new();
        for step in request.steps {
            let taken = taken.entry(step.key).or_default();
            let ask = Ask {
                taken: *taken,
                hits: step.hits,
            };
            let at = Moment {
                now: self.now,
                calendar: step.calendar,
            };
            let fresh = State::new(step.limit.shape());
            let state = self.counters.get(&step.key).unwrap_or(&fresh);
            let outcome = step.limit.test(state.as_ref(), ask, &at);
            if outcome.fits() || step.charge == Charge::Always {
                *taken += step.hits.max(0).unsigned_abs();
            }
            outcomes.push(outcome);
        }
        let votes =
            request
                .steps
                .iter()
                .zip(&outcomes)
                .map(|(step, outcome)| ratekeeper_core::Vote {
                    fits: outcome.fits(),
                    descriptor: step.descriptor,
                    shadow: step.shadow,
                    quota_mode: step.quota_mode,
                });
        let allowed = combine(votes, request.mode);
        for (step, outcome) in request.steps.iter().zip(&outcomes) {
            let charged =
                step.hits < 0 || step.charge == Charge::Always || (allowed && outcome.fits());
            self.charge(step, if charged { step.hits } else { 0 });
        }
        Verdicts {
            allowed,
            outcomes: outcomes.into_iter().map(StepOutcome::Counted).collect(),
            at: self.now,
            execution: Execution::Now,
        }
    }

    /// Charges a counter; only a take creates it.
    fn charge(&mut self, step: &Step, hits: i64) {
        if hits > 0 {
            let fresh = State::new(step.limit.shape());
            self.counters.entry(step.key).or_insert(fresh);
        }
        let Some(state) = self.counters.get_mut(&step.key) else {
            return;
        };
        let at = Moment {
            now: self.now,
            calendar: step.calendar,
        };
        if step.limit.charge(state.as_mut(), hits, &at) == Err(Spill)
            && let State::Words(words) = state
        {
            let mut heap = step.limit.spill(words);
            let _ = step.limit.charge(StateMut::Heap(&mut heap), hits, &at);
            *state = State::Heap(heap);
        }
    }
}
