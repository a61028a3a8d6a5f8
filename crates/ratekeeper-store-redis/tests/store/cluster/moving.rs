//! Slots that move from one shard to another while they are asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_store::{Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_store_redis::script::slot;
use ratekeeper_testkit::redis::Cluster;
use tokio::task::{JoinSet, spawn_blocking};

use super::{endpoint, patient, ready, step_of};
use crate::support::{decide, home, limit};

const TASKS: usize = 16;
const COUNTERS: u64 = 4;

/// No answer is lost, and each request is counted once, wherever its counter is just then.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_on_its_way_loses_no_answer_and_counts_none_twice() {
    let cluster = Arc::new(Cluster::start());
    let store = Arc::new(RedisStore::new(endpoint(&cluster), patient(), home()));
    ready(&store).await;
    let limit = limit(
        Algorithm::FixedWindow,
        1 << 40,
        Micros::from_secs(365 * 86_400),
    );
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
