//! The simulation of leases with the script in a real Redis as its store.

use std::collections::BTreeSet;

use ratekeeper_core::lease::Terms;
use ratekeeper_core::{Micros, Mode, Moment, Timestamp};
use ratekeeper_store::{CounterKey, Post, Request, Step};
use ratekeeper_store_redis::script::{
    Call, Group, Item, KeyName, LeaseAction, LeaseCall, LeaseOutcome, Script, decode_lease_calls,
};
use ratekeeper_testkit::leases::{
    LEASED_ALGORITHMS, LeaseAnswer, LeasePlan, LeaseRequest, LeaseSimulation, LeaseStore,
    LeaseTotals, LeaseTrouble,
};
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::told::{answers, items, load, names, push};

/// Seeds of each algorithm and trouble: 128 runs in all.
const SEEDS: u64 = 8;

/// The only counter of a run.
const KEY: CounterKey = CounterKey {
    subject: 1,
    identity: 2,
};

/// The time for which a return is carried out, as in the store.
const RETURNED_WITHIN: Micros = Micros::from_secs(2);

/// A counter in Redis, asked by the script that is told the time.
struct Scripted<'a> {
    client: &'a mut Client,
    script: &'a Script,
    names: KeyName,
    /// Grants, returns and posts that were carried out.
    known: BTreeSet<(u8, u128)>,
    recorded: u64,
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

    fn lease(&mut self, lease_call: &LeaseCall, now: Timestamp) -> LeaseOutcome {
        let mut call = Call::new();
        call.push_lease_call(lease_call, &self.names);
        let reply = self.ask(&call, now);
        let outcomes = decode_lease_calls(&[*lease_call], items(&reply));
        match outcomes.as_deref() {
            Ok([outcome]) => *outcome,
            other => panic!("{other:?} to {lease_call:?}: {reply:?}"),
        }
    }

    fn exact(&mut self, terms: &Terms, hits: u64, now: Timestamp) -> bool {
        let step = Step {
            hits: i64::try_from(hits).expect("few hits"),
            ..Step::new(KEY, *terms.limit())
        };
        let group = Group::new(&Request::new(&[step], Mode::default(), now));
        let reply = self.group(&group, now);
        answers(&[group], &reply)[0].allowed
    }

    fn post(&mut self, terms: &Terms, (id, hits): (u128, u64), now: Timestamp) -> u64 {
        let post = Post {
            id,
            step: Step {
                hits: i64::try_from(hits).expect("few hits"),
                ..Step::new(KEY, *terms.limit())
            },
            age: Micros::ZERO,
            named_by: None,
        };
        let reply = self.group(&Group::of_post(&post), now);
        match items(&reply)[..] {
            [_, Item::Int(charged)] => u64::try_from(charged).expect("it was carried out"),
            ref other => panic!("{other:?}"),
        }
    }

    /// Returns true the first time that this is asked of `id`.
    fn is_new(&mut self, kind: u8, id: u128) -> bool {
        self.known.insert((kind, id))
    }
}

impl LeaseStore for Scripted<'_> {
    fn carry_out(
        &mut self,
        plan: &LeasePlan,
        request: &LeaseRequest,
        nodes: u64,
        at: &Moment,
    ) -> LeaseAnswer {
        let lease_call = |terms: &Terms, id, action| LeaseCall {
            key: KEY,
            terms: *terms,
            calendar: None,
            id,
            action,
        };
        match *request {
            LeaseRequest::Exact { hits, version } => {
                match self.exact(&plan.terms[version], hits, at.now) {
                    true => {
                        self.recorded += hits;
                        LeaseAnswer::Admitted(hits)
                    }
                    false => LeaseAnswer::Denied,
                }
            }
            LeaseRequest::Grant { id, want, version } => {
                let action = LeaseAction::Grant {
                    want,
                    nodes,
                    kept: Micros::from_secs(1),
                };
                let lease_call = lease_call(&plan.terms[version], id & !1, action);
                let LeaseOutcome::Granted(grant) = self.lease(&lease_call, at.now) else {
                    panic!("nothing else lies there");
                };
                // An empty grant is not remembered: a repeat may be given something.
                if grant.hits > 0 && self.is_new(0, id) {
                    self.recorded += grant.hits;
                }
                LeaseAnswer::Granted(id, grant)
            }
            LeaseRequest::Return {
                id,
                granted_at,
                place,
                left,
                version,
            } => {
                let terms = &plan.terms[version];
                let within = terms.ttl().get() + RETURNED_WITHIN.get();
                let within = terms.limit().window().min(Micros::new(within));
                let action = LeaseAction::Return {
                    granted_at,
                    place,
                    left,
                    until: granted_at.after(within),
                };
                let lease_call = lease_call(terms, id | 1, action);
                let LeaseOutcome::Returned(given) = self.lease(&lease_call, at.now) else {
                    panic!("nothing else lies there");
                };
                if given > 0 && self.is_new(1, id) {
                    self.recorded -= given;
                }
                LeaseAnswer::Returned(id)
            }
            LeaseRequest::Post { id, hits } => {
                let charged = self.post(&plan.terms[0], (id, hits), at.now);
                if self.is_new(2, id) {
                    self.recorded += charged;
                }
                LeaseAnswer::Posted(id, charged)
            }
        }
    }

    fn recorded(&self) -> u64 {
        self.recorded
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
                    script: &script,
                    names: names(),
                    known: BTreeSet::new(),
                    recorded: 0,
                });
                totals += played.unwrap_or_else(|broken| panic!("{broken}"));
            }
        }
        println!("{}: {totals:?}", algorithm.name());
        assert!(totals.from_leases > 0, "{}: {totals:?}", algorithm.name());
    }
}
