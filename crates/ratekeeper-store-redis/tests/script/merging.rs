//! Requests that are merged and batched are answered as if each had been asked by itself.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{Charge, CounterKey, Request, Step};
use ratekeeper_store_redis::script::{Call, Group};
use ratekeeper_testkit::redis::Server;

use crate::timed_store::{Queue, TimedStore, answers, load, names, push};

/// Requests for the same steps, which differ in their hits.
#[derive(Clone, Debug)]
struct DrawnGroup {
    mode: (bool, bool, bool),
    steps: Vec<DrawnStep>,
    /// The number of requests in each run, and the hits of each step.
    runs: Vec<(usize, Vec<i64>)>,
}

#[derive(Clone, Debug)]
struct DrawnStep {
    counter: usize,
    always: bool,
    shadow: bool,
    quota_mode: bool,
    next_descriptor: bool,
}

/// Any number of groups in one call, in a few calls: each answer is that of the request alone.
#[test]
fn merged_and_batched_answers_are_those_of_single_requests() {
    let server = Server::start();
    let limits = limits();
    let client = RefCell::new(server.client());
    let script = load(&mut client.borrow_mut());
    let calls = prop::collection::vec(
        (
            0..40_000_u64,
            prop::collection::vec(group(limits.len()), 1..6),
        ),
        1..6,
    );
    let config = Config {
        cases: 300,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&calls, |calls| {
        let (alone, names) = (TimedStore::new(&server), names());
        let mut now = Timestamp::from_micros(1_789_000_123_456_789);
        for (gap, drawn) in calls {
            now = now.after(Micros::from_millis(gap));
            let mut singles = Queue::default();
            let (mut call, mut groups) = (Call::new(), Vec::new());
            for group in &drawn {
                let merged = group.requests(&limits, now, |request| {
                    alone.queue(request, &mut singles);
                });
                for group in merged {
                    call.push(&group, &names);
                    groups.push(group);
                }
            }
            let mut pipeline = Vec::new();
            push(script, &call, now, &mut pipeline);
            let mut client = client.borrow_mut();
            client.send(&pipeline);
            let found = answers(&groups, &client.read());
            prop_assert_eq!(found, alone.answers(singles));
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// A hot counter costs one read and one write, for any number of requests.
#[test]
fn a_hot_counter_is_one_read_and_one_write() {
    let server = Server::start();
    let mut client = server.client();
    let script = load(&mut client);
    let spec = LimitSpec::new(Algorithm::SlidingWindow, 700, Micros::from_secs(3_600));
    let limit = Limit::try_new(spec).unwrap();
    let steps = [step(&limit, 0, 1)];
    let now = Timestamp::from_secs(1_789_000_123);
    let request = Request::new(&steps, Mode::default(), now);
    let mut group = Group::new(&request);
    assert!((1..5_000).all(|_| group.merge(&request)));
    let mut call = Call::new();
    call.push(&group, &names());
    assert!(call.plan().len() < 100, "{} bytes", call.plan().len());
    let mut pipeline = Vec::new();
    push(script, &call, now, &mut pipeline);
    client.ask(&["CONFIG", "RESETSTAT"]);
    client.send(&pipeline);
    let answers = answers(&[group], &client.read());
    assert_eq!(answers.len(), 5_000);
    assert_eq!(answers.iter().filter(|answer| answer.allowed).count(), 700);
    for command in ["get", "set", "evalsha"] {
        assert_eq!(client.calls(command), 1, "{command}");
    }
}

fn limits() -> Vec<Limit> {
    let limit = |algorithm, quota, sub_windows| {
        let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(60));
        Limit::try_new(LimitSpec {
            sub_windows,
            ..spec
        })
        .expect("a valid limit")
    };
    let mut limits: Vec<Limit> = Vec::new();
    for quota in [0, 6, 40, 5_000] {
        limits.extend(Algorithm::ALL.map(|algorithm| limit(algorithm, quota, None)));
        limits.push(limit(Algorithm::SlidingWindow, quota, Some(1)));
        let leaky = limit(Algorithm::LeakyBucket, quota, None);
        limits.extend([0, 20].map(|secs| leaky.with_delay_max(Micros::from_secs(secs))));
    }
    limits
}

fn group(limits: usize) -> impl Strategy<Value = DrawnGroup> {
    let [shadow, idle, denied] = [0.05, 0.1, 0.05].map(prop::bool::weighted);
    let mode = (shadow, idle, denied);
    (prop::collection::vec(drawn_step(limits), 1..4), mode).prop_flat_map(|(steps, mode)| {
        let hits = prop_oneof![8 => Just(1), 3 => 1..8_i64, 1 => 0..1_i64, 1 => -3..0_i64, 1 => 500..6_000_i64];
        let often = prop_oneof![7 => 1..8_usize, 1 => 8..30_usize];
        let run = (often, prop::collection::vec(hits, steps.len()));
        prop::collection::vec(run, 1..4).prop_map(move |runs| DrawnGroup {
            mode,
            steps: steps.clone(),
            runs,
        })
    })
}

fn drawn_step(limits: usize) -> impl Strategy<Value = DrawnStep> {
    let flags = [0.07, 0.15, 0.1, 0.5].map(prop::bool::weighted);
    (0..limits, flags).prop_map(|(counter, [always, shadow, quota_mode, next])| DrawnStep {
        counter,
        always,
        shadow,
        quota_mode,
        next_descriptor: next,
    })
}

impl DrawnGroup {
    /// The requests in order, merged as far as groups allow.
    fn requests(
        &self,
        limits: &[Limit],
        now: Timestamp,
        mut each: impl FnMut(&Request<'_>),
    ) -> Vec<Group> {
        let mode = Mode {
            shadow: self.mode.0,
            idle_quota: self.mode.1,
            denied: self.mode.2,
        };
        let mut groups: Vec<Group> = Vec::new();
        for (often, hits) in &self.runs {
            let steps = self.steps_of(limits, hits);
            let request = Request::new(&steps, mode, now);
            for _ in 0..*often {
                each(&request);
                let is_merged = groups.last_mut().is_some_and(|group| group.merge(&request));
                if !is_merged {
                    groups.push(Group::new(&request));
                }
            }
        }
        groups
    }

    fn steps_of(&self, limits: &[Limit], hits: &[i64]) -> Vec<Step> {
        let mut descriptor = 0;
        let make = |(drawn, hits): (&DrawnStep, &i64)| {
            descriptor += u16::from(drawn.next_descriptor);
            Step {
                charge: if drawn.always {
                    Charge::Always
                } else {
                    Charge::IfAllowed
                },
                descriptor,
                shadow: drawn.shadow,
                quota_mode: drawn.quota_mode,
                ..step(&limits[drawn.counter], drawn.counter as u64, *hits)
            }
        };
        self.steps.iter().zip(hits).map(make).collect()
    }
}

fn step(limit: &Limit, number: u64, hits: i64) -> Step {
    Step {
        hits,
        ..Step::new(
            CounterKey {
                subject: number % 3,
                identity: number,
            },
            *limit,
        )
    }
}
