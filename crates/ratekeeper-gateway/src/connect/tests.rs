use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::Ordering;

use http::Response;
use http::uri::Authority;
use hyper::server;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::tls;
use crate::upstream::KeptUpstream;

const REQUESTS: usize = 50;

/// Makes this many requests look for a connection at once, and keep it. Returns the number that found one.
async fn connect_at_once(upstream: Arc<Upstream>) -> usize {
    let pool = Pool::default();
    let mut all = JoinSet::new();
    for _ in 0..REQUESTS {
        let (upstream, pool) = (Arc::clone(&upstream), pool.clone());
        all.spawn(async move { connect(&upstream, 0, &pool, ConnectionUse::Requests).await });
    }
    let found = all.join_all().await;
    found.iter().filter(|found| found.is_ok()).count()
}

/// A server of HTTP/2 that takes so many requests at once on a connection, and answers none. Its port.
async fn server(streams_max: u32) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let service = service_fn(|_| pending::<Result<Response<String>, Infallible>>());
    let mut builder = server::conn::http2::Builder::new(TokioExecutor::new());
    builder.max_concurrent_streams(streams_max);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
        }
    });
    port
}

fn at(port: u16, speech: Speech) -> Arc<Upstream> {
    let authority = Authority::try_from(format!("127.0.0.1:{port}")).expect("an authority");
    Arc::new(Upstream::new(
        "u",
        vec![Address::new(authority)],
        speech,
        &KeptUpstream::default(),
    ))
}

#[tokio::test]
async fn whoever_comes_at_once_shares_connections_of_http2() {
    for (speech, streams_max, opened) in [
        (Speech::Http2, 50, 1),
        (Speech::Http2, 20, 3),
        // There are no more.
        (Speech::Http2, 1, 16),
        (Speech::Http1, 50, REQUESTS as u64),
    ] {
        let upstream = at(server(streams_max).await, speech);
        assert_eq!(connect_at_once(Arc::clone(&upstream)).await, REQUESTS);
        let connects = upstream.counts.connects.load(Ordering::Relaxed);
        assert_eq!(connects, opened, "{streams_max}");
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
            let mut stream = acceptor.accept(stream).await.expect("a handshake");
            if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
                stream.write_all(&settings).await.expect("it is read");
            }
            open.push(stream);
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
