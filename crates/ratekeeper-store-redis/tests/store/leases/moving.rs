//! Leases while their counters move, and while nodes come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store::{Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_store_redis::script::slot;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, Server};
use tokio::task::{JoinSet, spawn_blocking};

use super::cases::leased;
use super::counts;
use crate::cluster::{self, step_of};
use crate::support::{LASTING, decide, endpoint, home, limit, patient, step, until};

/// The pause between requests of one task, so that others have their turns on a busy machine.
const PAUSE: Duration = Duration::from_micros(300);

/// Denials in a row after which nothing more is admitted.
const DENIED: usize = 300;

/// Hits that all nodes together have admitted.
#[derive(Debug, Default)]
struct Sum {
    all: AtomicU64,
    from_leases: AtomicU64,
    stop: AtomicBool,
}

impl Sum {
    /// Asks once. What is not answered is not admitted.
    async fn ask(&self, store: &RedisStore, step: &Step) {
        if let Ok(verdicts) = decide(store, &[*step]).await
            && verdicts.allowed
        {
            self.all.fetch_add(1, Ordering::Relaxed);
            let is_leased = matches!(verdicts.outcomes[0], StepOutcome::Leased(_));
            self.from_leases
                .fetch_add(u64::from(is_leased), Ordering::Relaxed);
        }
    }
}

/// Asks until it is told to stop.
async fn flood(store: Arc<RedisStore>, step: Step, sum: Arc<Sum>) {
    while !sum.stop.load(Ordering::Relaxed) {
        sum.ask(&store, &step).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Asks for all that is left; what was charged and never admitted is missing.
async fn check(stores: &[Arc<RedisStore>], step: &Step, sum: &Sum, limit: u64) {
    until("nothing is left", async || {
        let before = sum.all.load(Ordering::Relaxed);
        for store in stores {
            for _ in 0..DENIED {
                sum.ask(store, step).await;
            }
        }
        sum.all.load(Ordering::Relaxed) == before
    })
    .await;
    let all = sum.all.load(Ordering::Relaxed);
    let burned: u64 = stores.iter().map(|store| counts(store).burned).sum();
    println!("{all} of {limit} admitted, {burned} burned, {sum:?}");
    assert!(all <= limit, "{all} of {limit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_slot_that_moves_while_it_is_leased_admits_no_more_than_the_limit() {
    const LIMIT: u64 = 20_000;
    let set = Arc::new(Cluster::of(3, 0, Duration::from_secs(60)));
    let at = cluster::endpoint(&set);
    let node = |()| Arc::new(RedisStore::new(at.clone(), patient(), home()));
    let stores = [(), ()].map(node);
    for store in &stores {
        cluster::ready(store).await;
    }
    let step = leased(&step_of(
        &limit(Algorithm::FixedWindow, LIMIT, LASTING),
        1,
        0,
    ));
    let (sum, mut tasks) = (Arc::new(Sum::default()), JoinSet::new());
    for store in &stores {
        tasks.spawn(flood(Arc::clone(store), step, Arc::clone(&sum)));
    }
    until("both know of each other", async || {
        stores.iter().all(|store| counts(store).nodes == 2)
    })
    .await;
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 1)] {
        let leased = sum.from_leases.load(Ordering::Relaxed);
        until("hits are admitted from leases there", async || {
            let now = sum.from_leases.load(Ordering::Relaxed);
            now > leased + 20 || sum.all.load(Ordering::Relaxed) > LIMIT / 2
        })
        .await;
        let moving = Arc::clone(&set);
        let moved = spawn_blocking(move || moving.move_slot(slot(step.key.subject), from, to));
        moved.await.expect("a slot can be moved");
    }
    sum.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    check(&stores, &step, &sum, LIMIT).await;
    assert!(sum.from_leases.load(Ordering::Relaxed) > 0);
}

/// One node joins, and one goes without a word while it holds a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_that_join_and_leave_admit_no_more_than_the_limit() {
    const LIMIT: u64 = 20_000;
    let server = Server::start();
    let at = endpoint(&server);
    let node = || Arc::new(RedisStore::new(at.clone(), patient(), home()));
    let (first, second) = (node(), node());
    let step = leased(&step(&limit(Algorithm::FixedWindow, LIMIT, LASTING), 1));
    let (sum, other) = (Arc::new(Sum::default()), Arc::new(Sum::default()));
    let mut tasks = JoinSet::new();
    tasks.spawn(flood(Arc::clone(&first), step, Arc::clone(&sum)));
    tasks.spawn(flood(Arc::clone(&second), step, Arc::clone(&other)));
    eventually("both know of each other", || {
        [&first, &second]
            .iter()
            .all(|store| counts(store).nodes == 2)
    });
    // Its leases are burned.
    other.stop.store(true, Ordering::Relaxed);
    drop(second);
    let third = node();
    tasks.spawn(flood(Arc::clone(&third), step, Arc::clone(&sum)));
    until(
        "the one that has gone is not counted any more",
        async || counts(&third).nodes == 2 && counts(&first).nodes == 2,
    )
    .await;
    third.give_leases_back().await;
    assert_eq!(counts(&third).leases, 0);
    sum.stop.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    sum.all
        .fetch_add(other.all.load(Ordering::Relaxed), Ordering::Relaxed);
    check(&[first, third], &step, &sum, LIMIT).await;
    assert!(sum.from_leases.load(Ordering::Relaxed) > 0);
}
