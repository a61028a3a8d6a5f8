//! A node that was cut off from its cluster without knowing it.

use std::time::Duration;

use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Cluster, hosts};

use super::patient;
use crate::support::{home, prefix};

/// It is asked first, and answers; the others have moved on since.
#[tokio::test]
async fn who_has_seen_the_latest_change_is_believed() {
    let cluster = Cluster::of(3, 0, Duration::from_secs(60));
    let cut_off = Cluster::of(1, 0, Duration::from_secs(60));
    let hosts = hosts(&[cut_off.ports(), cluster.ports()].concat());
    let url = format!("redis+cluster://{hosts}/?prefix={}", prefix());
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = RedisStore::new(endpoint, patient(), home());
    eventually("the cluster's own nodes are found", || {
        store.shards().len() == 3
    });
}
