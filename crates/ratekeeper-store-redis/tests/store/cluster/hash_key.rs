//! The secret that counters are named by, shared by all nodes of a cluster whatever is away.

use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store::StoreError;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, Reply};

use super::{patient, ready, shared, step_of};
use crate::support::{LASTING, decide, home, limit, prefix};

const SHARDS: usize = 3;

/// A service with keys of its own.
struct Service {
    prefix: String,
    endpoint: Endpoint,
}

impl Service {
    fn new(cluster: &Cluster) -> Self {
        let prefix = prefix();
        let url = format!("{}?prefix={prefix}", cluster.url());
        let endpoint = Endpoint::parse(&url).expect("a good URL");
        Self { prefix, endpoint }
    }

    fn node(&self) -> RedisStore {
        RedisStore::new(self.endpoint.clone(), patient(), home())
    }

    fn hash_key_name(&self) -> String {
        format!("{}rk:hash-key", self.prefix)
    }

    /// Returns the number of the shard, in the original layout, that has the first key.
    fn home_of_hash_key(&self, cluster: &Cluster) -> usize {
        let asked = cluster
            .client(0)
            .ask(&["CLUSTER", "KEYSLOT", &self.hash_key_name()]);
        let Reply::Int(slot) = asked else {
            panic!("a slot is a number");
        };
        usize::try_from(slot).expect("it is positive") * SHARDS / 16_384
    }
}

fn is_copied(cluster: &Cluster, service: &Service, shard: usize) -> bool {
    let pattern = format!("{}:*", service.hash_key_name());
    match cluster.client(shard).ask(&["KEYS", &pattern]) {
        Reply::Array(keys) => !keys.is_empty(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn all_nodes_share_one_hash_key() {
    let cluster = shared();
    let service = Service::new(&cluster);
    let nodes = [0; 3].map(|_| service.node());
    for node in &nodes {
        ready(node).await;
        assert_eq!(node.server_status().error, None);
        assert_eq!(node.shards().len(), SHARDS);
    }
    let hash_key = nodes[0].hash_key().expect("it is agreed upon");
    assert!(nodes.iter().all(|node| node.hash_key() == Some(hash_key)));
}

/// Nor does one that starts when that shard is back, and has forgotten everything.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_starts_while_the_shard_of_the_hash_key_is_away_names_counters_as_the_others_do()
 {
    let mut cluster = Cluster::of(SHARDS, 0, Duration::from_secs(5));
    let service = Service::new(&cluster);
    let lost = service.home_of_hash_key(&cluster);
    let first = service.node();
    ready(&first).await;
    let hash_key = first.hash_key().expect("it is agreed upon");
    for shard in (0..SHARDS).filter(|shard| *shard != lost) {
        eventually("each shard has a copy", || {
            is_copied(&cluster, &service, shard)
        });
    }
    cluster.servers()[lost].process().kill();
    let second = service.node();
    ready(&second).await;
    assert_eq!(second.hash_key(), Some(hash_key));
    let limit = limit(Algorithm::FixedWindow, 10, LASTING);
    let healthy = step_of(&limit, 1, (lost + 1) % SHARDS);
    assert!(
        decide(&second, &[healthy])
            .await
            .expect("it serves")
            .allowed
    );

    // No node is left to put it back.
    drop((first, second));
    cluster.servers()[lost].restart();
    cluster.wait();
    assert_eq!(
        cluster
            .client(lost)
            .ask(&["EXISTS", &service.hash_key_name()]),
        Reply::Int(0)
    );
    let third = service.node();
    ready(&third).await;
    assert_eq!(third.hash_key(), Some(hash_key));
    let mut client = cluster.client(lost);
    eventually("it lies where it lay", || {
        let there = client.ask(&["GET", &service.hash_key_name()]);
        // The time it was made follows it.
        matches!(there, Reply::Bytes(it) if it.starts_with(&hash_key.to_bytes()))
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_counted_by_a_secret_that_is_not_shared() {
    let mut cluster = Cluster::of(SHARDS, 0, Duration::from_secs(5));
    let service = Service::new(&cluster);
    let lost = service.home_of_hash_key(&cluster);
    cluster.servers()[lost].process().kill();
    let store = service.node();
    ready(&store).await;
    let limit = limit(Algorithm::FixedWindow, 10, LASTING);
    let healthy = step_of(&limit, 1, (lost + 1) % SHARDS);
    assert_eq!(store.hash_key(), None);
    let answer = decide(&store, &[healthy]).await;
    assert_eq!(answer, Err(StoreError::Unavailable));
    let is_said = |store: &RedisStore| store.faults().iter().any(|it| it.contains("the key that"));
    assert!(is_said(&store), "{:?}", store.faults());

    cluster.servers()[lost].restart();
    eventually("it is agreed upon", || store.hash_key().is_some());
    assert!(!is_said(&store), "{:?}", store.faults());
    assert!(decide(&store, &[healthy]).await.expect("it serves").allowed);
}
