//! The script and core on the same random histories: every field of every answer.
//!
//! Many histories are played side by side, a step of each in one pipeline, so that a hundred thousand steps take
//! seconds. Nothing else is random: the same histories are drawn each time.

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ratekeeper_core::{
    Algorithm, Ask, Limit, MAX_COUNT, Micros, Mode, Moment, Outcome, Spill, State, Timestamp,
};
use ratekeeper_store::{Charge, CounterKey, Request, Step, StepOutcome};
use ratekeeper_store_redis::script::{Call, Group, KeyName, Script};
use ratekeeper_testkit::model::history::{Gap, History, Hits, Move, gaps, histories, hits};
use ratekeeper_testkit::random::Random;
use ratekeeper_testkit::redis::{Client, Server};

use crate::timed_store::{answers, load, names, push};

/// Steps of each algorithm: 140,000 in all.
const STEPS: usize = 20_000;

/// Histories that are played side by side.
const LANES: usize = 200;

#[test]
fn equals_core_in_every_field() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in Algorithm::ALL {
        let drawn = draw(histories(algorithm), STEPS);
        let lanes = drawn.into_iter().map(|history| Lane::new(history, 0.0));
        assert!(redis.play(lanes.collect()) >= STEPS, "{algorithm:?}");
    }
}

/// A counter's time does not go back, whatever the server's clock does.
#[test]
fn equals_core_while_the_clock_steps_both_ways() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in Algorithm::ALL {
        let drawn = draw(histories(algorithm), STEPS / 4);
        let lanes = drawn.into_iter().map(|history| Lane::new(history, 0.3));
        redis.play(lanes.collect());
    }
}

/// Limits change while counters live: another quota, burst or rate reads the same state.
#[test]
fn equals_core_while_limits_change() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for algorithm in Algorithm::ALL {
        let drawn = draw(histories(algorithm), STEPS / 4);
        let lanes = drawn.into_iter().map(|history| {
            let mut lane = Lane::new(history, 0.05);
            lane.changes = true;
            lane
        });
        redis.play(lanes.collect());
    }
}

/// The default algorithm for callers who cannot wait, and one that counts denied hits.
#[test]
fn equals_core_without_delay_and_with_denials_counted() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for (algorithm, charge) in [
        (Algorithm::LeakyBucket, Charge::IfAllowed),
        (Algorithm::LeakyBucket, Charge::Always),
        (Algorithm::FixedWindow, Charge::Always),
        (Algorithm::SlidingWindow, Charge::Always),
        (Algorithm::SlidingLog, Charge::Always),
        (Algorithm::TokenBucket, Charge::Always),
        (Algorithm::Gcra, Charge::Always),
    ] {
        let drawn = draw(histories(algorithm), STEPS / 4);
        let lanes = drawn.into_iter().map(|history| {
            let mut lane = Lane::new(history, 0.05);
            lane.limit = lane.limit.without_delay();
            lane.charge = charge;
            lane
        });
        redis.play(lanes.collect());
    }
}

/// Callers of a leaky bucket who wait for some turns, from the shortest wait to all but the longest.
#[test]
fn equals_core_where_callers_wait_for_so_long() {
    let server = Server::start();
    let mut redis = Redis::new(&server);
    for charge in [Charge::IfAllowed, Charge::Always] {
        let drawn = draw(histories(Algorithm::LeakyBucket), STEPS / 2);
        let lanes = (0_u64..).zip(drawn).map(|(number, history)| {
            let mut lane = Lane::new(history, 0.05);
            let share = 1 << (number % 6);
            let most = Micros::new(lane.limit.window().get() / share);
            lane.limit = lane.limit.with_delay_max(most);
            lane.charge = charge;
            lane
        });
        redis.play(lanes.collect());
    }
}

fn runner() -> TestRunner {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(Config::default(), rng)
}

/// Draws histories until they have at least `steps` moves.
fn draw(strategy: impl Strategy<Value = History>, steps: usize) -> Vec<History> {
    let mut runner = runner();
    let mut drawn = Vec::new();
    let mut moves = 0;
    // Some histories end early, at the end of time.
    while moves < steps + steps / 2 {
        let tree = strategy.new_tree(&mut runner).expect("there are histories");
        let history = tree.current();
        moves += history.moves.len();
        drawn.push(history);
    }
    drawn
}

/// A history being played.
struct Lane {
    limit: Limit,
    moves: std::vec::IntoIter<Move>,
    charge: Charge,
    /// The chance that time goes back instead.
    back: f64,
    /// True if the limit is changed now and then.
    changes: bool,
    now: Timestamp,
    end: Timestamp,
    state: Option<State>,
    last: Option<Outcome>,
    random: Random,
}

impl Lane {
    fn new(history: History, back: f64) -> Self {
        let limit = history.limit();
        let windows = limit.capacity() / limit.quota().max(1) + 4;
        let longest = limit.window().get().saturating_mul(windows);
        Self {
            limit,
            moves: history.moves.into_iter(),
            charge: Charge::IfAllowed,
            back,
            changes: false,
            now: history.start,
            end: Timestamp::from_micros(MAX_COUNT.saturating_sub(longest)),
            state: None,
            last: None,
            random: Random::new(history.start.as_micros()),
        }
    }

    /// Moves to the next step and returns its hits; [`None`] at the end of the history.
    fn advance(&mut self) -> Option<i64> {
        let Move { gap, hits } = self.moves.next()?;
        let goes_back = self.random.unit() < self.back;
        self.now = match goes_back {
            true => gap.before(self.now, &self.limit, self.last.as_ref()),
            false => gap.after(self.now, &self.limit, self.last.as_ref()),
        };
        if self.now > self.end {
            return None;
        }
        if self.changes && self.random.unit() < 0.1 {
            self.change();
        }
        let most = MAX_COUNT as i64;
        Some(
            hits.number(&self.limit, self.last.as_ref())
                .clamp(-most, most),
        )
    }

    fn change(&mut self) {
        let quota = (self.limit.quota() as f64 * self.random.unit() * 2.0) as u64;
        let spec = ratekeeper_core::LimitSpec {
            sub_windows: Some(self.limit.sub_windows()).filter(|count| *count > 0),
            ..ratekeeper_core::LimitSpec::new(self.limit.algorithm(), quota, self.limit.window())
        };
        if let Ok(limit) = Limit::try_new(spec) {
            self.limit = limit;
        }
    }

    fn request<T>(&self, hits: i64, key: CounterKey, take: impl FnOnce(&Request<'_>) -> T) -> T {
        let step = Step {
            hits,
            charge: self.charge,
            ..Step::new(key, self.limit)
        };
        take(&Request::new(&[step], Mode::default(), self.now))
    }

    /// Returns core's answer. A charge creates the counter, and a refusal writes only what it must: a
    /// counter from a later time.
    fn step(&mut self, hits: i64) -> Outcome {
        let at = Moment::at(self.now);
        let fresh = State::new(self.limit.shape());
        let state = self.state.as_ref().unwrap_or(&fresh);
        let outcome = self.limit.test(state.as_ref(), Ask::hits(hits), &at);
        let charged = match self.charge {
            _ if hits < 0 => hits,
            Charge::Always => hits,
            Charge::IfAllowed if outcome.fits() => hits,
            Charge::IfAllowed => 0,
        };
        if charged > 0 && self.state.is_none() {
            self.state = Some(fresh);
        }
        let settles = self.was_later();
        if let Some(state) = self.state.as_mut().filter(|_| charged != 0 || settles) {
            charge(&self.limit, state, charged, &at);
        }
        self.last = Some(outcome);
        outcome
    }

    /// Returns true if the counter moves to the clock's time, which every step writes.
    fn was_later(&self) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| self.limit.is_ahead(state.as_ref(), self.now))
    }
}

fn charge(limit: &Limit, state: &mut State, hits: i64, at: &Moment) {
    if limit.charge(state.as_mut(), hits, at) == Err(Spill) {
        if let State::Words(words) = state {
            *state = State::Heap(limit.spill(words));
        }
        // A heap never spills again.
        let _ = limit.charge(state.as_mut(), hits, at);
    }
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

    /// Plays every lane to its end, and returns the number of steps.
    fn play(&mut self, mut lanes: Vec<Lane>) -> usize {
        let mut steps = 0;
        for (number, lanes) in lanes.chunks_mut(LANES).enumerate() {
            let names = names();
            loop {
                let played = self.round(lanes, &names, number);
                steps += played;
                if played == 0 {
                    break;
                }
            }
        }
        steps
    }

    /// One step of every lane that has not ended.
    fn round(&mut self, lanes: &mut [Lane], names: &KeyName, number: usize) -> usize {
        let mut pipeline = Vec::new();
        let mut sent = Vec::new();
        for (index, lane) in lanes.iter_mut().enumerate() {
            let Some(hits) = lane.advance() else {
                lane.moves = Vec::new().into_iter();
                continue;
            };
            let key = CounterKey {
                subject: index as u64,
                identity: number as u64,
            };
            let group = lane.request(hits, key, Group::new);
            let mut call = Call::new();
            call.push(&group, names);
            push(self.script, &call, lane.now, &mut pipeline);
            sent.push((index, hits, group));
        }
        self.client.send(&pipeline);
        for (index, hits, group) in &sent {
            let reply = self.client.read();
            let verdicts = answers(std::slice::from_ref(group), &reply);
            let lane = &mut lanes[*index];
            let before = lane.state.clone();
            let expected = lane.step(*hits);
            assert_eq!(
                verdicts[0].outcomes[0],
                StepOutcome::Counted(expected),
                "{hits} hits at {:?} of {:?}\nin {before:?}\n{reply:?}",
                lane.now,
                lane.limit,
            );
            assert_eq!(verdicts[0].allowed, expected.fits());
            assert_eq!(verdicts[0].at, lane.now);
        }
        sent.len()
    }
}

/// The strategies are those of the models' histories.
#[test]
fn histories_have_every_kind_of_move() {
    let mut runner = runner();
    let mut draw = |_| {
        let gap = gaps().new_tree(&mut runner).expect("a gap").current();
        let hits = hits().new_tree(&mut runner).expect("hits").current();
        (gap, hits)
    };
    let drawn: Vec<(Gap, Hits)> = (0..1_000).map(&mut draw).collect();
    assert!(drawn.iter().any(|(gap, _)| matches!(gap, Gap::SubEdge(_))));
    assert!(
        drawn
            .iter()
            .any(|(_, hits)| matches!(hits, Hits::Part(part) if *part < 0))
    );
}
