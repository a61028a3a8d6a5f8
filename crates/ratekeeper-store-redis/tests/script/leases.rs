//! Calls for leases in a real server and in core, on the same random histories, with exact steps between them.

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper_core::lease::{Escrow, LEASE_MAX, LeaseReport, Settled, Terms};
use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, MAX_COUNT, Micros, Mode, Moment, Spill, State, Timestamp,
};
use ratekeeper_store::{CounterKey, OtherLeases, Request, Step, StepOutcome};
use ratekeeper_store_redis::script::{
    AnswerError, Call, Group, KeyName, LeaseCall, LeaseOutcome, Script, SettledCounter, decode,
    decode_lease_calls,
};
use ratekeeper_testkit::model::history::{History, Move, histories};
use ratekeeper_testkit::random::Random;
use ratekeeper_testkit::redis::{Client, Reply, Server};

use crate::timed_store::{answers, items, load, names, push};

/// Acts on each algorithm's counters: 96,000 in all.
const ACTS: usize = 12_000;

/// Counters that are used side by side.
const LANES: usize = 200;

/// Nodes that lease a counter.
const NODES: usize = 3;

const LEASABLE: [Algorithm; 4] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
];

#[test]
fn calls_for_leases_equal_core() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in LEASABLE {
        let seen = redis.play(drawn(algorithm, 0.0));
        println!("{algorithm:?}: {seen:?}");
        assert!(seen.fresh > ACTS / 20, "{algorithm:?}: {seen:?}");
        assert!(seen.renewed > ACTS / 50, "{algorithm:?}: {seen:?}");
        assert!(seen.old > ACTS / 100, "{algorithm:?}: {seen:?}");
        assert!(seen.held_back > ACTS / 500, "{algorithm:?}: {seen:?}");
    }
}

/// By the value that was there: what is written where nothing was charged differs, and shows when a clock goes back.
#[test]
fn calls_for_leases_equal_core_while_the_clock_steps_both_ways() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in LEASABLE {
        let seen = redis.play(drawn(algorithm, 0.2));
        println!("{algorithm:?}: {seen:?}");
        assert!(seen.fresh > ACTS / 20, "{algorithm:?}: {seen:?}");
    }
}

/// The outcomes that a run has met.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    fresh: usize,
    renewed: usize,
    old: usize,
    /// Hits that were denied because of what is held.
    held_back: usize,
}

#[expect(
    clippy::large_enum_variant,
    reason = "there are few, and they are copied"
)]
#[derive(Clone, Copy, Debug)]
enum Act {
    Exact(i64),
    LeaseCall(LeaseCall),
}

/// A node's last call.
#[derive(Clone, Copy, Default)]
struct Node {
    number: u64,
    since: u64,
    spent: u64,
}

/// A counter, in core.
struct Lane {
    terms: Terms,
    moves: std::vec::IntoIter<Move>,
    now: Timestamp,
    end: Timestamp,
    back: f64,
    state: State,
    escrow: Escrow,
    nodes: [Node; NODES],
    random: Random,
    key: CounterKey,
}

impl Lane {
    fn new(history: History, back: f64) -> Option<Self> {
        let limit = history.limit();
        let random = Random::new(history.start.as_micros());
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
            escrow: Escrow::default(),
            nodes: [Node::default(); NODES],
            random,
            key: CounterKey {
                subject: 0,
                identity: 0,
            },
        })
    }

    fn limit(&self) -> &Limit {
        self.terms.limit()
    }

    fn advance(&mut self) -> Option<Act> {
        let moved = self.moves.next()?;
        // Mostly a part of a lease's time passes, or none, so that calls find leases.
        self.now = match self.random.below(6) {
            0 | 1 => self.now,
            2..=4 => {
                let most = self.terms.ttl().get() / 2 + 1;
                self.now.after(Micros::new(self.random.below(most)))
            }
            _ if self.random.unit() < self.back => moved.gap.before(self.now, self.limit(), None),
            _ => moved.gap.after(self.now, self.limit(), None),
        };
        if self.now > self.end {
            return None;
        }
        let hits = moved.hits.number(self.limit(), None);
        let most = self.limit().capacity().max(1) as i64;
        Some(match self.random.below(3) {
            0 => Act::Exact(match self.random.below(8) {
                0 => 0,
                1 => -hits.clamp(1, most),
                2 => (most / 2).max(1),
                _ => hits.clamp(1, most),
            }),
            _ => Act::LeaseCall(self.report()),
        })
    }

    fn report(&mut self) -> LeaseCall {
        let index = self.random.below(NODES as u64) as usize;
        let mut node = self.nodes[index];
        node.number += 1;
        node.spent += self.random.below(self.terms.amount_max() + 2);
        if self.random.below(16) == 0 || node.since == 0 {
            // A session starts over.
            (node.since, node.spent) = (node.number, 0);
        }
        let is_old = self.random.below(8) == 0;
        if is_old {
            node.number = node.number.saturating_sub(1 + self.random.below(2)).max(1);
        } else {
            self.nodes[index] = node;
        }
        let report = LeaseReport {
            node: u64::MAX - index as u64,
            number: node.number,
            since: node.since,
            spent: node.spent,
            is_final: self.random.below(3) == 0,
            target: match self.random.below(4) {
                0 => 0,
                _ => self.random.below(2 * self.terms.amount_max()),
            },
        };
        LeaseCall {
            key: self.key,
            terms: self.terms,
            calendar: None,
            lent: None,
            counted: None,
            report,
        }
    }

    fn exact(&mut self, hits: i64) -> ratekeeper_core::Outcome {
        let at = Moment::at(self.now);
        let limit = *self.limit();
        self.escrow.expire(&limit, &mut self.state, None, &at);
        let outcome = self
            .escrow
            .test(&limit, self.state.as_ref(), Ask::hits(hits), &at);
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

    fn settle(&mut self, report: &LeaseReport) -> LeaseOutcome {
        let at = Moment::at(self.now);
        let (terms, before) = (self.terms, (self.state.clone(), self.escrow.clone()));
        match terms.settle(&mut self.state, &mut self.escrow, report, &at) {
            Settled::Old => {
                // It writes nothing, not even that other leases are over.
                (self.state, self.escrow) = before;
                LeaseOutcome::Old
            }
            Settled::Holds(holding) => {
                let look = Ask::hits(0);
                let state = self.state.as_ref();
                let look = self.escrow.test(terms.limit(), state, look, &at);
                let others = self.escrow.entries().iter();
                let others = others.filter(|entry| entry.node != report.node);
                let others: Vec<u64> = others.map(|entry| entry.amount).collect();
                let others = OtherLeases {
                    nodes: others.len() as u64,
                    hits: others.iter().sum(),
                };
                let outcome = SettledCounter { look, others };
                LeaseOutcome::Settled { holding, outcome }
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
    script: &'static Script,
}

impl Redis {
    fn new(server: &Server) -> Self {
        let mut client = server.client();
        let script = load(&mut client);
        Self { client, script }
    }

    fn ask(&mut self, call: &Call, now: Timestamp) -> Reply {
        let mut pipeline = Vec::new();
        push(self.script, call, now, &mut pipeline);
        self.client.send(&pipeline);
        self.client.read()
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
            push(self.script, &call, lane.now, &mut pipeline);
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
    let told = format!(
        "{act:?} at {:?}\nof {:?}\nin {:?}, {:?}\n{reply:?}",
        lane.now, lane.terms, lane.state, lane.escrow
    );
    match act {
        Act::Exact(hits) => {
            let verdicts = answers(&[group(lane, *hits)], reply);
            let outcome = lane.exact(*hits);
            let expected = StepOutcome::Counted(outcome);
            if lane.back == 0.0 {
                assert_eq!(verdicts[0].outcomes[0], expected, "{told}");
            }
            let alone =
                lane.limit()
                    .test(lane.state.as_ref(), Ask::hits(*hits), &Moment::at(lane.now));
            seen.held_back += usize::from(!outcome.fits() && alone.fits());
        }
        Act::LeaseCall(lease_call) => {
            let found = decode_lease_calls(&[*lease_call], items(reply));
            let found = found.unwrap_or_else(|why| panic!("{why}: {told}"));
            let expected = lane.settle(&lease_call.report);
            if lane.back == 0.0 {
                assert_eq!(found, [expected], "{told}");
            }
            match expected {
                LeaseOutcome::Old => seen.old += 1,
                LeaseOutcome::Settled { holding, .. } if holding.amount > 0 => {
                    seen.fresh += usize::from(holding.is_fresh);
                    seen.renewed += usize::from(!holding.is_fresh);
                }
                LeaseOutcome::Settled { .. } | LeaseOutcome::Corrupt => {}
            }
        }
    }
}

const KEY: CounterKey = CounterKey {
    subject: 1,
    identity: 2,
};

fn a_call(target: u64) -> LeaseCall {
    let spec = LimitSpec::new(Algorithm::FixedWindow, 1_000, Micros::from_secs(60));
    let limit = Limit::try_new(spec).expect("a valid limit");
    LeaseCall {
        key: KEY,
        terms: Terms::try_new(&limit, LEASE_MAX).expect("it can be leased"),
        calendar: None,
        lent: None,
        counted: None,
        report: LeaseReport {
            node: 7,
            number: 1,
            since: 1,
            spent: 0,
            is_final: true,
            target,
        },
    }
}

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// A key that holds something else is told, and a counter whose leases cannot be read is never an empty one.
#[test]
fn what_cannot_be_read_is_told_and_left_as_it_is() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    let names = KeyName::new("other:");
    let mut call = Call::new();
    call.push_lease_call(&a_call(20), &names);
    let key = String::from_utf8_lossy(call.keys().next().expect("it has a key")).into_owned();
    let step = Step::new(KEY, *a_call(20).terms.limit());
    let group = Group::new(&Request::new(&[step], Mode::default(), NOW));
    let mut exact = Call::new();
    exact.push(&group, &names);

    let whole = redis.ask(&call, NOW);
    let whole = decode_lease_calls(&[a_call(20)], items(&whole)).expect("it is read");
    assert!(
        matches!(whole[..], [LeaseOutcome::Settled { .. }]),
        "{whole:?}"
    );
    let Reply::Bytes(value) = redis.client.ask(&["GET", &key]) else {
        panic!("there is a counter");
    };
    let (escrow, state) = Escrow::decode(&value).expect("core reads what the script wrote");
    assert_eq!((escrow.held(), escrow.encode(state)), (20, value.clone()));
    let mut corrupt = vec![value[..30].to_vec(), value[..1].to_vec()];
    for count in [0, 65, 255] {
        let mut other = value.clone();
        other[1] = count;
        corrupt.push(other);
    }
    let is_refused = |redis: &mut Redis| {
        let reply = redis.ask(&exact, NOW);
        let decoded = decode(std::slice::from_ref(&group), items(&reply), |_, _| {});
        assert_eq!(decoded, Err(AnswerError::Corrupt), "{reply:?}");
        let reply = redis.ask(&call, NOW);
        let decoded = decode_lease_calls(&[a_call(20)], items(&reply));
        assert_eq!(decoded, Ok(vec![LeaseOutcome::Corrupt]), "{reply:?}");
    };
    for value in corrupt {
        let mut pipeline = Vec::new();
        ratekeeper_testkit::redis::encode(&[b"SET", key.as_bytes(), &value], &mut pipeline);
        redis.client.send(&pipeline);
        redis.client.read();
        is_refused(&mut redis);
        assert_eq!(redis.client.ask(&["GET", &key]), Reply::Bytes(value));
    }
    redis.client.ask(&["DEL", &key]);
    assert_eq!(redis.client.ask(&["SADD", &key, "x"]), Reply::Int(1));
    is_refused(&mut redis);
}

/// A counter is kept until what is held could have been charged and has left again.
#[test]
fn a_counter_outlives_its_leases() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    let names = KeyName::new("lives:");
    let spec = LimitSpec::new(Algorithm::Gcra, 1_000, Micros::from_secs(1_000));
    let limit = Limit::try_new(spec).expect("a valid limit");
    let lease_call = LeaseCall {
        terms: Terms::try_new(&limit, LEASE_MAX).expect("it can be leased"),
        ..a_call(50)
    };
    let mut call = Call::new();
    call.push_lease_call(&lease_call, &names);
    redis.ask(&call, NOW);
    let key = String::from_utf8_lossy(call.keys().next().expect("it has a key")).into_owned();
    let Reply::Int(left) = redis.client.ask(&["PTTL", &key]) else {
        panic!("it expires");
    };
    // Ten seconds of the lease, a second for each of its hits, and the hour of a clock that is told.
    assert!((3_659_000..3_662_000).contains(&left), "{left}");
}
