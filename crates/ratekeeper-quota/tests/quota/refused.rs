//! A PostgreSQL that is not there: what needs it fails at once, instead of after all the time that it may take.

use std::time::{Duration, Instant};

use ratekeeper_quota::{FollowerConfig, QuotaError, QuotaStore};
use ratekeeper_testkit::postgres::Server;
use ratekeeper_testkit::process::free_port;

use crate::following::Node;
use crate::support::{run, store};

/// A wait that is none. The first attempts of a pool take three seconds, and opening a database ten.
const AT_ONCE: Duration = Duration::from_secs(2);

/// The time after which the store says that the database cannot be used.
async fn refused(store: &QuotaStore) -> Duration {
    let begun = Instant::now();
    let error = store.version().await.expect_err("nobody is there");
    assert!(matches!(error, QuotaError::Unavailable(_)), "{error}");
    begun.elapsed()
}

#[test]
fn a_database_that_was_never_there_is_told_at_once() {
    let address = format!("postgres://u:p@127.0.0.1:{}/q", free_port());
    run(async {
        let store = store(&address.parse().expect("it is an address"));
        for _ in 0..2 {
            let took = refused(&store).await;
            assert!(took < AT_ONCE, "{took:?}");
        }
    });
}

/// The most connections of a store. Each that was open is asked in vain first, and that may take as long as a server has to
/// answer.
const CONNECTIONS: usize = 4;

#[test]
fn a_database_that_has_gone_is_told_at_once() {
    let mut server = Server::start();
    let address = server.create("quotas").parse().expect("it is an address");
    run(async {
        let store = store(&address);
        store.version().await.expect("it is there");
        server.kill();
        for _ in 0..CONNECTIONS {
            refused(&store).await;
        }
        let took = refused(&store).await;
        assert!(took < AT_ONCE, "{took:?}");
        server.restart();
        store.version().await.expect("it is there again");
    });
}

/// A node that starts with its database waits for it.
#[test]
fn a_start_waits_for_a_database_that_comes() {
    let mut server = Server::start();
    let address = server.create("quotas").parse().expect("it is an address");
    server.kill();
    run(async {
        let patience = Duration::from_secs(60);
        let start = Node::start(store(&address), FollowerConfig::default(), patience);
        let start = tokio::spawn(start);
        // So long that it has asked in vain.
        tokio::time::sleep(Duration::from_millis(300)).await;
        server.restart();
        let node = start.await.expect("it starts");
        assert_eq!(node.follower.quota_status().faults(), Vec::<String>::new());
    });
}
