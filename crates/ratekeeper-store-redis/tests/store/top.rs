//! Nodes lay out their top keys, and read those of the others.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_store_redis::{Endpoint, NodeBoard, RedisStore};
use ratekeeper_testkit::redis::{Client, Cluster, Reply, Server};

use crate::support::{patient, until};

fn boards<const N: usize>(url: &str) -> [(RedisStore, Arc<NodeBoard>); N] {
    std::array::from_fn(|_| {
        let home = tokio::runtime::Handle::current();
        let endpoint = Endpoint::parse(url).expect("a good URL");
        let store = RedisStore::new(endpoint, patient(), home);
        let board = store.top();
        (store, board)
    })
}

/// Lays out `own` and reads until the lists of the others are these.
async fn sees(board: &NodeBoard, own: &str, others: &[&str]) {
    until(&format!("{others:?} are seen beside {own}"), async || {
        if board.publish(own).await.is_err() {
            return false;
        }
        let Ok(read) = board.read().await else {
            return false;
        };
        let mut texts: Vec<_> = read.lists.into_iter().map(|list| list.text).collect();
        texts.sort();
        texts == others
    })
    .await;
}

#[tokio::test]
async fn each_node_reads_the_lists_of_the_others_until_they_expire() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/?prefix=t:", server.port());
    let [(_a, first), (_b, second)] = boards(&url);
    sees(&first, "one", &[]).await;
    sees(&second, "two", &["one"]).await;
    sees(&first, "ein", &["two"]).await;
    sees(&second, "zwei", &["ein"]).await;
    let mut client = server.client();
    let Reply::Array(keys) = client.ask(&["KEYS", "t:rk:{top}*"]) else {
        panic!("no keys");
    };
    assert_eq!(
        keys.len(),
        3,
        "a list for each node, and the list of nodes: {keys:?}"
    );
    for key in keys {
        let key = key.text();
        let left = client.ask(&["PTTL", &key]);
        assert!(matches!(left, Reply::Int(1..=10_000)), "{key}: {left:?}");
    }
    // The second says no more.
    drop(second);
    sees(&first, "uno", &[]).await;
}

#[tokio::test]
async fn the_lists_that_are_read_are_bounded_in_number_and_size() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let [(_a, board)] = boards(&url);
    board.publish("own").await.expect("it is taken");
    let mut client = server.client();
    let long = "x".repeat(256 * 1024 + 1);
    let Reply::Array(time) = client.ask(&["TIME"]) else {
        panic!("no time");
    };
    let seconds = time[0].text();
    // They count as new for as long as the test may take.
    let later = seconds.parse::<u64>().expect("a number") * 1_000_000 + 600_000_000;
    for number in 0..100 {
        let text = if number % 2 == 0 { "short" } else { &long };
        client.ask(&["SET", &format!("rk:{{top}}:{number:03}"), text]);
        let name = format!("{number:03}");
        client.ask(&["ZADD", "rk:{top}nodes", &later.to_string(), &name]);
    }
    let read = board.read().await.expect("they are told");
    // This node's own is the oldest of 64 that are asked for.
    assert_eq!(read.left_out, 37);
    assert_eq!(read.lists.len(), 32, "long ones are left out");
    assert!(read.lists.iter().all(|list| list.text == "short"));
}

#[tokio::test]
async fn a_server_that_is_away_is_found_again() {
    let mut server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let [(_store, board)] = boards(&url);
    sees(&board, "one", &[]).await;
    server.process().kill();
    assert!(board.publish("one").await.is_err());
    assert!(board.read().await.is_err());
    server.restart();
    sees(&board, "one", &[]).await;
}

/// The connections that have laid out a list.
fn laying_out(client: &mut Client) -> Vec<String> {
    let all = client.ask(&["CLIENT", "LIST"]).text();
    let evals = all.lines().filter(|line| line.contains(" cmd=eval "));
    let ids = evals.filter_map(|line| line.split(' ').next());
    ids.map(ToOwned::to_owned).collect()
}

#[tokio::test]
async fn a_refusal_does_not_cost_the_connection() {
    let server = Server::with(&["--maxmemory-policy", "noeviction"]);
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let [(_store, board)] = boards(&url);
    let mut client = server.client();
    let mut before = Vec::new();
    // The store's own connection runs a script by its text too, before it does anything else.
    until("one connection lays out lists", async || {
        board.publish("one").await.expect("it is taken");
        before = laying_out(&mut client);
        before.len() == 1
    })
    .await;
    client.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    for _ in 0..3 {
        let refused = board.publish("two").await.expect_err("it is full");
        assert!(refused.to_string().contains("OOM"), "{refused}");
    }
    client.ask(&["CONFIG", "SET", "maxmemory", "0"]);
    board.publish("three").await.expect("it is taken");
    // A late answer may have cost another one.
    let after = laying_out(&mut client);
    assert!(after.contains(&before[0]), "{before:?}, {after:?}");
}

#[tokio::test]
async fn nodes_of_a_cluster_find_the_shard_of_the_lists() {
    let cluster = Cluster::start();
    let [(_a, first), (_b, second)] = boards(&cluster.url());
    sees(&first, "one", &[]).await;
    sees(&second, "two", &["one"]).await;
    sees(&first, "one", &["two"]).await;
    let read = first.read().await.expect("they are told");
    assert!(read.lists[0].age < Duration::from_secs(10));
}
