//! The simulation of leases with the script in a real Redis as its store.

use ratekeeper_core::lease::{Escrow, LeaseReport, Settled, Terms};
use ratekeeper_core::{Limit, Micros, Mode, Moment, Timestamp};
use ratekeeper_store::{CounterKey, Post, Request, Step};
use ratekeeper_store_redis::script::{
    Call, Group, Item, KeyName, LeaseCall, LeaseOutcome, Script, decode_lease_calls,
};
use ratekeeper_testkit::leases::{
    LEASED_ALGORITHMS, LeasePlan, LeaseSimulation, LeaseStore, LeaseTotals, LeaseTrouble,
};
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::timed_store::{answers, items, load, names, push};

/// Seeds of each algorithm and trouble: 128 runs in all.
const SEEDS: u64 = 8;

/// The only counter of a run.
const KEY: CounterKey = CounterKey {
    subject: 1,
    identity: 2,
};

/// A counter in Redis, asked by the script that is told the time.
struct Scripted<'a> {
    client: &'a mut Client,
    script: &'a Script,
    names: KeyName,
}

impl Scripted<'_> {
    fn ask(&mut self, call: &Call, now: Timestamp) -> Reply {
        let mut pipeline = Vec::new();
        push(self.script, call, now, &mut pipeline);
        self.client.send(&pipeline);
        self.client.read()
    }

    fn group(&mut self, group: &Group, now: Timestamp) -> Reply {
        let mut call = Call::new();
        call.push(group, &self.names);
        self.ask(&call, now)
    }
}

fn step(limit: &Limit, hits: u64) -> Step {
    Step {
        hits: i64::try_from(hits).expect("few hits"),
        ..Step::new(KEY, *limit)
    }
}

impl LeaseStore for Scripted<'_> {
    fn settle(
        &mut self,
        _: &LeasePlan,
        terms: &Terms,
        report: &LeaseReport,
        at: &Moment,
    ) -> Settled {
        let lease_call = LeaseCall {
            key: KEY,
            terms: *terms,
            calendar: None,
            lent: None,
            counted: None,
            report: *report,
        };
        let mut call = Call::new();
        call.push_lease_call(&lease_call, &self.names);
        let reply = self.ask(&call, at.now);
        let outcomes = decode_lease_calls(&[lease_call], items(&reply));
        match outcomes.as_deref() {
            Ok([LeaseOutcome::Old]) => Settled::Old,
            Ok([LeaseOutcome::Settled { holding, .. }]) => Settled::Holds(*holding),
            other => panic!("{other:?} to {lease_call:?}: {reply:?}"),
        }
    }

    fn exact(&mut self, _: &LeasePlan, limit: &Limit, hits: u64, at: &Moment) -> bool {
        let group = Group::new(&Request::new(&[step(limit, hits)], Mode::default(), at.now));
        let reply = self.group(&group, at.now);
        answers(&[group], &reply)[0].allowed
    }

    fn post(&mut self, _: &LeasePlan, limit: &Limit, post: (u128, u64), at: &Moment) -> u64 {
        let (id, hits) = post;
        let post = Post {
            id,
            step: step(limit, hits),
            age: Micros::ZERO,
            named_by: None,
        };
        let reply = self.group(&Group::of_post(&post), at.now);
        match items(&reply)[..] {
            [_, Item::Int(charged)] => u64::try_from(charged).expect("it was carried out"),
            ref other => panic!("{other:?}"),
        }
    }

    fn held(&mut self) -> u64 {
        let mut call = Call::new();
        let limit = Limit::try_new(ratekeeper_core::LimitSpec::new(
            ratekeeper_core::Algorithm::FixedWindow,
            1,
            Micros::from_secs(1),
        ));
        let look = step(&limit.expect("a valid limit"), 0);
        let group = Group::new(&Request::new(&[look], Mode::default(), Timestamp::EPOCH));
        call.push(&group, &self.names);
        let key = String::from_utf8_lossy(call.keys().next().expect("it has a key")).into_owned();
        match self.client.ask(&["GET", &key]) {
            Reply::Bytes(value) => {
                let read = Escrow::decode(&value);
                read.expect("it is a counter").0.held()
            }
            _ => 0,
        }
    }
}

#[test]
fn simulated_nodes_admit_no_more_than_the_limit_by_the_script_in_redis() {
    let server = Server::start();
    let mut client = server.client();
    let script = load(&mut client);
    for algorithm in LEASED_ALGORITHMS {
        let mut totals = LeaseTotals::default();
        for trouble in [
            LeaseTrouble::Usual,
            LeaseTrouble::ClockBack,
            LeaseTrouble::ClockForward,
            LeaseTrouble::Owed,
        ] {
            for seed in 0..SEEDS {
                let run = LeaseSimulation {
                    seed,
                    algorithm,
                    trouble,
                    without: None,
                };
                let played = run.run(|_| Scripted {
                    client: &mut client,
                    script,
                    names: names(),
                });
                totals += played.unwrap_or_else(|broken| panic!("{broken}"));
            }
        }
        println!("{}: {totals:?}", algorithm.name());
        assert!(totals.from_leases > 0, "{}: {totals:?}", algorithm.name());
    }
}
