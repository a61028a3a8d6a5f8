//! Exactly the limit passes, however many ask at once; and all counters of a request are taken
//! together or not at all, wherever they lie.

use std::sync::Arc;

use ratekeeper_core::{Algorithm, Limit};
use ratekeeper_store::{Step, StepOutcome};
use ratekeeper_store_redis::RedisStore;
use ratekeeper_testkit::redis::Cluster;
use tokio::task::JoinSet;

use super::{patient, ready, shared, steps, store};
use crate::support::{LASTING, decide, home, limit, until};

const NODES: usize = 4;
const TASKS: usize = 64;
const ASKED: usize = 20;

/// Nodes that share their counters, each with connections of its own.
async fn nodes(cluster: &Cluster) -> Vec<Arc<RedisStore>> {
    let endpoint = super::endpoint(cluster);
    let node = || RedisStore::new(endpoint.clone(), patient(), home());
    let nodes: Vec<_> = (0..NODES).map(|_| Arc::new(node())).collect();
    for node in &nodes {
        ready(node).await;
    }
    nodes
}

/// Returns how many requests pass in a flood of `limits`, each a counter in a shard of its own.
async fn admitted(nodes: &[Arc<RedisStore>], limits: &[Limit]) -> usize {
    let mut tasks = JoinSet::new();
    for node in nodes {
        for _ in 0..TASKS {
            let (node, limits) = (Arc::clone(node), limits.to_vec());
            tasks.spawn(async move {
                let mut admitted = 0;
                for _ in 0..ASKED {
                    let verdicts = decide(&*node, &together(&limits)).await;
                    admitted += usize::from(verdicts.expect("the cluster answers").allowed);
                }
                admitted
            });
        }
    }
    tasks.join_all().await.into_iter().sum()
}

fn together(limits: &[Limit]) -> Vec<Step> {
    let counters = limits.iter().enumerate();
    counters
        .map(|(shard, limit)| super::step_of(limit, 1, shard))
        .collect()
}

async fn left(node: &RedisStore, step: Step) -> u64 {
    let look = [Step { hits: 0, ..step }];
    match decide(node, &look)
        .await
        .expect("the cluster answers")
        .outcomes[0]
    {
        StepOutcome::Counted(outcome) => outcome.remaining,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flood_of_one_counter_is_admitted_exactly() {
    let cluster = shared();
    let nodes = nodes(&cluster).await;
    let limit = limit(Algorithm::SlidingWindow, 1_000, LASTING);
    assert_eq!(admitted(&nodes, &[limit]).await, 1_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counters_of_several_shards_are_taken_together_or_not_at_all() {
    let cluster = shared();
    let nodes = nodes(&cluster).await;
    let quotas = [100_000, 1_000, 100_000];
    let limits = quotas.map(|quota| limit(Algorithm::FixedWindow, quota, LASTING));
    assert_eq!(admitted(&nodes, &limits).await, 1_000);
    for (step, quota) in together(&limits).into_iter().zip(quotas) {
        // A refund may still be on its way.
        until(&format!("1000 of {quota} are taken"), async || {
            quota - left(&nodes[0], step).await == 1_000
        })
        .await;
    }
    let counts = nodes.iter().flat_map(|node| node.shards());
    assert_eq!(counts.map(|it| it.stranded_hits).sum::<u64>(), 0);
}

#[tokio::test]
async fn a_flood_of_denials_over_several_slots_is_not_asked() {
    let cluster = shared();
    let store = store(&cluster, patient());
    ready(&store).await;
    let (wide, five) = (
        limit(Algorithm::FixedWindow, 100_000, LASTING),
        limit(Algorithm::FixedWindow, 5, LASTING),
    );
    let mut steps = steps(&wide, 7, 3);
    steps[1].limit = five;
    for _ in 0..1_000 {
        decide(&store, &steps).await.expect("the cluster answers");
    }
    let sent: u64 = store.shards().iter().map(|shard| shard.decisions).sum();
    assert!(sent < 1_500, "{sent} parts of 3000 were sent");
    assert_eq!(left(&store, steps[0]).await, 100_000 - 5);
}
