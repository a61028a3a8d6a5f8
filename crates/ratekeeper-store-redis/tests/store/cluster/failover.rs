//! A shard that is lost, and its replica that takes over.

use std::time::Duration;

use ratekeeper_core::{Algorithm, Mode};
use ratekeeper_store::{Request, Step, StepOutcome, Store, StoreError};
use ratekeeper_store_redis::{Circuit, RedisStore};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, Reply};

use super::{endpoint, patient, ready, step_of, steps};
use crate::support::{LASTING, decide, home, limit, until};

/// The time that a primary has to be gone before it is missed: more than a busy machine takes from it.
const GONE: Duration = Duration::from_secs(5);

fn is_primary(cluster: &Cluster, node: usize) -> bool {
    match cluster.client(node).ask(&["ROLE"]) {
        Reply::Array(role) => role[0].text() == "master",
        other => panic!("{other:?}"),
    }
}

async fn remaining(store: &RedisStore, look: &[Step]) -> u64 {
    let verdicts = decide(store, look).await.expect("this serves");
    let StepOutcome::Counted(outcome) = verdicts.outcomes[0] else {
        panic!("Redis has room");
    };
    outcome.remaining
}

fn left(outcome: &StepOutcome) -> u64 {
    match outcome {
        StepOutcome::Counted(outcome) => outcome.remaining,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_shard_is_missed_by_its_own_counters_alone_until_its_replica_serves() {
    let mut cluster = Cluster::of(3, 1, GONE);
    let store = RedisStore::new(endpoint(&cluster), patient(), home());
    ready(&store).await;
    let limit = limit(Algorithm::FixedWindow, 1_000_000, LASTING);
    let (lost, kept) = (step_of(&limit, 1, 0), step_of(&limit, 1, 1));
    for step in [lost, kept] {
        assert!(decide(&store, &[step]).await.expect("all serve").allowed);
    }
    let gone = format!("127.0.0.1:{}", cluster.ports()[0]);
    cluster.servers()[0].process().kill();
    let mut failed = 0;
    until("the replica serves", async || {
        let verdicts = decide(&store, &[kept]).await;
        assert!(verdicts.expect("the others serve on").allowed);
        // Its own breaker alone opens.
        for shard in store.shards().iter().filter(|it| *it.shard != *gone) {
            assert_eq!(shard.circuit, Circuit::Closed, "{}", shard.shard);
        }
        match decide(&store, &[lost]).await {
            Ok(verdicts) => {
                assert!(verdicts.allowed);
                true
            }
            Err(error) => {
                assert_eq!(error, StoreError::Unavailable);
                failed += 1;
                false
            }
        }
    })
    .await;
    assert!(failed > 0, "it was away");
    assert!(is_primary(&cluster, 3));
    // Its metrics have gone with it.
    eventually("the lost server is forgotten", || {
        let shards = store.shards();
        shards.len() == 3 && shards.iter().all(|shard| *shard.shard != *gone)
    });
    let all = steps(&limit, 1, 3);
    assert!(decide(&store, &all).await.expect("all serve again").allowed);
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_that_are_there_count_on_without_one_that_is_lost() {
    let mut cluster = Cluster::of(3, 0, GONE);
    let store = RedisStore::new(endpoint(&cluster), patient(), home());
    ready(&store).await;
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    let all = steps(&limit, 1, 3);
    assert!(decide(&store, &all).await.expect("all serve").allowed);
    cluster.servers()[2].process().kill();
    for asked in 2..=50 {
        let verdicts = decide(&store, &all).await.expect("two serve");
        assert!(verdicts.allowed);
        for outcome in &verdicts.outcomes[..2] {
            assert_eq!(left(outcome), 1_000 - asked);
        }
        assert!(!verdicts.outcomes[2].is_answered());
        if asked == 50 {
            let request = Request::new(&all, Mode::default(), verdicts.at);
            store.give_back(&request, &verdicts);
        }
    }
    // No request waits for that, so it may still be on its way.
    for step in &all[..2] {
        let look = [Step { hits: 0, ..*step }];
        until("what was taken last is given back", async || {
            remaining(&store, &look).await == 1_000 - 49
        })
        .await;
    }
    eventually("it is said what is missing", || !store.faults().is_empty());
}

/// A server that hangs is the worst case: it may have counted or not.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_hung_shard_may_have_counted_is_not_asked_again() {
    let mut cluster = Cluster::of(3, 0, Duration::from_secs(60));
    let mut config = patient();
    config.deadline = Duration::from_secs(5);
    let store = RedisStore::new(endpoint(&cluster), config, home());
    ready(&store).await;
    let limit = limit(Algorithm::FixedWindow, 1_000, LASTING);
    let (hung, kept) = (step_of(&limit, 1, 0), step_of(&limit, 1, 1));
    for step in [hung, kept] {
        assert!(decide(&store, &[step]).await.expect("all serve").allowed);
    }
    cluster.servers()[0].process().pause();
    let asked = 5;
    for _ in 0..asked {
        assert!(decide(&store, &[hung]).await.is_err());
        assert!(decide(&store, &[kept]).await.expect("it serves").allowed);
    }
    cluster.servers()[0].process().resume();
    until("it serves again", async || {
        decide(&store, &[hung]).await.is_ok()
    })
    .await;
    let look = [Step { hits: 0, ..hung }];
    let looked = decide(&store, &look).await.expect("it serves again");
    let StepOutcome::Counted(outcome) = looked.outcomes[0] else {
        panic!("Redis has room");
    };
    // One before, one after, and each of those in between once at most.
    let counted = 1_000 - outcome.remaining;
    assert!((2..=2 + asked).contains(&counted), "{counted}");
}
