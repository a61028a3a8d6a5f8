//! A server that fails, and comes back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Algorithm, Limit, Mode, Timestamp};
use ratekeeper_store::{Answer, Request, Store, StoreError};
use ratekeeper_store_redis::{Circuit, Endpoint, RedisConfig, RedisStore};
use ratekeeper_testkit::proxy::Proxy;
use ratekeeper_testkit::redis::{Reply, Server};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::support::{LASTING, decide, home, limit, patient, step, store, until};

fn yearly(quota: u64) -> Limit {
    limit(Algorithm::FixedWindow, quota, LASTING)
}

/// Asks until the answer is as `wanted`.
async fn until_told(
    store: &RedisStore,
    what: &str,
    wanted: impl Fn(Result<bool, StoreError>) -> bool,
) {
    let limit = yearly(1_000_000);
    until(what, async || {
        let answer = decide(store, &[step(&limit, 99)]).await;
        wanted(answer.map(|verdicts| verdicts.allowed))
    })
    .await;
}

fn circuit(store: &RedisStore) -> Circuit {
    store.shards()[0].circuit
}

async fn until_circuit(store: &RedisStore, wanted: Circuit) {
    let what = format!("the breaker is {wanted:?}");
    until_told(store, &what, |_| circuit(store) == wanted).await;
}

async fn until_clean(store: &RedisStore) {
    until("nothing is wrong", async || store.faults().is_empty()).await;
}

/// A deadline that servers which hang cost a few times, and that slow machines keep.
fn short() -> RedisConfig {
    let mut config = RedisConfig::default();
    config.deadline = Duration::from_secs(1);
    config
}

#[tokio::test]
async fn a_killed_server_is_left_alone_and_found_again() {
    let mut server = Server::start();
    let store = store(&server, patient());
    store.greeted().await;
    until_told(&store, "it answers", |answer| answer == Ok(true)).await;
    server.process().kill();
    until_circuit(&store, Circuit::Open).await;
    let limit = yearly(10);
    let answer = decide(&store, &[step(&limit, 1)]).await;
    assert_eq!(answer, Err(StoreError::Unavailable));
    until("it is said", async || {
        let faults = store.faults();
        faults.iter().any(|it| it.contains("does not serve"))
    })
    .await;
    server.restart();
    until_told(&store, "it answers again", |answer| answer == Ok(true)).await;
    assert_eq!(circuit(&store), Circuit::Closed);
    until_clean(&store).await;
}

#[tokio::test]
async fn a_hung_server_costs_a_deadline_and_then_nothing() {
    let mut server = Server::start();
    let store = store(&server, short());
    until_told(&store, "it answers", |answer| answer == Ok(true)).await;
    server.process().pause();
    until_circuit(&store, Circuit::Open).await;
    let faults: Vec<_> = store.shards()[0].faults.into_iter().collect();
    assert!(
        faults
            .iter()
            .any(|(cause, count)| *cause == "timeout" && *count > 0)
    );
    server.process().resume();
    until_told(&store, "it answers again", |answer| answer == Ok(true)).await;
}

/// A call that was sent may be carried out after its deadline; if the connection breaks, it is unknown whether it was.
#[tokio::test]
async fn an_answer_that_comes_late_is_told_and_one_that_cannot_come_any_more_is_lost() {
    let mut server = Server::start();
    let proxy = Proxy::start(server.port());
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = RedisStore::new(endpoint, short(), home());
    until_told(&store, "it answers", |answer| answer == Ok(true)).await;
    for breaks in [false, true] {
        let steps = [step(&yearly(10), 7)];
        server.process().pause();
        let request = Request::new(&steps, Mode::default(), Timestamp::EPOCH);
        let Answer::Pending(mut ticket) = store.decide(&request) else {
            panic!("a server is asked");
        };
        assert_eq!((&mut ticket).await, Err(StoreError::Timeout));
        let late = RedisStore::late(ticket).expect("its answer may still come");
        if breaks {
            proxy.cut_all();
            assert_eq!(late.await, Err(StoreError::Lost));
        } else {
            server.process().resume();
            assert!(late.await.expect("the answer comes").allowed);
        }
        server.process().resume();
        until_told(&store, "it answers again", |answer| answer == Ok(true)).await;
    }
}

#[tokio::test]
async fn a_network_that_swallows_everything_is_left_alone_and_connections_that_are_cut_are_replaced()
 {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = RedisStore::new(endpoint, short(), home());
    until_told(&store, "it answers", |answer| answer == Ok(true)).await;
    proxy.swallow(true);
    until_circuit(&store, Circuit::Open).await;
    proxy.swallow(false);
    until_told(&store, "it answers again", |answer| answer == Ok(true)).await;
    proxy.cut_all();
    until_told(&store, "it is asked again", |answer| answer == Ok(true)).await;
}

/// Decisions that waited nearly until their deadline are sent, and answered too late: that is our
/// load, not the server's fault.
#[tokio::test]
async fn a_queue_that_is_too_long_is_no_failure_of_the_server() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let mut config = RedisConfig::default();
    config.deadline = Duration::from_secs(2);
    config.groups_max = 4;
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = Arc::new(RedisStore::new(endpoint, config, home()));
    until_told(&store, "it answers", |answer| answer == Ok(true)).await;
    proxy.delay(Duration::from_millis(200));
    let before = store.shards()[0].opened;
    let mut tasks = JoinSet::new();
    for number in 0..400 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let limit = yearly(1_000_000);
            for round in 0..5 {
                let _ = decide(&*store, &[step(&limit, 1_000 + number * 5 + round)]).await;
            }
        });
    }
    tasks.join_all().await;
    let counts = &store.shards()[0];
    let faults: HashMap<_, _> = counts.faults.into_iter().collect();
    assert!(faults["overloaded"] > 400, "{faults:?}");
    assert!(counts.pipelines > 20, "{counts:?}");
    assert_eq!((counts.opened, counts.circuit), (before, Circuit::Closed));
}

#[tokio::test]
async fn a_request_of_too_many_steps_is_not_sent() {
    let server = Server::start();
    let store = store(&server, patient());
    let limit = yearly(1_000);
    let steps: Vec<_> = (0..65_536).map(|number| step(&limit, number)).collect();
    let answer = decide(&store, &steps).await;
    assert_eq!(answer, Err(StoreError::Overloaded));
    let counts = &store.shards()[0];
    assert_eq!((counts.decisions, counts.circuit), (0, Circuit::Closed));
    assert!(decide(&store, &steps[..1]).await.is_ok());
}

/// No caller waits for a second attempt to connect, nor for the breaker.
#[tokio::test]
async fn who_waits_for_a_connection_is_told_when_it_fails() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    proxy.swallow(true);
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let mut config = patient();
    config.connect_timeout = Duration::from_millis(500);
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = RedisStore::new(endpoint, config, home());
    let limit = yearly(10);
    for _ in 0..3 {
        let answer = decide(&store, &[step(&limit, 1)]).await;
        assert_eq!(answer, Err(StoreError::Unavailable));
        assert_eq!(circuit(&store), Circuit::Closed);
    }
}

/// The runtime that probes may end while the server is away.
#[test]
fn a_server_that_comes_back_is_found_by_another_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().expect("a runtime can be made")
    };
    let mut server = Server::start();
    let store = store(&server, short());
    let first = runtime();
    first.block_on(until_told(&store, "it answers", |answer| {
        answer == Ok(true)
    }));
    server.process().kill();
    first.block_on(until_circuit(&store, Circuit::Open));
    drop(first);
    server.restart();
    runtime().block_on(until_told(&store, "it answers", |answer| {
        answer == Ok(true)
    }));
}

/// A server that is too old is not asked for a single decision, and this is logged; a newer one in
/// its place is asked.
#[tokio::test]
async fn a_server_that_is_too_old_is_not_used() {
    let server = Server::start();
    let proxy = Proxy::start(server.port());
    let reply = server.client().ask(&["INFO", "server"]);
    let info = reply.text();
    let version = info.lines().find(|line| line.starts_with("redis_version:"));
    let version = version.expect("it says its version").trim_end();
    let old = format!("redis_version:{:0>1$}", "5.0.7", version.len() - 14);
    proxy.replace(version, &old);
    let url = format!("redis://127.0.0.1:{}/", proxy.port());
    let endpoint = Endpoint::parse(&url).expect("a good URL");
    let store = RedisStore::new(endpoint, short(), home());
    store.greeted().await;
    assert_eq!(circuit(&store), Circuit::Open);
    let limit = yearly(10);
    for _ in 0..100 {
        let answer = decide(&store, &[step(&limit, 1)]).await;
        assert_eq!(answer, Err(StoreError::Unavailable));
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(store.shards()[0].decisions, 0);
    let faults = store.faults();
    assert!(faults.iter().any(|it| it.contains("too old")), "{faults:?}");
    proxy.replace_nothing();
    until_told(&store, "it is used", |answer| answer == Ok(true)).await;
    until_clean(&store).await;
}

#[tokio::test]
async fn a_server_that_comes_later_is_found() {
    let mut server = Server::start();
    server.process().kill();
    let store = store(&server, short());
    until_told(&store, "it is missed", |answer| answer.is_err()).await;
    store.greeted().await;
    assert!(
        store
            .server_status()
            .error
            .is_some_and(|why| why.contains("cannot connect"))
    );
    server.restart();
    until_told(&store, "it answers", |answer| answer == Ok(true)).await;
}

#[tokio::test]
async fn scripts_that_are_gone_are_loaded_again_unnoticed() {
    let server = Server::start();
    let store = store(&server, patient());
    let mut client = server.client();
    let limit = yearly(1_000);
    for _ in 0..20 {
        client.ask(&["SCRIPT", "FLUSH"]);
        assert!(
            decide(&store, &[step(&limit, 1)])
                .await
                .expect("no error")
                .allowed
        );
    }
    assert!(store.shards()[0].reloads >= 20);
}

#[tokio::test]
async fn a_full_server_is_a_failure_and_no_denial() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let mut config = patient();
    config.deny_cache_max = Duration::ZERO;
    let store = store(&server, config);
    let limit = yearly(1_000_000);
    assert!(decide(&store, &[step(&limit, 1)]).await.is_ok());
    let mut client = server.client();
    client.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    let full = decide(&store, &[step(&limit, 2)]).await;
    assert_eq!(full, Err(StoreError::Unavailable));
    client.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    until_told(&store, "it has room again", |answer| answer == Ok(true)).await;
}

#[tokio::test]
async fn nodes_share_the_hash_key_and_a_flush_does_not_split_them() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let endpoint = Endpoint::parse(&url).unwrap();
    let node = || RedisStore::new(endpoint.clone(), patient(), home());
    let (one, other) = (node(), node());
    one.greeted().await;
    other.greeted().await;
    let hash_key = one.hash_key().expect("the server tells it");
    assert_eq!(other.hash_key(), Some(hash_key));
    let mut client = server.client();
    client.ask(&["FLUSHALL"]);
    // The time it was made follows it.
    let is_there =
        |there: &Reply| matches!(there, Reply::Bytes(it) if it.starts_with(&hash_key.to_bytes()));
    until("the hash_key is put back", async || {
        is_there(&client.ask(&["GET", "rk:hash-key"]))
    })
    .await;
    let third = node();
    third.greeted().await;
    assert!(
        [one, other, third]
            .iter()
            .all(|node| node.hash_key() == Some(hash_key))
    );
}

/// A node that does not know the hash key counts nothing, and one that does goes on; neither writes over it.
#[tokio::test]
async fn the_hash_key_of_a_later_version_is_left_as_it_is() {
    const LATER: &str = "hash-key 2 and whatever that has";
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let node = || RedisStore::new(Endpoint::parse(&url).unwrap(), patient(), home());
    let knows = node();
    knows.greeted().await;
    let mut client = server.client();
    client.ask(&["SET", "rk:hash-key", LATER]);
    let late = node();
    // Longer than after which one that is missing, or anything else in its place, is replaced.
    let until = Instant::now() + Duration::from_secs(4);
    while Instant::now() < until {
        let there = client.ask(&["GET", "rk:hash-key"]);
        assert_eq!(there, Reply::Bytes(LATER.into()));
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(late.hash_key(), None);
    assert!(knows.hash_key().is_some());
}

#[tokio::test]
async fn what_the_server_says_is_told() {
    let server = Server::with(&[
        "--requirepass",
        "right",
        "--maxmemory-policy",
        "allkeys-lru",
    ]);
    let status = async |password: &str| {
        let url = format!("redis://:{password}@127.0.0.1:{}/", server.port());
        let store = RedisStore::new(Endpoint::parse(&url).unwrap(), patient(), home());
        store.greeted().await;
        store.server_status()
    };
    let wrong = status("wrong").await.error.expect("it is refused");
    assert!(wrong.contains("refuses the login: WRONGPASS"), "{wrong}");
    let right = status("right").await;
    assert_eq!(right.error, None);
    let name = right.server.expect("it has a name");
    // Whichever the tests are run with.
    assert!(
        name.starts_with("Redis ") || name.starts_with("Valkey "),
        "{name}"
    );
    assert!(
        right.warnings[0].contains("allkeys-lru"),
        "{:?}",
        right.warnings
    );
}
