//! The rarer parts of requests, in the script as in memory: permits, requests carried out once,
//! refunds of hits only if they still count. Every field of every answer is compared.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{
    Charge, CounterKey, Extra, MemoryConfig, MemoryStore, Once, Permit, PermitAct, Request, Step,
    Until,
};
use ratekeeper_testkit::redis::Server;

use crate::timed_store::{Queue, TimedStore};

/// Different requests of a history.
const REQUESTS: usize = 8;

/// The start of all histories.
const START: Timestamp = Timestamp::from_secs(1_789_000_123);

/// The length of windows and permits, and about that of a history.
const WINDOW: Micros = Micros::from_secs(60);

/// A request as drawn, which may be sent any number of times. Times are in milliseconds.
#[derive(Clone, Debug)]
struct Drawn {
    steps: Vec<DrawnStep>,
    wish: Wish,
    once: Option<DrawnOnce>,
    /// The time at which the refunded hits were taken, before or after the start.
    taken: Option<Result<u64, u64>>,
}

#[derive(Clone, Debug)]
struct DrawnStep {
    counter: usize,
    hits: i64,
    always: bool,
    shadow: bool,
}

#[derive(Clone, Copy, Debug)]
enum Wish {
    /// Counting hits.
    Count,
    /// An act on that permit.
    Permit(u128, PermitAct),
}

#[derive(Clone, Debug)]
struct DrawnOnce {
    id: u128,
    /// A time after the start, or a span from now.
    until: Result<u64, u64>,
}

#[test]
fn extras_are_the_same_as_in_memory() {
    let server = Server::start();
    let limits = limits();
    let turns = prop::collection::vec((0..9_000_u64, 0..REQUESTS), 1..60);
    let history = (
        prop::collection::vec(request(limits.len()), REQUESTS),
        turns,
    );
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&history, |(requests, turns)| {
        let told = TimedStore::new(&server);
        let memory = MemoryStore::new(MemoryConfig::default()).expect("there is memory");
        let (mut queue, mut expected) = (Queue::default(), Vec::new());
        let mut now = START;
        for (gap, number) in turns {
            now = now.after(Micros::from_millis(gap));
            let drawn = &requests[number];
            // A request's content is identified by its number, and an id may be shared by two.
            let (steps, extra) = (drawn.steps(&limits), drawn.extra(number as u64));
            let request = Request {
                extra: Some(&extra),
                ..Request::new(&steps, Mode::default(), now)
            };
            told.queue(&request, &mut queue);
            expected.push((memory.decide_now(&request), number));
        }
        for (found, (expected, number)) in told.answers(queue).into_iter().zip(expected) {
            prop_assert_eq!(found, expected, "{:?}", &requests[number]);
        }
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Several of each algorithm; those of permits come first.
fn limits() -> Vec<Limit> {
    let limit = |algorithm, quota| {
        let spec = LimitSpec::new(algorithm, quota, WINDOW);
        Limit::try_new(spec).expect("a valid limit")
    };
    let permits = [0, 1, 3].map(|quota| limit(Algorithm::Concurrency, quota));
    let counting = Algorithm::ALL
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::Concurrency)
        .flat_map(|algorithm| [3, 40].map(|quota| limit(algorithm, quota)));
    permits.into_iter().chain(counting).collect()
}

fn request(limits: usize) -> impl Strategy<Value = Drawn> {
    let act = prop_oneof![
        3 => Just(PermitAct::Acquire),
        1 => Just(PermitAct::Renew),
        1 => Just(PermitAct::Release),
    ];
    let wish = prop_oneof![
        Just(Wish::Count),
        (1..6_u128, act).prop_map(|(id, act)| Wish::Permit(id, act)),
    ];
    let until = prop_oneof![(0..120_000_u64).prop_map(Ok), (1..60_000_u64).prop_map(Err),];
    let taken = prop_oneof![
        (0..100_000_u64).prop_map(Ok),
        (0..100_000_u64).prop_map(Err),
    ];
    let once = (1..6_u128, until).prop_map(|(id, until)| DrawnOnce { id, until });
    (
        prop::collection::vec(drawn_step(limits), 1..4),
        wish,
        prop::option::weighted(0.4, once),
        prop::option::weighted(0.4, taken),
    )
        .prop_map(|(steps, wish, once, taken)| Drawn {
            steps,
            wish,
            once,
            taken,
        })
}

fn drawn_step(limits: usize) -> impl Strategy<Value = DrawnStep> {
    let hits = prop_oneof![4 => 1..4_i64, 1 => Just(0), 2 => -4..0_i64];
    let flags = [0.1, 0.1].map(prop::bool::weighted);
    (0..limits, hits, flags).prop_map(|(counter, hits, [always, shadow])| DrawnStep {
        counter,
        hits,
        always,
        shadow,
    })
}

impl Drawn {
    fn steps(&self, limits: &[Limit]) -> Vec<Step> {
        let make = |(descriptor, drawn): (u16, &DrawnStep)| {
            let limit = &limits[drawn.counter];
            let hits = match (limit.algorithm(), self.wish) {
                (Algorithm::Concurrency, Wish::Permit(_, PermitAct::Acquire)) => 1,
                (Algorithm::Concurrency, _) => 0,
                // A request that settles a permit takes nothing.
                (_, Wish::Permit(_, PermitAct::Renew | PermitAct::Release)) => drawn.hits.min(0),
                _ => drawn.hits,
            };
            Step {
                hits,
                charge: match drawn.always {
                    true => Charge::Always,
                    false => Charge::IfAllowed,
                },
                descriptor,
                shadow: drawn.shadow,
                ..Step::new(
                    CounterKey {
                        subject: 7,
                        identity: drawn.counter as u64,
                    },
                    *limit,
                )
            }
        };
        (0..).zip(&self.steps).map(make).collect()
    }

    fn extra(&self, content: u64) -> Extra {
        let permit = match self.wish {
            Wish::Count => None,
            Wish::Permit(id, act) => Some(Permit { id, act }),
        };
        let once = self.once.as_ref().map(|once| Once {
            id: once.id,
            until: match once.until {
                Ok(millis) => Until::At(START.after(Micros::from_millis(millis))),
                Err(millis) => Until::After(Micros::from_millis(millis)),
            },
            content,
        });
        let taken_at = self.taken.map(|taken| match taken {
            Ok(before) => {
                let before = Micros::from_millis(before).get();
                Timestamp::from_micros(START.as_micros() - before)
            }
            Err(after) => START.after(Micros::from_millis(after)),
        });
        Extra {
            permit,
            once,
            taken_at,
            forgets: None,
        }
    }
}
