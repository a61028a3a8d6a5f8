mod accounts;
mod bounded;
mod count_denied;
mod growth;
mod lowered;
mod once;
mod room;
mod state_file;
mod table;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};

use super::table::Probe;
use super::{MemoryConfig, MemoryStore};
use crate::{Charge, CounterKey, Extra, Permit, PermitAct, Request, Step, Verdicts};

fn limit(algorithm: Algorithm, quota: u64, secs: u64) -> Limit {
    Limit::try_new(LimitSpec::new(algorithm, quota, Micros::from_secs(secs))).unwrap()
}

/// Names of counters in that shard.
fn keys(shard: usize) -> impl Iterator<Item = CounterKey> {
    let keys = (0..).map(|identity| CounterKey {
        subject: 7,
        identity,
    });
    keys.filter(move |key| Probe::new(*key).shard_bits() == shard)
}

fn step(limit: &Limit, identity: u64) -> Step {
    Step::new(
        CounterKey {
            subject: 7,
            identity,
        },
        *limit,
    )
}

fn store() -> MemoryStore {
    MemoryStore::new(MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    })
    .unwrap()
}

fn decide(store: &MemoryStore, steps: &[Step], secs: u64) -> Verdicts {
    store.decide_now(&Request::new(
        steps,
        Mode::default(),
        Timestamp::from_secs(secs),
    ))
}

#[test]
fn every_algorithm_admits_exactly_its_limit() {
    for algorithm in Algorithm::ALL {
        let limit = limit(algorithm, 5, 60);
        let store = store();
        let admitted = (0..20).filter(|_| decide(&store, &[step(&limit, 1)], 1_000).allowed);
        assert_eq!(admitted.count(), 5, "{}", algorithm.name());
    }
}

#[test]
fn a_denied_request_consumes_nothing_and_leaves_nothing_behind() {
    let (wide, narrow) = (
        limit(Algorithm::FixedWindow, 10, 60),
        limit(Algorithm::SlidingLog, 1, 60),
    );
    let store = store();
    assert!(decide(&store, &[step(&narrow, 1)], 1_000).allowed);
    for identity in 2..50 {
        let steps = [step(&wide, identity), step(&narrow, 1)];
        assert!(!decide(&store, &steps, 1_000).allowed);
    }
    assert_eq!(store.stats().counters, 1);
}

#[test]
fn a_repeated_counter_sees_the_earlier_take() {
    for algorithm in Algorithm::ALL {
        let limit = limit(algorithm, 3, 60);
        let store = store();
        let twice = [Step {
            hits: 2,
            ..step(&limit, 1)
        }; 2];
        assert!(
            !decide(&store, &twice, 1_000).allowed,
            "{}",
            algorithm.name()
        );
        assert_eq!(store.stats().counters, 0);
        let thrice = [step(&limit, 1); 3];
        assert!(
            decide(&store, &thrice, 1_000).allowed,
            "{}",
            algorithm.name()
        );
        assert!(!decide(&store, &[step(&limit, 1)], 1_000).allowed);
        assert_eq!(store.stats().counters, 1);
    }
}

#[test]
fn a_repeated_counter_sees_an_earlier_denial_that_counts() {
    let limit = limit(Algorithm::FixedWindow, 5, 60);
    for hits in [0, 1] {
        let store = store();
        let steps = [9, hits].map(|hits| Step {
            hits,
            charge: Charge::Always,
            ..step(&limit, 1)
        });
        let outcomes = decide(&store, &steps, 1_000).outcomes;
        assert!(!outcomes[0].fits());
        assert!(!outcomes[1].fits(), "{hits}");
        let unmoved = steps.map(|step| Step {
            charge: Charge::IfAllowed,
            ..step
        });
        let store = self::store();
        assert!(decide(&store, &unmoved, 1_000).outcomes[1].fits());
    }
}

#[test]
fn repeated_steps_are_found_however_many_there_are() {
    let limit = limit(Algorithm::FixedWindow, 10, 3_600);
    for count in [3, 40] {
        let store = store();
        // Every third step uses the same counter, the others one of their own.
        let steps: Vec<_> = (0..count)
            .map(|n| step(&limit, if n % 3 == 0 { 0 } else { n }))
            .collect();
        let repeated = count.div_ceil(3);
        let verdicts = decide(&store, &steps, 1_000);
        assert_eq!(verdicts.allowed, repeated <= 10);
        let fitted = verdicts
            .outcomes
            .iter()
            .step_by(3)
            .filter(|outcome| outcome.fits())
            .count();
        assert_eq!(fitted as u64, repeated.min(10));
    }
}

#[test]
fn what_gives_back_takes_no_permit() {
    let two = step(&limit(Algorithm::Concurrency, 2, 60), 1);
    let store = store();
    assert!(decide(&store, &[two], 1_000).allowed);
    let extra = Extra {
        permit: Some(Permit {
            id: 5,
            act: PermitAct::Acquire,
        }),
        ..Extra::default()
    };
    let steps = [Step { hits: -1, ..two }];
    store.decide_now(&Request {
        extra: Some(&extra),
        ..Request::new(&steps, Mode::default(), Timestamp::from_secs(1_000))
    });
    assert!(decide(&store, &[two], 1_000).allowed, "one was left");
    assert!(!decide(&store, &[two], 1_000).allowed, "nor is any back");
}

/// Runs the test of that name in a process of its own, where it finds that it is the child; `shell` prepares that.
#[cfg(unix)]
fn in_a_child(name: &str, shell: &str) {
    let mut child = std::process::Command::new("sh");
    child.args(["-c", &format!("{shell} && exec \"$0\" --exact \"$1\"")]);
    child.arg(std::env::current_exe().unwrap());
    child.arg(format!("memory::tests::{name}")).env(CHILD, "1");
    let child = child.output().unwrap();
    assert!(child.status.success(), "{child:?}");
}

/// The variable that is set in a child of [`in_a_child`].
#[cfg(unix)]
const CHILD: &str = "RATEKEEPER_TEST_CHILD";

#[cfg(unix)]
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}
