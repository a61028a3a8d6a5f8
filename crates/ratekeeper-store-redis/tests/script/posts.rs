//! Posts: hits that were admitted without Redis, and charged by the script afterwards.
//!
//! Random histories of checks and posts are held to a slow model: a list of hits with their times for windows, and the
//! steps of core for what counts hits when they are posted.

use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, Micros, Mode, Moment, Spill, State, Timestamp,
};
use ratekeeper_store::{CounterKey, Post, Request, Step, StepOutcome};
use ratekeeper_store_redis::script::{Call, Group, Item, KeyName, Script};
use ratekeeper_testkit::random::Random;
use ratekeeper_testkit::redis::{Client, Server};

use crate::timed_store::{answers, items, load, names, push};

const START: Timestamp = Timestamp::from_secs(1_789_000_123);
const WINDOW: Micros = Micros::from_secs(60);

/// Turns of each history, and histories of each limit.
const TURNS: usize = 120;
const HISTORIES: u64 = 12;

/// A counter as it should be.
enum Model {
    /// Hits with the times at which they were admitted.
    Hits(Vec<(u64, u64)>),
    /// The state that core's steps make.
    Core(State),
}

impl Model {
    fn new(limit: &Limit) -> Self {
        let is_dated = match limit.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingLog => true,
            Algorithm::SlidingWindow => limit.sub_windows() > 0,
            _ => false,
        };
        match is_dated {
            true => Self::Hits(Vec::new()),
            false => Self::Core(State::new(limit.shape())),
        }
    }

    /// Hits left at `now`.
    fn room(&self, limit: &Limit, now: u64) -> u64 {
        let hits = match self {
            Self::Hits(hits) => hits,
            Self::Core(state) => {
                let at = Moment::at(Timestamp::from_micros(now));
                return limit.test(state.as_ref(), Ask::hits(0), &at).remaining;
            }
        };
        let window = limit.window().get();
        let sum = |counts: &dyn Fn(u64) -> bool| -> u64 {
            let counted = hits.iter().filter(|(time, _)| counts(*time));
            counted.map(|(_, hits)| hits).sum()
        };
        let used = match (limit.algorithm(), u64::from(limit.sub_windows())) {
            (Algorithm::FixedWindow, _) => sum(&|time| time / window == now / window),
            (Algorithm::SlidingLog, _) => sum(&|time| time + window > now),
            (_, parts) => {
                let length = window / parts;
                let current = now / length;
                let oldest = sum(&|time| time / length == current - parts);
                let left = length - now % length;
                sum(&|time| time / length > current - parts) + (oldest * left).div_ceil(length)
            }
        };
        limit.quota().saturating_sub(used)
    }

    fn charge(&mut self, limit: &Limit, hits: u64, time: u64, now: u64) {
        match self {
            Self::Hits(all) => all.push((time, hits)),
            Self::Core(state) => {
                let at = Moment::at(Timestamp::from_micros(now));
                let hits = i64::try_from(hits).expect("few hits");
                if limit.charge(state.as_mut(), hits, &at) == Err(Spill)
                    && let State::Words(words) = state
                {
                    *state = State::Heap(limit.spill(words));
                    let _ = limit.charge(state.as_mut(), hits, &at);
                }
            }
        }
    }

    /// Returns true if hits of `time` count at `now`.
    fn counts(limit: &Limit, time: u64, now: u64) -> bool {
        let window = limit.window().get();
        match limit.algorithm() {
            Algorithm::FixedWindow => time / window == now / window,
            Algorithm::SlidingWindow | Algorithm::SlidingLog => now - time < window,
            _ => true,
        }
    }

    /// Returns the hits charged.
    fn post(&mut self, limit: &Limit, hits: u64, time: u64, now: u64) -> u64 {
        let counts = Self::counts(limit, time, now);
        let charged = if counts {
            hits.min(self.room(limit, now))
        } else {
            0
        };
        if charged > 0 {
            self.charge(limit, charged, time, now);
        }
        charged
    }
}

struct Redis {
    client: Client,
    script: &'static Script,
    names: KeyName,
}

impl Redis {
    fn send(&mut self, group: &Group, now: u64) -> ratekeeper_testkit::redis::Reply {
        let mut call = Call::new();
        call.push(group, &self.names);
        let mut pipeline = Vec::new();
        push(
            self.script,
            &call,
            Timestamp::from_micros(now),
            &mut pipeline,
        );
        self.client.send(&pipeline);
        self.client.read()
    }

    /// The outcome of a check.
    fn check(&mut self, step: Step, now: u64) -> ratekeeper_core::Outcome {
        let steps = [step];
        let request = Request::new(&steps, Mode::default(), Timestamp::from_micros(now));
        let group = Group::new(&request);
        let reply = self.send(&group, now);
        match answers(&[group], &reply).remove(0).outcomes[0] {
            StepOutcome::Counted(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    /// The hits that a post has charged.
    fn post(&mut self, post: &Post, now: u64) -> u64 {
        let group = Group::of_post(post);
        let reply = self.send(&group, now);
        let verdicts = answers(&[group], &reply);
        assert_eq!(verdicts.len(), 1);
        match items(&reply)[..] {
            [_, Item::Int(charged)] => u64::try_from(charged).expect("it was carried out"),
            ref other => panic!("{other:?}"),
        }
    }
}

fn limits() -> Vec<Limit> {
    let counting = Algorithm::ALL
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::Concurrency);
    let specs = counting.flat_map(|algorithm| {
        let subs: &[Option<u16>] = match algorithm {
            Algorithm::SlidingWindow => &[None, Some(1), Some(6)],
            _ => &[None],
        };
        subs.iter().flat_map(move |sub_windows| {
            [7, 300].map(|quota| LimitSpec {
                sub_windows: sub_windows.map(Into::into),
                ..LimitSpec::new(algorithm, quota, WINDOW)
            })
        })
    });
    specs
        .map(|spec| Limit::try_new(spec).expect("a valid limit"))
        .collect()
}

#[test]
fn posts_are_charged_once_when_they_were_admitted_and_up_to_the_limit() {
    let server = Server::start();
    let mut client = server.client();
    let script = load(&mut client);
    let mut redis = Redis {
        client,
        script,
        names: names(),
    };
    for (number, limit) in limits().iter().enumerate() {
        for history in 0..HISTORIES {
            let seed = history << 8 | number as u64;
            play(&mut redis, limit, seed);
        }
    }
}

fn play(redis: &mut Redis, limit: &Limit, seed: u64) {
    let mut numbers = Random::new(seed);
    let key = CounterKey {
        subject: seed,
        identity: 1,
    };
    let step = |hits| Step {
        hits,
        ..Step::new(key, *limit)
    };
    let mut model = Model::new(limit);
    let mut sent: Vec<(Post, u64)> = Vec::new();
    let mut now = START.as_micros() + numbers.below(WINDOW.get());
    for turn in 0..TURNS {
        now += match numbers.below(3) {
            0 => 0,
            1 => numbers.below(WINDOW.get() / 20),
            _ => numbers.below(WINDOW.get() / 4),
        };
        let hits = 1 + numbers.below(limit.quota() / 3 + 1);
        let told = format!("seed {seed}, turn {turn}, {limit:?}");
        match numbers.below(4) {
            0 => {
                let fits = hits <= model.room(limit, now);
                let outcome = redis.check(step(hits.cast_signed()), now);
                assert_eq!(outcome.fits(), fits, "{told}");
                if fits {
                    model.charge(limit, hits, now, now);
                }
            }
            1 if !sent.is_empty() => {
                let (post, charged) = sent[numbers.below(sent.len() as u64) as usize];
                assert_eq!(redis.post(&post, now), charged, "a repeat; {told}");
            }
            _ => {
                let age = numbers.below(WINDOW.get() * 5 / 4);
                let post = Post {
                    id: u128::from(seed) << 64 | (turn as u128 + 1),
                    step: step(hits.cast_signed()),
                    age: Micros::new(age),
                    named_by: None,
                };
                let charged = model.post(limit, hits, now - age, now);
                assert_eq!(redis.post(&post, now), charged, "{told}");
                sent.push((post, charged));
            }
        }
        let left = redis.check(step(0), now).remaining;
        assert_eq!(left, model.room(limit, now), "{told}");
    }
}
