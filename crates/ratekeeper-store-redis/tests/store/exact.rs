//! However many ask at once, no more and no fewer pass than the limit.

use std::sync::Arc;
use std::thread;

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_store_redis::{RedisConfig, RedisStore};
use ratekeeper_testkit::redis::Server;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

use crate::support::{decide, endpoint, home, limit, patient, step};

const NODES: usize = 4;
const TASKS: usize = 64;

/// So long that nothing comes back while a test runs.
const WINDOW: Micros = Micros::from_secs(365 * 86_400);

/// What passes of `asked` requests of each task, of every node, for one counter.
fn admitted(stores: &[Arc<RedisStore>], algorithm: Algorithm, quota: u64, asked: usize) -> u64 {
    let nodes = stores.iter().map(|store| {
        let store = Arc::clone(store);
        thread::spawn(move || flood(&store, algorithm, quota, asked))
    });
    let nodes: Vec<_> = nodes.collect();
    let admitted = nodes
        .into_iter()
        .map(|node| node.join().expect("no node fails"));
    admitted.sum()
}

/// A node: a runtime of one thread, as the server has them.
fn flood(store: &Arc<RedisStore>, algorithm: Algorithm, quota: u64, asked: usize) -> u64 {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let store = Arc::clone(store);
            tasks.spawn(async move {
                let limit = limit(algorithm, quota, WINDOW);
                let mut admitted = 0;
                for _ in 0..asked {
                    let verdicts = decide(&*store, &[step(&limit, 1)]).await;
                    admitted += u64::from(verdicts.expect("the server answers").allowed);
                }
                admitted
            });
        }
        tasks.join_all().await.into_iter().sum()
    })
}

fn stores(server: &Server, config: &RedisConfig) -> Vec<Arc<RedisStore>> {
    let endpoint = endpoint(server);
    let store = || RedisStore::new(endpoint.clone(), config.clone(), home());
    (0..NODES).map(|_| Arc::new(store())).collect()
}

const ALGORITHMS: [Algorithm; 6] = [
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::TokenBucket,
    Algorithm::Gcra,
    Algorithm::LeakyBucket,
];

#[test]
fn four_nodes_admit_exactly_the_limit() {
    let server = Server::start();
    for algorithm in ALGORITHMS {
        let stores = stores(&server, &patient());
        let passed = admitted(&stores, algorithm, 1_000, 20);
        assert_eq!(passed, 1_000, "{}", algorithm.name());
        let merged = stores.iter().flat_map(|store| store.shards());
        let merged: u64 = merged.map(|shard| shard.decisions - shard.calls).sum();
        assert!(merged > 0, "requests for one counter are decided together");
    }
}

#[test]
fn they_do_so_with_every_mechanism_off() {
    let server = Server::start();
    let mut config = patient();
    config.merges = false;
    config.groups_max = 1;
    config.pipelines_max = 1_024;
    config.deny_cache_max = std::time::Duration::ZERO;
    for algorithm in ALGORITHMS {
        let stores = stores(&server, &config);
        let passed = admitted(&stores, algorithm, 300, 5);
        assert_eq!(passed, 300, "{}", algorithm.name());
        assert!(stores.iter().all(|store| store.denied_from_memory() == 0));
    }
}
