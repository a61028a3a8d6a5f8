//! Servers that answer PING and decide nothing.

use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::{Circuit, RedisConfig, RedisStore};
use ratekeeper_testkit::process::free_port;
use ratekeeper_testkit::redis::{Client, Server};
use tokio::time::{Instant, sleep};

use crate::support::{LASTING, decide, limit, step, store, until};

/// The time for which a breaker that must not close is watched. With probes that only ask if the
/// server is there, it closed after 0.1 to 0.4 s.
const LOOKED_AT: Duration = Duration::from_secs(2);

fn tell(client: &mut Client, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let told = client.ask(&words);
    assert!(!told.is_error(), "{command}: {told:?}");
}

async fn until_circuit(store: &RedisStore, wanted: Circuit) {
    let limit = limit(Algorithm::FixedWindow, 1_000_000, LASTING);
    until(&format!("the breaker is {wanted:?}"), async || {
        let _ = decide(store, &[step(&limit, 1)]).await;
        store.shards()[0].circuit == wanted
    })
    .await;
}

fn says_that_it_does_not_serve(store: &RedisStore) -> bool {
    let faults = store.faults();
    faults.iter().any(|it| it.contains("does not serve"))
}

/// The breaker opens once and stays open until `undo` is done, and the reason is reported all the time.
async fn is_left_alone(refuse: &str, undo: &str) {
    let server = Server::start();
    let mut config = RedisConfig::default();
    // A server whose writes are paused costs three of these; a slow machine is no fault of it.
    config.deadline = Duration::from_secs(2);
    config.deny_cache_max = Duration::ZERO;
    let store = store(&server, config);
    store.greeted().await;
    let limit = limit(Algorithm::FixedWindow, 1_000_000, LASTING);
    let mut client = server.client();
    tell(&mut client, refuse);
    until_circuit(&store, Circuit::Open).await;
    until("it is said", async || says_that_it_does_not_serve(&store)).await;
    let opened = store.shards()[0].opened;
    let end = Instant::now() + LOOKED_AT;
    while Instant::now() < end {
        let answer = decide(&store, &[step(&limit, 1)]).await;
        assert!(answer.is_err(), "{refuse}: {answer:?}");
        let is_said = says_that_it_does_not_serve(&store);
        assert!(is_said, "{refuse}: {:?}", store.faults());
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(store.shards()[0].opened, opened, "{refuse}");
    tell(&mut client, undo);
    until_circuit(&store, Circuit::Closed).await;
    until("it serves, and nothing is said", async || {
        decide(&store, &[step(&limit, 1)]).await.is_ok() && store.faults().is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_server_without_memory_is_left_alone_until_it_has_some() {
    is_left_alone("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0").await;
}

#[tokio::test]
async fn a_server_that_is_read_only_is_left_alone_until_it_takes_writes() {
    let absent_primary = format!("REPLICAOF 127.0.0.1 {}", free_port());
    is_left_alone(&absent_primary, "REPLICAOF NO ONE").await;
}

#[tokio::test]
async fn a_server_that_lets_us_run_no_script_is_left_alone_until_it_does() {
    is_left_alone(
        "ACL SETUSER default -eval -evalsha",
        "ACL SETUSER default +eval +evalsha",
    )
    .await;
}

#[tokio::test]
async fn a_server_whose_writes_are_paused_is_left_alone_until_they_go_on() {
    is_left_alone("CLIENT PAUSE 600000 WRITE", "CLIENT UNPAUSE").await;
}
