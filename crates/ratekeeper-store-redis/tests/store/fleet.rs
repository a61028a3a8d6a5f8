//! Nodes report their requests in flight, and learn those of the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_store_redis::{Endpoint, FleetBoard, RedisStore};
use ratekeeper_testkit::process::DEADLINE;
use ratekeeper_testkit::redis::{Cluster, Reply, Server};

use crate::support::patient;

fn boards<const N: usize>(url: &str) -> [(RedisStore, Arc<FleetBoard>); N] {
    std::array::from_fn(|_| {
        let home = tokio::runtime::Handle::current();
        let endpoint = Endpoint::parse(url).expect("a good URL");
        let store = RedisStore::new(endpoint, patient(), home);
        let board = store.fleet();
        (store, board)
    })
}

/// Reports until `others` requests are seen on so many nodes.
async fn sees(board: &FleetBoard, own: u32, nodes: u32, others: u32) {
    let end = Instant::now() + DEADLINE;
    loop {
        let seen = board.report(own).await;
        if matches!(&seen, Ok(report) if (report.nodes, report.others) == (nodes, others)) {
            return;
        }
        assert!(
            Instant::now() < end,
            "{nodes} nodes, {others} others: {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn each_node_learns_what_the_others_have_in_flight() {
    let server = Server::start();
    let url = format!("redis://127.0.0.1:{}/?prefix=fleet:", server.port());
    let [(_a, first), (_b, second), (_c, third)] = boards(&url);
    sees(&first, 5, 1, 0).await;
    sees(&second, 7, 2, 5).await;
    sees(&third, 0, 3, 12).await;
    sees(&first, 9, 3, 7).await;
    // The others say no more: after two seconds they no longer count.
    drop(second);
    sees(&first, 9, 1, 0).await;
    sees(&third, 0, 2, 9).await;
    let mut client = server.client();
    for key in ["fleet:rk:{fleet}nodes", "fleet:rk:{fleet}in-flight"] {
        let left = client.ask(&["PTTL", key]);
        assert!(matches!(left, Reply::Int(1..=10_000)), "{key}: {left:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_away_is_found_again() {
    let mut server = Server::start();
    let url = format!("redis://127.0.0.1:{}/", server.port());
    let [(_store, board)] = boards(&url);
    sees(&board, 3, 1, 0).await;
    server.process().kill();
    assert!(board.report(3).await.is_err());
    server.restart();
    sees(&board, 3, 1, 0).await;
}

#[tokio::test]
async fn nodes_of_a_cluster_find_the_shard_of_the_board() {
    let cluster = Cluster::start();
    let [(_a, first), (_b, second)] = boards(&cluster.url());
    sees(&first, 2, 1, 0).await;
    sees(&second, 4, 2, 2).await;
    sees(&first, 2, 2, 4).await;
}
