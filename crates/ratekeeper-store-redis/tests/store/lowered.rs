//! A bucket whose rate is lowered while hits are missing: they come back at the new rate, and the key lives on until they have.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};
use ratekeeper_store::{Step, StepOutcome, Verdicts};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::Server;

use crate::support::{LASTING, decide, limit, patient, step, store};

/// So long that a bucket of a hundred misses some for half an hour, however slow the machine is.
const WINDOW: Micros = Micros::from_secs(2_000);

fn bucket(algorithm: Algorithm, quota: u64, burst: u64) -> Limit {
    let burst = Some(burst);
    let spec = LimitSpec::new(algorithm, quota, WINDOW);
    Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit")
}

/// A store that asks for each request, and a server whose clock is set.
fn asking() -> (Server, RedisStore) {
    let server = Server::clocked(&[]);
    let mut config = patient();
    config.deny_cache_max = Duration::ZERO;
    let store = store(&server, config);
    (server, store)
}

async fn ask(store: &RedisStore, steps: &[Step]) -> Verdicts {
    decide(store, steps).await.expect("the server answers")
}

/// The wait that the last step is told, in whole seconds, rounded down.
fn wait(verdicts: &Verdicts) -> i64 {
    match verdicts.outcomes.last() {
        Some(StepOutcome::Counted(outcome)) => (outcome.retry_after.get() / 1_000_000) as i64,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_under_a_slower_rate_lasts_for_as_long_as_it_tells() {
    let (server, store) = asking();
    let other = step(&limit(Algorithm::FixedWindow, 1_000, LASTING), 100);
    let mut clock = 0;
    // By themselves, and beside another counter.
    let others: [&[Step]; 2] = [&[], &[other]];
    for (number, others) in (0..).zip(others) {
        for (algorithm, number) in [
            (Algorithm::TokenBucket, 2 * number),
            (Algorithm::Gcra, 2 * number + 1),
        ] {
            let (before, after) = (bucket(algorithm, 100, 100), bucket(algorithm, 2, 2));
            let all = Step {
                hits: 100,
                ..step(&before, number)
            };
            assert!(ask(&store, &[all]).await.allowed);
            let steps = [others, &[step(&after, number)]].concat();
            let denied = ask(&store, &steps).await;
            assert!(!denied.allowed);
            let told = wait(&denied);
            assert!(
                (60_000..=99_000).contains(&told),
                "{algorithm:?} is told {told} s"
            );
            // The server's clock runs on by itself meanwhile.
            server.set_clock(clock + told - 30_000);
            assert!(!ask(&store, &steps).await.allowed, "{algorithm:?} {number}");
            clock += told + 2;
            server.set_clock(clock);
            assert!(ask(&store, &steps).await.allowed, "{algorithm:?} {number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_denial_under_a_slower_rate_writes() {
    let (server, store) = asking();
    for steps in [1, 2] {
        let mut seen = Vec::new();
        // A server that is held up between the time by which keys end and the one that it tells writes once more.
        while seen.len() < 9 && seen.last() != Some(&[0, 1]) {
            let number = (steps * 100 + seen.len()) as u64;
            seen.push(writes_of_denials(&server, &store, number, steps).await);
        }
        assert_eq!(seen.last(), Some(&[0, 1]), "{steps} steps: {seen:?}");
    }
}

/// The times that three denials at the rate of the charge have a counter's end moved, and three at a slower one.
async fn writes_of_denials(
    server: &Server,
    store: &RedisStore,
    number: u64,
    steps: usize,
) -> [u64; 2] {
    let (before, after) = (
        bucket(Algorithm::TokenBucket, 100, 100),
        bucket(Algorithm::TokenBucket, 2, 2),
    );
    let all = Step {
        hits: 100,
        ..step(&before, number)
    };
    let other = step(&limit(Algorithm::FixedWindow, 9, LASTING), 1_000 + number);
    let written = || server.client().calls("pexpire");
    assert!(ask(store, &[all]).await.allowed);
    let mut writes = [0; 2];
    for (first, writes) in [all, step(&after, number)].into_iter().zip(&mut writes) {
        let already = written();
        for _ in 0..3 {
            assert!(!ask(store, &[first, other][..steps]).await.allowed);
        }
        *writes = written() - already;
    }
    writes
}
