//! Merged and batched requests are answered as if each had been asked by itself.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_core::{Algorithm, Limit, Micros, Mode, Timestamp};
use ratekeeper_store::{Answer, Charge, MemoryConfig, MemoryStore, Request, Step, Store, Verdicts};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::Server;

use crate::support::{limit, patient, step, store};

/// The number of different requests; each may be asked any number of times, with other hits.
const KINDS: usize = 4;

/// The arrival of requests, and the settings for batching them.
#[derive(Clone, Debug)]
struct Drawn {
    groups_max: usize,
    pipelines_max: usize,
    kinds: Vec<Kind>,
    /// Requests that arrive at the same time: the kind of each, and its hits.
    bursts: Vec<Vec<(usize, Vec<i64>)>>,
}

#[derive(Clone, Debug)]
struct Kind {
    mode: (bool, bool),
    steps: Vec<DrawnStep>,
}

#[derive(Clone, Debug)]
struct DrawnStep {
    limit: usize,
    counter: u64,
    always: bool,
    shadow: bool,
    quota_mode: bool,
    next_descriptor: bool,
}

/// Compares every field, by the server's own time.
#[tokio::test]
async fn answers_are_those_of_single_requests() {
    let server = Server::start();
    let (limits, mut merged, mut batched) = (limits(), 0, 0);
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new(config);
    for _ in 0..120 {
        let drawn = drawn(limits.len());
        let drawn = proptest::strategy::Strategy::new_tree(&drawn, &mut runner);
        let drawn = proptest::strategy::ValueTree::current(&drawn.expect("a history"));
        let mut config = patient();
        config.deny_cache_max = Duration::ZERO;
        config.groups_max = drawn.groups_max;
        config.pipelines_max = drawn.pipelines_max;
        let store = store(&server, config);
        let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        for burst in &drawn.bursts {
            let answers = ask(&store, &drawn, burst, &limits).await;
            for index in in_order(&answers, burst) {
                let (kind, hits) = &burst[index];
                let steps = drawn.kinds[*kind].steps(&limits, hits);
                let found = &answers[index];
                let request = Request::new(&steps, drawn.kinds[*kind].mode(), found.at);
                assert_eq!(*found, memory.decide_now(&request), "{burst:?}\n{drawn:?}");
            }
        }
        let counts = store.shards().remove(0);
        merged += counts.decisions - counts.calls;
        batched += counts.calls - counts.pipelines;
    }
    assert!(
        merged > 1_000 && batched > 100,
        "{merged} were merged, {batched} batched"
    );
}

/// Asks for all of a burst before any of it is answered.
async fn ask(
    store: &RedisStore,
    drawn: &Drawn,
    burst: &[(usize, Vec<i64>)],
    limits: &[Limit],
) -> Vec<Verdicts> {
    let mut tickets = Vec::new();
    for (kind, hits) in burst {
        let steps = drawn.kinds[*kind].steps(limits, hits);
        let request = Request::new(&steps, drawn.kinds[*kind].mode(), Timestamp::EPOCH);
        match store.decide(&request) {
            Answer::Pending(ticket) => tickets.push(ticket),
            Answer::Decided(verdicts) => panic!("{verdicts:?} was not asked for"),
        }
    }
    let mut answers = Vec::new();
    for ticket in tickets {
        answers.push(ticket.await.expect("the server answers"));
    }
    answers
}

/// The order of the decisions: by time, and within a call by groups, which take the place of their first request.
fn in_order(answers: &[Verdicts], burst: &[(usize, Vec<i64>)]) -> Vec<usize> {
    let mut firsts = HashMap::new();
    let mut places: Vec<_> = (0..answers.len())
        .map(|index| {
            let call = (answers[index].at, burst[index].0);
            let first = *firsts.entry(call).or_insert(index);
            (answers[index].at, first, index)
        })
        .collect();
    places.sort_unstable();
    places.into_iter().map(|(.., index)| index).collect()
}

fn limits() -> Vec<Limit> {
    let mut limits = Vec::new();
    for algorithm in Algorithm::ALL {
        for (quota, millis) in [(0, 50), (7, 20), (60, 3_600_000)] {
            limits.push(limit(algorithm, quota, Micros::from_millis(millis)));
        }
    }
    limits
}

fn drawn(limits: usize) -> impl Strategy<Value = Drawn> {
    let mode = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let kind = (mode, prop::collection::vec(drawn_step(limits), 1..4));
    let kind = kind.prop_map(|(mode, steps)| Kind { mode, steps });
    let hits = prop_oneof![9 => Just(1), 2 => 2..8_i64, 1 => Just(0), 1 => -3..0_i64];
    let request = (0..KINDS, prop::collection::vec(hits, 3));
    // No more than may be merged of requests that are stepped one by one.
    let burst = prop::collection::vec(request, 1..60);
    (
        1..5_usize,
        1..3_usize,
        prop::collection::vec(kind, KINDS),
        prop::collection::vec(burst, 1..8),
    )
        .prop_map(|(groups_max, pipelines_max, kinds, bursts)| Drawn {
            groups_max,
            pipelines_max,
            kinds: distinct(kinds),
            bursts,
        })
}

/// Each kind has a counter of its own before those that it shares, so that no two are merged.
fn distinct(mut kinds: Vec<Kind>) -> Vec<Kind> {
    for (number, kind) in (0..).zip(&mut kinds) {
        if let Some(first) = kind.steps.first_mut() {
            first.counter = 100 + number;
        }
    }
    kinds
}

fn drawn_step(limits: usize) -> impl Strategy<Value = DrawnStep> {
    let flags = [0.07, 0.15, 0.1, 0.5].map(prop::bool::weighted);
    (0..limits, flags).prop_map(|(limit, [always, shadow, quota_mode, next_descriptor])| {
        DrawnStep {
            limit,
            // A counter has one limit in all requests.
            counter: limit as u64,
            always,
            shadow,
            quota_mode,
            next_descriptor,
        }
    })
}

impl Kind {
    fn mode(&self) -> Mode {
        Mode {
            shadow: self.mode.0,
            idle_quota: self.mode.1,
            denied: false,
        }
    }

    fn steps(&self, limits: &[Limit], hits: &[i64]) -> Vec<Step> {
        let mut descriptor = 0;
        let make = |(drawn, hits): (&DrawnStep, &i64)| {
            descriptor += u16::from(drawn.next_descriptor);
            Step {
                hits: *hits,
                charge: match drawn.always {
                    true => Charge::Always,
                    false => Charge::IfAllowed,
                },
                descriptor,
                shadow: drawn.shadow,
                quota_mode: drawn.quota_mode,
                ..step(&limits[drawn.limit], drawn.counter)
            }
        };
        self.steps.iter().zip(hits).map(make).collect()
    }
}
