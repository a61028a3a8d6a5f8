//! The conformance tests of all stores, over several slots.

use ratekeeper_store_redis::RedisStore;
use ratekeeper_store_redis::script::Clock;
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::Cluster;

use super::{endpoint, patient, shared};
use crate::support::home;

ratekeeper_testkit::conformance!(histories: 30; {
    let cluster = shared();
    move || told(&cluster)
});

ratekeeper_testkit::conformance_of_returns!({
    let cluster = shared();
    move || told(&cluster)
});

fn told(cluster: &Cluster) -> RedisStore {
    let store = RedisStore::with_clock(endpoint(cluster), patient(), Clock::FromCaller, home());
    eventually(
        "the store knows the cluster, and how counters are named",
        || store.shards().len() == 3 && store.hash_key().is_some(),
    );
    store
}
