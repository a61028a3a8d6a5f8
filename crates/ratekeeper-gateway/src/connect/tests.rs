use std::sync::atomic::Ordering;

use http::uri::Authority;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tls;

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

/// An upstream with TLS that speaks these protocols, the one that it prefers first.
async fn secured(protocols: &[&str]) -> Arc<Upstream> {
    let made = generate_simple_self_signed(["127.0.0.1".to_owned()]);
    let CertifiedKey { cert, signing_key } = made.expect("a certificate can be made");
    let chain = vec![CertificateDer::from(cert.der().to_vec())];
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).expect("it is a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(chain, key);
    let mut config = config.expect("the key is that of the certificate");
    let protocols = protocols.iter().map(|name| name.as_bytes().to_vec());
    config.alpn_protocols = protocols.collect();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(acceptor.accept(stream).await.expect("a handshake"));
        }
    });
    let folder = tempfile::tempdir().expect("a folder can be made");
    let authority = folder.path().join("ca.pem");
    std::fs::write(&authority, cert.pem()).expect("a file can be written");
    let (either, http1) = tls::client(Some(&authority)).expect("it can be read");
    let name = None;
    let secured = Secured {
        either,
        http1,
        name,
    };
    at(port, Speech::Tls(Box::new(secured)))
}

#[tokio::test]
async fn an_upgrade_tells_nothing_of_what_an_upstream_chooses() {
    const BOTH: &[&str] = &["h2", "http/1.1"];
    for (protocols, connection_use, is_shared) in [
        (BOTH, ConnectionUse::Requests, true),
        (BOTH, ConnectionUse::Upgrade, true),
        (&["http/1.1"], ConnectionUse::Requests, false),
    ] {
        let (upstream, pool) = (secured(protocols).await, Pool::default());
        let opened = open(&upstream, 0, &pool, connection_use).await;
        assert!(opened.is_ok(), "{protocols:?} {connection_use:?}");
        let shared = upstream.may_share(0);
        assert_eq!(shared, is_shared, "{protocols:?} {connection_use:?}");
    }
}
