//! Grants and returns in a real server and in core, on the same random histories, with exact steps between them.

use std::collections::BTreeMap;

use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper_core::lease::{Grant, Terms};
use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, MAX_COUNT, Micros, Mode, Moment, Spill, State, Timestamp,
};
use ratekeeper_store::{CounterKey, Request, Step, StepOutcome};
use ratekeeper_store_redis::script::{
    Call, Group, KeyName, LeaseAction, LeaseCall, LeaseOutcome, Script, decode_lease_calls,
};
use ratekeeper_testkit::model::history::{History, histories};
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::told::{answers, items, load, names, push};

/// Acts on each algorithm's counters: 60,000 in all.
const ACTS: usize = 12_000;

/// Counters that are used side by side.
const LANES: usize = 200;

/// The most grants of a counter that returns and repeats refer to.
const GRANTS_MAX: usize = 6;

const LEASABLE: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
];

#[test]
fn grants_and_returns_equal_core() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in LEASABLE {
        let seen = redis.play(drawn(algorithm, 0.0));
        assert!(seen.granted > ACTS / 20, "{algorithm:?}: {seen:?}");
        assert!(seen.repeated > ACTS / 100, "{algorithm:?}: {seen:?}");
        let is_bucket = algorithm.has_burst();
        assert_eq!(seen.returned == 0, is_bucket, "{algorithm:?}: {seen:?}");
    }
}

#[test]
fn grants_and_returns_equal_core_while_the_clock_steps_both_ways() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in LEASABLE {
        let seen = redis.play(drawn(algorithm, 0.2));
        assert!(seen.granted > ACTS / 20, "{algorithm:?}: {seen:?}");
    }
}

/// The outcomes that a run has met.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    granted: usize,
    returned: usize,
    repeated: usize,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a test makes a few of them")]
enum Act {
    Exact(i64),
    LeaseCall(LeaseCall),
}

/// A counter, in core.
struct Lane {
    terms: Terms,
    moves: std::vec::IntoIter<ratekeeper_testkit::model::history::Move>,
    now: Timestamp,
    end: Timestamp,
    back: f64,
    state: State,
    grants: Vec<(u128, LeaseAction, Grant)>,
    /// Hits that were given back, by id.
    returns: BTreeMap<u128, (LeaseAction, u64)>,
    random: u64,
    key: CounterKey,
}

impl Lane {
    fn new(history: History, back: f64) -> Option<Self> {
        let limit = history.limit();
        let random = history.start.as_micros() | 1;
        let longest = Micros::new(limit.window().get() / 4);
        let terms = Terms::try_new(&limit, longest).ok()?;
        let windows = limit.capacity() / limit.quota().max(1) + 4;
        let reach = limit.window().get().saturating_mul(windows);
        Some(Self {
            terms,
            moves: history.moves.into_iter(),
            now: history.start,
            end: Timestamp::from_micros(MAX_COUNT.saturating_sub(reach)),
            back,
            state: State::new(terms.limit().shape()),
            grants: Vec::new(),
            returns: BTreeMap::new(),
            random,
            key: CounterKey {
                subject: 0,
                identity: 0,
            },
        })
    }

    fn word(&mut self) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    fn chance(&mut self) -> f64 {
        self.word() as f64 / (1_u64 << 31) as f64
    }

    fn limit(&self) -> &Limit {
        self.terms.limit()
    }

    fn advance(&mut self) -> Option<Act> {
        let moved = self.moves.next()?;
        // Half of the time a lease's time passes, or none, so that returns find what they return.
        self.now = match self.word() % 4 {
            0 => self.now,
            1 => self
                .now
                .after(Micros::new(self.word() % (self.terms.ttl().get() + 1))),
            _ if self.chance() < self.back => moved.gap.before(self.now, self.limit(), None),
            _ => moved.gap.after(self.now, self.limit(), None),
        };
        if self.now > self.end {
            return None;
        }
        let hits = moved.hits.number(self.limit(), None);
        Some(match self.word() % 4 {
            0 => Act::Exact(hits.clamp(1, self.limit().capacity().max(1) as i64)),
            1 | 2 => Act::LeaseCall(self.grant(hits.unsigned_abs().clamp(1, 1 << 31))),
            _ => Act::LeaseCall(self.give_back()),
        })
    }

    fn lease_call(&self, id: u128, action: LeaseAction) -> LeaseCall {
        LeaseCall {
            key: self.key,
            terms: self.terms,
            calendar: None,
            id,
            action,
        }
    }

    fn grant(&mut self, want: u64) -> LeaseCall {
        if self.word().is_multiple_of(8) && !self.grants.is_empty() {
            let which = self.word() as usize % self.grants.len();
            let (id, action, _) = self.grants[which];
            return self.lease_call(id, action);
        }
        let action = LeaseAction::Grant {
            want,
            nodes: 1 + self.word() % 4,
            // Records outlive their expiry by an hour of the server's clock.
            kept: Micros::from_secs(1),
        };
        let id = u128::from(self.word()) << 64 | u128::from(self.word()) << 1;
        self.lease_call(id, action)
    }

    fn give_back(&mut self) -> LeaseCall {
        if self.grants.is_empty() {
            return self.grant(3);
        }
        let which = self.word() as usize % self.grants.len();
        let (id, _, grant) = self.grants[which];
        let id = id | 1;
        if let Some((action, _)) = self.returns.get(&id) {
            return self.lease_call(id, *action);
        }
        let left = match self.word() % 3 {
            0 => grant.hits,
            _ => 1 + self.word() % grant.hits,
        };
        let until = match self.word() % 4 {
            0 => grant.at.after(self.terms.ttl()),
            _ => grant.at.after(self.limit().window()),
        };
        let action = LeaseAction::Return {
            granted_at: grant.at,
            place: grant.place,
            left,
            until,
        };
        self.lease_call(id, action)
    }

    fn exact(&mut self, hits: i64) -> ratekeeper_core::Outcome {
        let at = Moment::at(self.now);
        let limit = *self.limit();
        let outcome = limit.test(self.state.as_ref(), Ask::hits(hits), &at);
        let settles = limit.is_ahead(self.state.as_ref(), self.now);
        if !outcome.fits() && !settles {
            return outcome;
        }
        let charged = if outcome.fits() { hits } else { 0 };
        if limit.charge(self.state.as_mut(), charged, &at) == Err(Spill) {
            let State::Words(words) = &self.state else {
                unreachable!("a heap never spills")
            };
            self.state = State::Heap(limit.spill(words));
            let charged = limit.charge(self.state.as_mut(), charged, &at);
            charged.expect("a heap never spills");
        }
        outcome
    }

    /// The outcome in core of a call, and whether it is a repeat.
    fn lease_call_in_core(&mut self, lease_call: &LeaseCall) -> (LeaseOutcome, bool) {
        let at = Moment::at(self.now);
        match lease_call.action {
            LeaseAction::Grant { want, nodes, .. } => {
                let before = self.grants.iter().find(|(id, ..)| *id == lease_call.id);
                if let Some((_, _, grant)) = before {
                    return (LeaseOutcome::Granted(*grant), true);
                }
                let grant = self.terms.grant(&mut self.state, want, nodes, &at);
                if grant.hits > 0 {
                    self.grants.push((lease_call.id, lease_call.action, grant));
                }
                if self.grants.len() > GRANTS_MAX {
                    self.grants.remove(0);
                }
                (LeaseOutcome::Granted(grant), false)
            }
            LeaseAction::Return {
                granted_at,
                place,
                left,
                until,
            } => {
                if let Some((_, given)) = self.returns.get(&lease_call.id) {
                    return (LeaseOutcome::Returned(*given), true);
                }
                if self.now >= until {
                    return (LeaseOutcome::Returned(0), false);
                }
                let lease = (granted_at, place);
                let given = self.terms.give_back(&mut self.state, lease, left, &at);
                self.returns
                    .insert(lease_call.id, (lease_call.action, given));
                (LeaseOutcome::Returned(given), false)
            }
        }
    }
}

fn drawn(algorithm: Algorithm, back: f64) -> Vec<Lane> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let strategy = histories(algorithm);
    let (mut lanes, mut moves) = (Vec::new(), 0);
    while moves < ACTS {
        use proptest::strategy::Strategy;
        let tree = strategy.new_tree(&mut runner).expect("there are histories");
        if let Some(lane) = Lane::new(tree.current(), back) {
            moves += lane.moves.len();
            lanes.push(lane);
        }
    }
    lanes
}

struct Redis {
    client: Client,
    script: Script,
}

impl Redis {
    fn new(server: &Server) -> Self {
        let mut client = server.client();
        let script = load(&mut client);
        Self { client, script }
    }

    fn play(&mut self, mut lanes: Vec<Lane>) -> Seen {
        let mut seen = Seen::default();
        for lanes in lanes.chunks_mut(LANES) {
            let names = names();
            for (number, lane) in lanes.iter_mut().enumerate() {
                lane.key.subject = number as u64;
            }
            while self.round(lanes, &names, &mut seen) > 0 {}
        }
        seen
    }

    fn round(&mut self, lanes: &mut [Lane], names: &KeyName, seen: &mut Seen) -> usize {
        let (mut pipeline, mut sent) = (Vec::new(), Vec::new());
        for (index, lane) in lanes.iter_mut().enumerate() {
            let Some(act) = lane.advance() else {
                lane.moves = Vec::new().into_iter();
                continue;
            };
            let mut call = Call::new();
            match &act {
                Act::Exact(hits) => call.push(&group(lane, *hits), names),
                Act::LeaseCall(lease_call) => call.push_lease_call(lease_call, names),
            }
            push(&self.script, &call, lane.now, &mut pipeline);
            sent.push((index, act));
        }
        self.client.send(&pipeline);
        for (index, act) in &sent {
            let reply = self.client.read();
            compare(&mut lanes[*index], act, &reply, seen);
        }
        sent.len()
    }
}

fn group(lane: &Lane, hits: i64) -> Group {
    let step = Step {
        hits,
        ..Step::new(lane.key, *lane.limit())
    };
    Group::new(&Request::new(&[step], Mode::default(), lane.now))
}

fn compare(lane: &mut Lane, act: &Act, reply: &Reply, seen: &mut Seen) {
    let before = lane.state.clone();
    let told = || {
        format!(
            "{act:?} at {:?}\nof {:?}\nin {before:?}\n{reply:?}",
            lane.now, lane.terms
        )
    };
    match act {
        Act::Exact(hits) => {
            let told = told();
            let verdicts = answers(&[group(lane, *hits)], reply);
            let expected = StepOutcome::Counted(lane.exact(*hits));
            assert_eq!(verdicts[0].outcomes[0], expected, "{told}");
        }
        Act::LeaseCall(lease_call) => {
            let told = told();
            let found = decode_lease_calls(&[*lease_call], items(reply));
            let found = found.unwrap_or_else(|why| panic!("{why}: {told}"));
            let (expected, is_repeat) = lane.lease_call_in_core(lease_call);
            assert!(
                is_same(&found, &expected),
                "{expected:?} is not {found:?}: {told}"
            );
            seen.repeated += usize::from(is_repeat);
            match expected {
                LeaseOutcome::Granted(grant) => seen.granted += usize::from(grant.hits > 0),
                LeaseOutcome::Returned(given) => seen.returned += usize::from(given > 0),
                LeaseOutcome::Corrupt => unreachable!("core has no such counters"),
            }
        }
    }
}

/// An empty grant has no place.
fn is_same(found: &[LeaseOutcome], expected: &LeaseOutcome) -> bool {
    match (found, expected) {
        ([LeaseOutcome::Granted(found)], LeaseOutcome::Granted(expected)) if expected.hits == 0 => {
            (found.hits, found.at, found.outcome) == (0, expected.at, expected.outcome)
        }
        _ => found == [*expected],
    }
}

/// A key that holds something else is told, and nothing is done.
#[test]
fn a_key_that_holds_something_else_is_told() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    let spec = LimitSpec::new(Algorithm::FixedWindow, 100, Micros::from_secs(60));
    let limit = Limit::try_new(spec).expect("a valid limit");
    let terms = Terms::try_new(&limit, Micros::from_millis(100)).expect("it can be leased");
    let names = KeyName::new("other:");
    for (action, is_counter) in [(0, true), (0, false), (1, true), (1, false)] {
        let lease_call = LeaseCall {
            key: CounterKey {
                subject: 1,
                identity: 2 + action + u64::from(is_counter) * 2,
            },
            terms,
            calendar: None,
            id: 8 + u128::from(action) + u128::from(is_counter) * 2,
            action: match action {
                0 => LeaseAction::Grant {
                    want: 5,
                    nodes: 1,
                    kept: Micros::from_secs(1),
                },
                _ => LeaseAction::Return {
                    granted_at: Timestamp::from_micros(60_000_000),
                    place: ratekeeper_core::lease::Place::Window(Timestamp::from_micros(
                        60_000_000,
                    )),
                    left: 5,
                    until: Timestamp::from_micros(120_000_000),
                },
            },
        };
        let mut call = Call::new();
        call.push_lease_call(&lease_call, &names);
        let keys: Vec<&[u8]> = call.keys().collect();
        let key = String::from_utf8_lossy(keys[usize::from(!is_counter)]).into_owned();
        assert_eq!(redis.client.ask(&["SADD", &key, "x"]), Reply::Int(1));
        let mut pipeline = Vec::new();
        push(
            &redis.script,
            &call,
            Timestamp::from_micros(61_000_000),
            &mut pipeline,
        );
        redis.client.send(&pipeline);
        let reply = redis.client.read();
        let found = decode_lease_calls(&[lease_call], items(&reply));
        assert_eq!(found, Ok(vec![LeaseOutcome::Corrupt]), "{reply:?}");
    }
}
