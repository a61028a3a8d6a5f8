//! Checks of servers that are not asked for decisions.

use std::time::Duration;

use ratekeeper_store_redis::{Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::{Sentinels, Server};

use crate::support::{home, patient, store};

fn says(store: &RedisStore, what: &str) -> bool {
    store.faults().iter().any(|it| it.contains(what))
}

/// All background tasks run on another runtime, and no connection is ever started.
#[tokio::test]
async fn a_healthy_idle_server_is_well() {
    let server = Server::start();
    let store = store(&server, patient());
    store.greeted().await;
    assert!(store.faults().is_empty(), "{:?}", store.faults());
}

#[tokio::test]
async fn an_idle_server_that_hangs_is_seen() {
    let mut server = Server::start();
    let store = store(&server, patient());
    store.greeted().await;
    server.process().pause();
    eventually("it is seen", || says(&store, "cannot be asked"));
    server.process().resume();
    eventually("it is seen", || store.faults().is_empty());
}

#[tokio::test]
async fn an_idle_server_that_decides_nothing_is_seen() {
    let server = Server::start();
    let store = store(&server, patient());
    store.greeted().await;
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("it is seen", || says(&store, "OOM"));
    client.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    eventually("it is seen", || store.faults().is_empty());
}

#[tokio::test]
async fn an_eviction_policy_that_is_set_later_is_seen() {
    let server = Server::start();
    let mut config = patient();
    config.look_every = Duration::from_millis(100);
    let store = store(&server, config);
    store.greeted().await;
    assert!(store.faults().is_empty(), "{:?}", store.faults());
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    eventually("it is seen", || {
        says(&store, "maxmemory-policy allkeys-lru")
    });
    client.ask(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    eventually("it is seen", || store.faults().is_empty());
}

#[tokio::test]
async fn a_server_that_is_too_far_away_for_the_deadline_is_warned_of() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    proxy.delay(Duration::from_millis(40));
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let mut config = RedisConfig::default();
    config.deadline = Duration::from_millis(200);
    config.connect_timeout = Duration::from_secs(20);
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = RedisStore::new(endpoint, config, home());
    eventually("it is said", || {
        says(&store, "more than a quarter of the deadline of 200ms")
    });
    proxy.delay(Duration::ZERO);
    eventually("it is over", || !says(&store, "quarter"));
}

#[tokio::test]
async fn a_primary_that_is_away_is_not_blamed_on_the_sentinels() {
    let mut set = Sentinels::with_down_after(Duration::from_secs(3_600));
    let endpoint = Endpoint::parse(&set.url()).expect("a good URL");
    set.servers()[0].process().kill();
    let store = RedisStore::new(endpoint, patient(), home());
    let away = "the primary that the sentinels name cannot be used";
    eventually("it is said", || says(&store, away));
    assert!(!says(&store, "no sentinel names"), "{:?}", store.faults());
    set.servers()[0].restart();
    eventually("it is back", || store.faults().is_empty());
}
