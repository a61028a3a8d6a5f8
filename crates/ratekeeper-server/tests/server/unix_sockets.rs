//! Listeners at Unix sockets.

use std::path::Path;

use crate::support::{PATIENCE, RULES, request, start_with};
use hyper_util::rt::TokioIo;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_server::{BindError, ListenAddress, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use tonic::transport::Endpoint;

fn at(path: &Path) -> ListenAddress {
    ListenAddress::Unix(path.to_owned())
}

async fn get(path: &Path, target: &str, host: &str) -> String {
    let mut stream = UnixStream::connect(path).await.unwrap();
    let head = format!("GET {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

#[tokio::test]
async fn every_listener_may_be_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let running = start_with(RULES, |config| {
        config.grpc = Some(at(&path("grpc.sock")));
        config.http = Some(at(&path("http.sock")));
        config.admin = at(&path("admin.sock"));
        config.metrics = Some(at(&path("metrics.sock")));
        config.unix_mode = Some(0o600);
    })
    .await;
    let answer = get(&path("http.sock"), "/livez", "localhost").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for name in ["admin.sock", "metrics.sock"] {
        let answer = get(&path(name), "/metrics", "localhost").await;
        assert!(answer.contains("ratelimit_decisions"), "{answer}");
    }
    let answer = get(&path("admin.sock"), "/metrics", "evil.example").await;
    assert!(answer.starts_with("HTTP/1.1 421 "), "{answer}");

    let socket = path("grpc.sock");
    let connector = tower::service_fn(move |_: ::http::Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    RateLimitServiceClient::new(channel)
        .should_rate_limit(request("d", &[("other", "a")]))
        .await
        .unwrap();

    timeout(PATIENCE, running.stop()).await.unwrap();
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "the files are gone with the sockets");
}

#[tokio::test]
async fn a_socket_that_somebody_listens_at_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("http.sock");
    let running = start_with(RULES, |config| config.http = Some(at(&path))).await;
    let config = ServerConfig {
        http: Some(at(&path)),
        grpc: Some(at(&folder.path().join("grpc.sock"))),
        ..ServerConfig::default()
    };
    let error = crate::admin::bind(config).await.unwrap_err();
    let BindError::Listen { name, source, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(*name, "http");
    assert_eq!(source.to_string(), "another process listens there");
    let shown = format!("cannot listen on unix:{} for http", path.display());
    assert_eq!(error.to_string(), shown);
    let answer = get(&path, "/livez", "localhost").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    running.stop().await;
}
