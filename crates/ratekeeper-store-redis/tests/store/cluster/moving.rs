//! Slots that move from one shard to another while they are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use ratekeeper_core::Algorithm;
use ratekeeper_store::{CounterKey, Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_store_redis::script::slot;
use ratekeeper_testkit::redis::Cluster;
use tokio::task::{JoinSet, spawn_blocking};

use super::{endpoint, patient, ready, step_of};
use crate::support::{LASTING, decide, home, limit};

const TASKS: usize = 16;
const COUNTERS: u64 = 4;
const NEIGHBOURS: u64 = 40;

/// The counters of a migrating slot lie at both ends, and each is decided where it is: none waits for its neighbours.
#[tokio::test]
async fn half_of_a_slot_is_decided_at_each_end() {
    let cluster = Cluster::of(3, 0, Duration::from_secs(60));
    let store = RedisStore::new(endpoint(&cluster), patient(), home());
    ready(&store).await;
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    let first = step_of(&limit, 1, 0);
    let neighbours: Vec<_> = (0..NEIGHBOURS)
        .map(|identity| Step {
            key: CounterKey {
                identity,
                ..first.key
            },
            ..first
        })
        .collect();
    let (known, new) = neighbours.split_at(neighbours.len() * 3 / 4);
    for step in known {
        assert!(decide(&store, &[*step]).await.expect("all serve").allowed);
    }
    let slot = slot(first.key.subject);
    cluster.begin_moving(slot, 0, 1);
    assert_eq!(
        cluster.move_keys(slot, known.len() / 2, 0, 1),
        known.len() / 2
    );
    for _ in 0..3 {
        // All of them wait for one pipeline.
        let asked = neighbours.chunks(1).map(|step| decide(&store, step));
        for verdicts in join_all(asked).await {
            assert!(verdicts.expect("it is at one of the ends").allowed);
        }
    }
    for (steps, counted) in [(known, 4), (new, 3)] {
        for step in steps {
            let look = [Step { hits: 0, ..*step }];
            let looked = decide(&store, &look)
                .await
                .expect("it is at one of the ends");
            let StepOutcome::Counted(outcome) = looked.outcomes[0] else {
                panic!("Redis has room");
            };
            assert_eq!(1_000 - outcome.remaining, counted);
        }
    }
}

/// No answer is lost, and each request is counted once, wherever its counter is at the moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_on_its_way_loses_no_answer_and_counts_none_twice() {
    let cluster = Arc::new(Cluster::start());
    let store = Arc::new(RedisStore::new(endpoint(&cluster), patient(), home()));
    ready(&store).await;
    let limit = limit(Algorithm::FixedWindow, 1 << 40, LASTING);
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tasks.spawn(async move {
            let mut asked = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                for number in 0..COUNTERS {
                    // One that moves, and one that stays where it is.
                    let steps = [step_of(&limit, number, 0), step_of(&limit, number, 1)];
                    let verdicts = decide(&*store, &steps).await;
                    let Ok(verdicts) = verdicts else {
                        panic!("an answer, wherever it is: {:?}", store.shards());
                    };
                    assert!(verdicts.allowed);
                }
                asked += 1;
            }
            asked
        });
    }
    let moving = Arc::clone(&cluster);
    spawn_blocking(move || {
        for number in 0..COUNTERS {
            let slot = slot(step_of(&limit, number, 0).key.subject);
            for (from, to) in [(0, 1), (1, 2), (2, 0)] {
                moving.move_slot(slot, from, to);
            }
        }
    })
    .await
    .expect("slots can be moved");
    stop.store(true, Ordering::Relaxed);
    let asked: u64 = tasks.join_all().await.into_iter().sum();
    for number in 0..COUNTERS {
        for shard in [0, 1] {
            let look = [Step {
                hits: 0,
                ..step_of(&limit, number, shard)
            }];
            let StepOutcome::Counted(outcome) =
                decide(&*store, &look).await.expect("an answer").outcomes[0]
            else {
                panic!("Redis has room");
            };
            assert_eq!((1 << 40) - outcome.remaining, asked, "counter {number}");
        }
    }
    let redirects: u64 = store.shards().iter().map(|shard| shard.redirects).sum();
    assert!(redirects > 0, "nothing was asked while it moved");
}
