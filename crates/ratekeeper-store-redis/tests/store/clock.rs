//! A server whose clock goes back, or whose successor's clock is behind.

use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, PRIMARY, Sentinels, Server};

use crate::support::{LASTING, decide, endpoint, home, limit, patient, step, store, until};

const TOLD: &str = "went back by";

fn tells(store: &RedisStore) -> bool {
    store.faults().iter().any(|fault| fault.contains(TOLD))
}

fn steps(store: &RedisStore) -> u64 {
    store.shards()[0].clock_steps_back
}

/// The counters have windows of years, so none of them is ahead by its window, and none is moved.
#[tokio::test(flavor = "multi_thread")]
async fn each_node_sees_a_clock_go_back_whatever_it_counts() {
    let server = Server::clocked(&[]);
    let nodes = [store(&server, patient()), store(&server, patient())];
    let limit = limit(Algorithm::FixedWindow, 1_000_000, LASTING);
    let ask = async |number| {
        for node in &nodes {
            decide(node, &[step(&limit, number)])
                .await
                .expect("it answers");
        }
    };
    for node in &nodes {
        node.greeted().await;
    }
    ask(1).await;
    server.set_clock(-20);
    ask(2).await;
    for node in &nodes {
        // The caller has its answer a moment before.
        eventually("the step is seen", || steps(node) == 1);
        assert!(tells(node), "{:?}", node.faults());
        assert_eq!(node.shards()[0].moved_counters, 0);
    }
    // It counts as one step, however many answers show it; a step forward counts as none.
    ask(3).await;
    server.set_clock(3_600);
    ask(4).await;
    for node in &nodes {
        assert_eq!(steps(node), 1);
    }
    server.set_clock(0);
    ask(5).await;
    for node in &nodes {
        eventually("the second step is seen", || steps(node) == 2);
        eventually("it is old news", || !tells(node));
    }
}

/// Without any request, the node looks by itself.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_node_sees_it_as_well() {
    let server = Server::clocked(&[]);
    let store = RedisStore::new(endpoint(&server), patient(), home());
    store.greeted().await;
    // By then its first look has heard the time.
    eventually("it has looked", || server.client().calls("evalsha") > 0);
    server.set_clock(-20);
    eventually("it is seen", || tells(&store));
    // Nor does a probe's own counter count as moved, which had not expired.
    assert_eq!(store.shards()[0].moved_counters, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_successor_whose_clock_is_behind_is_a_step_back() {
    let mut set = Sentinels::clocked(Duration::from_secs(3_600));
    for replica in &set.servers()[1..] {
        replica.set_clock(-20);
    }
    let store = RedisStore::new(
        Endpoint::parse(&set.url()).expect("a good URL"),
        patient(),
        home(),
    );
    let limit = limit(Algorithm::FixedWindow, 1_000_000, LASTING);
    store.greeted().await;
    decide(&store, &[step(&limit, 1)])
        .await
        .expect("it answers");
    let before = set.primary();
    let told = Client::connect(set.ports()[0]).ask(&["SENTINEL", "FAILOVER", PRIMARY]);
    assert!(!told.is_error(), "{told:?}");
    let before = format!(":{before}");
    until("the successor is asked, and its clock seen", async || {
        let _ = decide(&store, &[step(&limit, 2)]).await;
        !store.shards()[0].shard.ends_with(&before) && tells(&store)
    })
    .await;
    assert_eq!(steps(&store), 1);
}
