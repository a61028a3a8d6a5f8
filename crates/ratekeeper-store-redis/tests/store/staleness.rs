//! A denial from memory is the one that the server would have given, except for recent changes
//! elsewhere that this node need not know of yet.
//!
//! Two nodes ask for the same counters at random: one remembers denials; the other asks each time,
//! refunds, asks under other limits, and forgets whole counters. All requests to the server are
//! replayed on a store in memory, by the server's time, and each denial from memory is compared
//! with that store's answer at the denial's own time.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode};
use ratekeeper_store::{MemoryConfig, MemoryStore, Request, Step, Verdicts};
use ratekeeper_store_redis::script::KeyName;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::redis::{Client, Server};

use crate::support::{decide, home, patient, step};

/// The longest time by which the remembering node may be behind.
const DENY_CACHE_MAX: Duration = Duration::from_millis(40);

const TURNS: usize = 8_000;

const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
];

/// The next act, on the counter of that algorithm.
#[derive(Clone, Copy, Debug)]
struct Turn {
    algorithm: usize,
    act: Act,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The remembering node asks for that many hits, or refunds them.
    Here(i64),
    /// The other node does.
    Elsewhere(i64),
    /// The other node asks for one hit under another limit.
    Changed(u64),
    /// The counter is forgotten.
    Reset,
    /// Nothing, for a few milliseconds.
    Pause(u64),
}

/// A request and its outcome.
#[derive(Debug)]
struct Event {
    limit: Limit,
    hits: i64,
    began: Instant,
    ended: Instant,
    verdicts: Verdicts,
    is_from_memory: bool,
    is_elsewhere: bool,
    /// The counter was forgotten right before.
    is_reset: bool,
}

#[tokio::test]
async fn denials_from_memory_are_as_new_as_promised() {
    let server = Server::start();
    let mut nodes = Nodes::new(&server);
    let mut histories = ALGORITHMS.map(|_| Vec::new());
    let turns = prop::collection::vec(turn(), TURNS);
    let turns = turns.new_tree(&mut TestRunner::default());
    for turn in turns.expect("there are turns").current() {
        nodes.take(turn, &mut histories[turn.algorithm]).await;
    }
    let (mut repeated, mut equal) = (0, 0);
    for (algorithm, mut history) in ALGORITHMS.into_iter().zip(histories) {
        let checked = check(algorithm, &mut history);
        repeated += checked.0;
        equal += checked.1;
    }
    // Their number depends on how many turns a slow machine takes in so short a time.
    assert!(
        repeated > 0 && equal > 0,
        "{repeated} came from memory, {equal} were held to every field"
    );
}

fn turn() -> impl Strategy<Value = Turn> {
    let act = prop_oneof![
        60 => (1..4_i64).prop_map(Act::Here),
        3 => (-3..0_i64).prop_map(Act::Here),
        4 => (1..3_i64).prop_map(Act::Elsewhere),
        2 => (-3..0_i64).prop_map(Act::Elsewhere),
        1 => (5..30_u64).prop_map(Act::Changed),
        1 => Just(Act::Reset),
        2 => (1..30_u64).prop_map(Act::Pause),
    ];
    (0..ALGORITHMS.len(), act).prop_map(|(algorithm, act)| Turn { algorithm, act })
}

/// A limit that lets `most` pass at once.
fn limit_of(algorithm: Algorithm, most: u64) -> Limit {
    let window = Micros::from_secs(1);
    let is_bucket = matches!(algorithm, Algorithm::TokenBucket | Algorithm::Gcra);
    // The rate of a bucket stays: its level depends on when another rate was first heard of.
    let spec = match is_bucket {
        true => LimitSpec {
            burst: Some(most),
            ..LimitSpec::new(algorithm, 10, window)
        },
        false => LimitSpec::new(algorithm, most, window),
    };
    Limit::try_new(spec).expect("a valid limit")
}

fn numbered(limit: &Limit, hits: i64) -> Step {
    Step {
        hits,
        ..step(limit, limit.algorithm() as u64)
    }
}

struct Nodes {
    remembering: RedisStore,
    asking: RedisStore,
    client: Client,
    names: KeyName,
    has_reset: [bool; ALGORITHMS.len()],
}

impl Nodes {
    fn new(server: &Server) -> Self {
        let url = format!("redis://127.0.0.1:{}/", server.port());
        let endpoint = Endpoint::parse(&url).expect("a good URL");
        let store = |deny_cache_max| {
            let mut config = patient();
            config.deny_cache_max = deny_cache_max;
            RedisStore::new(endpoint.clone(), config, home())
        };
        Self {
            remembering: store(DENY_CACHE_MAX),
            asking: store(Duration::ZERO),
            client: server.client(),
            names: KeyName::default(),
            has_reset: Default::default(),
        }
    }

    async fn take(&mut self, turn: Turn, history: &mut Vec<Event>) {
        let algorithm = ALGORITHMS[turn.algorithm];
        let usual = limit_of(algorithm, 10);
        let (is_elsewhere, limit, hits) = match turn.act {
            Act::Here(hits) => (false, usual, hits),
            Act::Elsewhere(hits) => (true, usual, hits),
            Act::Changed(quota) => (true, limit_of(algorithm, quota), 1),
            Act::Reset => {
                let mut key = Vec::new();
                self.names.counter(numbered(&usual, 1).key, &mut key);
                self.client.ask(&[&b"DEL"[..], &key]);
                self.has_reset[turn.algorithm] = true;
                (true, usual, 1)
            }
            Act::Pause(millis) => {
                tokio::time::sleep(Duration::from_millis(millis)).await;
                return;
            }
        };
        let store = match is_elsewhere {
            true => &self.asking,
            false => &self.remembering,
        };
        let (began, before) = (Instant::now(), store.denied_from_memory());
        let verdicts = decide(store, &[numbered(&limit, hits)]).await;
        history.push(Event {
            limit,
            hits,
            began,
            ended: Instant::now(),
            verdicts: verdicts.expect("the server answers"),
            is_from_memory: store.denied_from_memory() > before,
            is_elsewhere,
            is_reset: std::mem::take(&mut self.has_reset[turn.algorithm]),
        });
    }
}

/// Returns how many denials came from memory, and how many of these had every field compared.
fn check(algorithm: Algorithm, history: &mut [Event]) -> (usize, usize) {
    let usual = limit_of(algorithm, 10);
    let (mut memory, mut last) = (memory(), Changes::default());
    let (mut repeated, mut equal) = (0, 0);
    // Denials from memory count by a time that is ahead of the server's.
    history.sort_by_key(|event| event.verdicts.at);
    for event in &*history {
        let steps = [numbered(&event.limit, event.hits)];
        let request = Request::new(&steps, Mode::default(), event.verdicts.at);
        if !event.is_from_memory {
            if event.is_reset {
                memory = self::memory();
            }
            assert_eq!(event.verdicts, memory.decide_now(&request), "{event:?}");
            last.record(event, &usual);
            continue;
        }
        repeated += 1;
        assert!(!event.verdicts.allowed && event.hits > 0, "{event:?}");
        if last.excuses(event) {
            continue;
        }
        let expected = memory.decide_now(&request);
        assert!(!expected.allowed, "{event:?}");
        if !last.is_recent(last.anything, event) {
            assert_eq!(event.verdicts, expected, "{event:?}");
            equal += 1;
        }
    }
    (repeated, equal)
}

/// The times at which the counter was last changed, as the node that changed it was told.
#[derive(Default)]
struct Changes {
    /// By any node, in any way.
    anything: Option<Instant>,
    /// By the other node, so that more passes.
    given_back_elsewhere: Option<Instant>,
    /// By the node that remembers.
    given_back_here: Option<Instant>,
}

impl Changes {
    fn record(&mut self, event: &Event, usual: &Limit) {
        let ended = Some(event.ended);
        let gives_back = event.hits < 0 || event.is_reset || event.limit != *usual;
        if gives_back && (event.is_elsewhere || event.is_reset) {
            self.given_back_elsewhere = self.given_back_elsewhere.max(ended);
        } else if gives_back {
            self.given_back_here = self.given_back_here.max(ended);
        }
        if gives_back || event.verdicts.allowed {
            self.anything = self.anything.max(ended);
        }
    }

    /// Returns true if more may pass by now than this denial knows of. This node knows of its own refunds at once.
    fn excuses(&self, denial: &Event) -> bool {
        let is_later = |returned| returned > denial.began;
        self.is_recent(self.given_back_elsewhere, denial)
            || self.given_back_here.is_some_and(is_later)
    }

    fn is_recent(&self, change: Option<Instant>, denial: &Event) -> bool {
        change.is_some_and(|change| denial.began < change + DENY_CACHE_MAX)
    }
}

fn memory() -> MemoryStore {
    let config = MemoryConfig {
        memory_limit: 1 << 20,
        ..MemoryConfig::default()
    };
    MemoryStore::new(config).expect("there is memory")
}
