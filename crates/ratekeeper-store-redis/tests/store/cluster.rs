//! The store beside a cluster of three shards, each with a replica.

mod conformance;
mod exact;
mod failover;
mod hash_key;
mod moving;
mod rights;
mod stale;

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::Limit;
use ratekeeper_store::{CounterKey, Step};
use ratekeeper_store_redis::script::slot;
use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::process::DEADLINE;
use ratekeeper_testkit::redis::{Client, Cluster};

use crate::support::{home, prefix, step};

/// A cluster that no test changes, shared by all that run at the same time.
fn shared() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::start());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

/// Counters of the cluster that no other test has.
pub(crate) fn endpoint(cluster: &Cluster) -> Endpoint {
    let url = format!("{}?prefix={}", cluster.url(), prefix());
    Endpoint::parse(&url).expect("a good URL")
}

fn store(cluster: &Cluster, config: RedisConfig) -> RedisStore {
    RedisStore::new(endpoint(cluster), config, home())
}

/// Deadlines that slow machines keep, even if one node is asked in vain first.
fn patient() -> RedisConfig {
    let mut config = RedisConfig::default();
    config.deadline = Duration::from_secs(60);
    config.connect_timeout = Duration::from_secs(20);
    config
}

/// Waits until the store knows the shards.
pub(crate) async fn ready(store: &RedisStore) {
    let waited = tokio::time::timeout(DEADLINE, store.greeted()).await;
    waited.expect("the cluster says what it is");
}

/// Counters number `number` of each of `shards` shards, each in a slot of its own.
fn steps(limit: &Limit, number: u64, shards: usize) -> Vec<Step> {
    (0..shards)
        .map(|shard| step_of(limit, number, shard))
        .collect()
}

/// A counter on that shard of three, in the order in which the cluster began.
pub(crate) fn step_of(limit: &Limit, number: u64, shard: usize) -> Step {
    let lies_there = |subject: &u64| usize::from(slot(*subject)) * 3 / 16_384 == shard;
    let first = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let subject = (first..).find(lies_there).expect("every shard has slots");
    Step {
        key: CounterKey {
            subject,
            identity: number,
        },
        ..step(limit, number)
    }
}

#[test]
fn slots_are_those_of_the_server() {
    let cluster = shared();
    let mut client: Client = cluster.client(0);
    for number in 0..200_u64 {
        let subject = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = Vec::new();
        let names = ratekeeper_store_redis::script::KeyName::default();
        let identity = number;
        names.counter(CounterKey { subject, identity }, &mut key);
        let asked: [&[u8]; 3] = [b"CLUSTER", b"KEYSLOT", &key];
        let said = client.ask(&asked);
        let slot = i64::from(slot(subject));
        assert_eq!(said, ratekeeper_testkit::redis::Reply::Int(slot));
    }
}
