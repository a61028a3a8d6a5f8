use std::sync::atomic::Ordering;

use http::uri::Authority;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;

use super::*;

const REQUESTS: usize = 50;

/// Makes this many requests look for a connection to `port` at once, and returns the number that found one.
async fn connect_at_once(upstream: Arc<Upstream>) -> usize {
    let pool = Pool::default();
    let mut all = JoinSet::new();
    for _ in 0..REQUESTS {
        let (upstream, pool) = (Arc::clone(&upstream), pool.clone());
        all.spawn(async move {
            connect(&upstream, 0, &pool, ConnectionUse::Requests)
                .await
                .is_ok()
        });
    }
    let found = all.join_all().await;
    found.into_iter().filter(|found| *found).count()
}

fn at(port: u16, speech: Speech) -> Arc<Upstream> {
    let authority = Authority::try_from(format!("127.0.0.1:{port}")).expect("an authority");
    let counts = Arc::new(UpstreamCounts::default());
    Arc::new(Upstream::new(
        "u",
        vec![Address::new(authority)],
        speech,
        counts,
    ))
}

#[tokio::test]
async fn whoever_comes_at_once_shares_one_connection_of_http2() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    for (speech, opened) in [(Speech::Http2, 1), (Speech::Http1, REQUESTS as u64)] {
        let upstream = at(port, speech);
        assert_eq!(connect_at_once(Arc::clone(&upstream)).await, REQUESTS);
        assert_eq!(upstream.counts.connects.load(Ordering::Relaxed), opened);
    }
}

#[tokio::test]
async fn whoever_waits_for_a_connection_that_fails_fails_with_it() {
    // Bound but not listening, so that no other process takes the port.
    let deaf = TcpSocket::new_v4().expect("there are sockets");
    deaf.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let upstream = at(deaf.local_addr().expect("an address").port(), Speech::Http2);
    assert_eq!(connect_at_once(Arc::clone(&upstream)).await, 0);
    assert_eq!(upstream.counts.connect_failures.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn the_next_one_opens_it_where_the_first_has_gone_away() {
    let pool = Pool::default();
    let Ok(first) = pool.first_to_open((7, 0)) else {
        panic!("no connection is opened yet");
    };
    let Err(others) = pool.first_to_open((7, 0)) else {
        panic!("somebody does");
    };
    drop(first);
    assert!(others.outcome().await.is_none());
    assert!(pool.first_to_open((7, 0)).is_ok());
}
