//! TLS and mTLS, with real certificates and clients.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::certificates::{Authority, Identity, Validity, config, mutual, put};
use crate::support::{PATIENCE, RULES, Running, raw, request, start_with};
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_proto::ratekeeper::v1::{Descriptor, RefundRequest};
use ratekeeper_server::{BindError, Caller, Powers, Proof, ServerConfig, TlsConfig};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

fn v1_descriptor(key: &str, value: &str) -> Descriptor {
    Descriptor {
        entries: vec![WireEntry {
            key: key.to_owned(),
            value: value.to_owned(),
        }],
        ..Descriptor::default()
    }
}

/// The name in the server's certificate, which clients ask for.
const NAME: &str = "limits.example";

/// An authority, and a folder with a certificate of it.
fn authority() -> (Authority, TempDir) {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    authority.issue(NAME, Validity::Valid).write(folder.path());
    (authority, folder)
}

async fn start(tls: TlsConfig) -> Running {
    start_with(RULES, |config| {
        config.tls.grpc = Some(tls.clone());
        config.tls.http = Some(tls.clone());
        config.tls.admin = Some(tls);
    })
    .await
}

/// Shakes hands, or says why not.
async fn connect(
    to: SocketAddr,
    config: ClientConfig,
    alpn: &[u8],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut config = config;
    config.alpn_protocols = vec![alpn.to_vec()];
    let stream = TcpStream::connect(to).await?;
    let name = ServerName::try_from(NAME).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    timeout(PATIENCE, connector.connect(name, stream))
        .await
        .unwrap()
}

/// Asks `/livez` over TLS. In TLS 1.3 a client hears only then that it is not let in.
async fn livez(to: SocketAddr, config: ClientConfig) -> std::io::Result<String> {
    let mut stream = connect(to, config, b"http/1.1").await?;
    let head = b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    stream.write_all(head).await?;
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer))
        .await
        .unwrap()?;
    Ok(answer)
}

/// A tonic client over a connection of our own making.
async fn grpc(
    to: SocketAddr,
    config: ClientConfig,
) -> Result<RateLimitServiceClient<Channel>, tonic::transport::Error> {
    let connector = tower::service_fn(move |_: ::http::Uri| {
        let config = config.clone();
        async move { connect(to, config, b"h2").await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://limits.example");
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok(RateLimitServiceClient::new(channel))
}

#[tokio::test]
async fn both_versions_of_tls_are_served() {
    let (authority, folder) = authority();
    let running = start(config(folder.path())).await;
    for version in [&TLS12, &TLS13] {
        let client = || authority.client(None, version);
        let answer = livez(running.addresses.http, client()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        let mut client = grpc(running.addresses.grpc, client()).await.unwrap();
        client
            .should_rate_limit(request("d", &[("other", "a")]))
            .await
            .unwrap();
    }
    running.stop().await;
}

#[tokio::test]
async fn each_listener_speaks_its_own_protocol() {
    let (authority, folder) = authority();
    let running = start(config(folder.path())).await;
    for (to, wrong) in [
        (running.addresses.grpc, &b"http/1.1"[..]),
        (running.addresses.http, b"h2"),
    ] {
        let error = connect(to, authority.client(None, &TLS13), wrong)
            .await
            .unwrap_err();
        assert!(
            error.to_string().contains("NoApplicationProtocol"),
            "{error}"
        );
    }
    running.stop().await;
}

#[tokio::test]
async fn what_is_not_encrypted_is_not_answered() {
    let (authority, folder) = authority();
    let running = start(config(folder.path())).await;
    let answer = raw(
        running.addresses.http,
        b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n",
    )
    .await;
    assert!(!answer.contains("HTTP/1.1"), "{answer}");
    let plain = RateLimitServiceClient::connect(format!("http://{}", running.addresses.grpc));
    if let Ok(mut client) = timeout(PATIENCE, plain).await.unwrap() {
        client
            .should_rate_limit(request("d", &[("other", "a")]))
            .await
            .unwrap_err();
    }
    // The others are none the worse for it.
    let client = authority.client(None, &TLS13);
    livez(running.addresses.http, client).await.unwrap();
    running.stop().await;
}

/// Listeners that require certificates admit and refuse the right clients, in either version of
/// TLS.
#[tokio::test]
async fn clients_are_let_in_by_certificate() {
    let (authority, folder) = authority();
    let running = start(mutual(folder.path(), &authority, &[])).await;
    let good = authority.issue("envoy.example", Validity::Valid);
    let foreign = Authority::new().issue("envoy.example", Validity::Valid);
    let expired = authority.issue("envoy.example", Validity::Expired);
    for version in [&TLS12, &TLS13] {
        let http = async |identity: Option<&Identity>| {
            livez(running.addresses.http, authority.client(identity, version)).await
        };
        assert!(
            http(Some(&good))
                .await
                .unwrap()
                .starts_with("HTTP/1.1 200 ")
        );
        let refused = |answer: std::io::Result<String>| answer.unwrap_err().to_string();
        assert!(refused(http(None).await).contains("CertificateRequired") || version == &TLS12);
        let error = refused(http(Some(&foreign)).await);
        assert!(
            error.contains("UnknownCA") || error.contains("DecryptError"),
            "{error}"
        );
        let error = refused(http(Some(&expired)).await);
        assert!(error.contains("CertificateExpired"), "{error}");
        assert!(ask(&running, authority.client(Some(&good), version)).await);
        assert!(!ask(&running, authority.client(Some(&expired), version)).await);
        assert!(!ask(&running, authority.client(None, version)).await);
    }
    running.stop().await;
}

/// Returns true if gRPC answers.
async fn ask(running: &Running, client: ClientConfig) -> bool {
    let Ok(mut client) = grpc(running.addresses.grpc, client).await else {
        return false;
    };
    client
        .should_rate_limit(request("d", &[("other", "a")]))
        .await
        .is_ok()
}

#[tokio::test]
async fn clients_are_let_in_by_name() {
    let (authority, folder) = authority();
    let allowed = ["spiffe://mesh/envoy", "*.gateways.example"];
    let running = start(mutual(folder.path(), &authority, &allowed)).await;
    for version in [&TLS12, &TLS13] {
        for (name, is_allowed) in [
            ("spiffe://mesh/envoy", true),
            ("a.gateways.example", true),
            ("spiffe://mesh/other", false),
            ("a.b.gateways.example", false),
            ("gateways.example", false),
        ] {
            let identity = authority.issue(name, Validity::Valid);
            let answer = livez(
                running.addresses.http,
                authority.client(Some(&identity), version),
            )
            .await;
            assert_eq!(answer.is_ok(), is_allowed, "{name} {answer:?}");
            if let Err(error) = answer {
                assert!(error.to_string().contains("AccessDenied"), "{error}");
            }
        }
    }
    running.stop().await;
}

/// A page can have its visitor's browser post text, and the browser sends the certificate along.
#[tokio::test]
async fn pages_do_not_use_their_visitors_certificates() {
    let (authority, folder) = authority();
    let tls = mutual(folder.path(), &authority, &[]);
    let running = start_with(RULES, |config| {
        config.tls.grpc = Some(tls);
        config.callers = vec![Caller {
            name: "operator".into(),
            proof: Proof::TlsName("op.example".parse().unwrap()),
            may: Powers {
                hold: true,
                refund: true,
                ..Powers::default()
            },
            role: None,
        }];
    })
    .await;
    let own = authority.issue("op.example", Validity::Valid);
    let client = authority.client(Some(&own), &TLS13);
    let stream = connect(running.addresses.grpc, client, b"h2")
        .await
        .unwrap();
    let (send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let refund = RefundRequest {
        domain: "d".to_owned(),
        descriptors: vec![v1_descriptor("user", "ada")],
        ..RefundRequest::default()
    };
    let message = refund.encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], &message].concat();
    let post = async |method: &str, headers: &[(&str, &str)]| {
        let mut request = ::http::Request::post(format!(
            "https://{NAME}/ratekeeper.v1.RateLimiterService/{method}"
        ));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.clone()))).unwrap();
        let answer = send.clone().send_request(request).await.unwrap();
        let code = answer
            .headers()
            .get("grpc-status")
            .map(|code| code.to_str().unwrap().to_owned());
        (answer.status().as_u16(), code.unwrap_or_default())
    };
    let page = ("origin", "https://evil.example");
    for method in ["Refund", "Acquire", "Check"] {
        for kind in [
            "text/plain",
            "application/json",
            "application/grpc-web",
            "application/x-www-form-urlencoded",
        ] {
            let (status, _) = post(method, &[("content-type", kind), page]).await;
            assert_eq!(status, 415, "{method} {kind}");
        }
        assert_eq!(post(method, &[]).await.0, 415, "{method}");
    }
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;v=1",
    ] {
        let kind = ("content-type", kind);
        assert_eq!(
            post("Refund", &[kind, page]).await,
            (200, "7".to_owned()),
            "{kind:?}"
        );
        let (status, code) = post("Refund", &[kind]).await;
        assert_eq!(
            (status, &*code),
            (200, ""),
            "{kind:?}: it is answered with a message"
        );
    }
    running.stop().await;
}

/// The serial number of the certificate that a new connection gets to see.
async fn shown(to: SocketAddr, authority: &Authority) -> Vec<u8> {
    let client = authority.client(None, &TLS13);
    let stream = connect(to, client, b"http/1.1").await.unwrap();
    let (_, session) = stream.get_ref();
    session.peer_certificates().unwrap()[0].to_vec()
}

/// Waits until a new connection is shown something else than `old`.
async fn renewed(to: SocketAddr, authority: &Authority, old: &[u8]) -> Vec<u8> {
    timeout(PATIENCE, async {
        loop {
            let now = shown(to, authority).await;
            if now != old {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap()
}

/// Waits until the metric's series `holds`.
async fn until(running: &Running, series: &str, holds: impl Fn(f64) -> bool) {
    timeout(PATIENCE, async {
        while !holds(running.metric(series).await) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("waited in vain for {series}"));
}

/// A new certificate is taken, by new connections; half of one leaves the last good one in
/// force, and is counted.
#[tokio::test]
async fn certificates_are_renewed() {
    let (authority, folder) = authority();
    let tls = config(folder.path());
    let running = start_with(RULES, |config| config.tls.http = Some(tls)).await;
    let to = running.addresses.http;
    let first = shown(to, &authority).await;
    let success = r#"ratelimit_tls_reload_total{listener="http",result="success"}"#;
    let error = r#"ratelimit_tls_reload_total{listener="http",result="error"}"#;
    assert_eq!(running.metric(success).await, 1.0);
    assert_eq!(running.metric(error).await, 0.0);
    let old = connect(to, authority.client(None, &TLS13), b"http/1.1")
        .await
        .unwrap();

    // The key of another certificate.
    let other = authority.issue(NAME, Validity::Valid);
    put(&folder.path().join("tls.key"), &other.key);
    until(&running, error, |count| count >= 1.0).await;
    assert_eq!(shown(to, &authority).await, first);
    let fault = "the certificate of http: refused, the last good stays in use: ";
    let (_, ready) = running.admin("/readyz").await;
    assert!(ready.contains(fault), "{ready}");
    let good = r#"ratelimit_files_last_reload_successful{files="http certificate"}"#;
    assert_eq!(running.metric(good).await, 0.0);

    put(&folder.path().join("tls.crt"), &other.certificate);
    let second = renewed(to, &authority, &first).await;
    // It is counted a moment after it is in use.
    until(&running, success, |count| count == 2.0).await;
    let (_, ready) = running.admin("/readyz").await;
    assert!(!ready.contains(fault), "{ready}");
    assert_eq!(running.metric(good).await, 1.0);
    let ends = r#"ratelimit_tls_certificate_expiry_timestamp_seconds{listener="http"}"#;
    assert!(running.metric(ends).await > 0.0);

    // As Kubernetes does it: a folder that a link leads to, and then to another.
    authority.issue(NAME, Validity::Valid).write(folder.path());
    renewed(to, &authority, &second).await;

    // The old connection works on.
    let mut old = old;
    old.write_all(b"GET /livez HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    old.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    running.stop().await;
}

/// Certificates behind a symbolic link that is swapped, as Kubernetes mounts secrets.
#[cfg(unix)]
#[tokio::test]
async fn certificates_are_renewed_behind_links() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let version = |name: &str| {
        let version = folder.path().join(name);
        std::fs::create_dir(&version).unwrap();
        authority.issue(NAME, Validity::Valid).write(&version);
        let link = folder.path().join("next");
        std::os::unix::fs::symlink(name, &link).unwrap();
        std::fs::rename(link, folder.path().join("..data")).unwrap();
    };
    version("1");
    for file in ["tls.crt", "tls.key"] {
        let target = format!("..data/{file}");
        std::os::unix::fs::symlink(target, folder.path().join(file)).unwrap();
    }
    let tls = config(folder.path());
    let running = start_with(RULES, |config| config.tls.http = Some(tls)).await;
    let first = shown(running.addresses.http, &authority).await;
    version("2");
    renewed(running.addresses.http, &authority, &first).await;
    running.stop().await;
}

/// Half a handshake delays no other client, and is given up.
#[tokio::test]
async fn handshakes_that_never_end_are_cut_off() {
    let (authority, folder) = authority();
    let tls = config(folder.path());
    let running = start_with(RULES, |config| {
        config.tls.http = Some(tls);
        // Long enough for a whole one on a busy machine.
        config.bounds.handshake_timeout = Duration::from_secs(3);
    })
    .await;
    let to = running.addresses.http;
    let mut silent = TcpStream::connect(to).await.unwrap();
    let mut half = TcpStream::connect(to).await.unwrap();
    // The head of a handshake record, and no more.
    half.write_all(b"\x16\x03\x01\x02\x00\x01").await.unwrap();
    let client = authority.client(None, &TLS13);
    livez(to, client).await.unwrap();
    for stream in [&mut silent, &mut half] {
        let mut rest = Vec::new();
        let _ = timeout(PATIENCE, stream.read_to_end(&mut rest))
            .await
            .unwrap();
    }
    let failures = r#"ratelimit_tls_handshake_failures_total{listener="http"}"#;
    until(&running, failures, |count| count >= 2.0).await;
    running.stop().await;
}

/// Scrapers on other hosts are let in as operators are, by a certificate of their own.
#[tokio::test]
async fn metrics_may_be_encrypted() {
    let (authority, folder) = authority();
    let running = start_with(RULES, |config| {
        config.metrics = Some("127.0.0.1:0".parse::<SocketAddr>().unwrap().into());
        config.tls.metrics = Some(mutual(folder.path(), &authority, &["scraper.example"]));
    })
    .await;
    let to = running.addresses.metrics.unwrap();
    let ask = async |name: &str| -> std::io::Result<String> {
        let own = authority.issue(name, Validity::Valid);
        let client = authority.client(Some(&own), &TLS13);
        let mut stream = connect(to, client, b"http/1.1").await?;
        let head = b"GET /metrics HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(head).await?;
        let mut answer = String::new();
        let read = timeout(PATIENCE, stream.read_to_string(&mut answer));
        read.await.unwrap().map(|_| answer)
    };
    let answer = ask("scraper.example").await.unwrap();
    let series = r#"ratelimit_tls_reload_total{listener="metrics",result="success"} 1"#;
    assert!(answer.contains(series), "{answer}");
    assert!(ask("other.example").await.is_err());
    running.stop().await;
}

/// The error that a broken set of files gives at start.
async fn complaint(change: impl FnOnce(&mut TlsConfig)) -> String {
    let (_authority, folder) = authority();
    let mut tls = config(folder.path());
    change(&mut tls);
    let mut config = ServerConfig::default();
    config.tls.http = Some(tls);
    let error = crate::admin::bind(config).await.unwrap_err();
    let BindError::Tls { name, source } = error else {
        panic!("{error}");
    };
    assert_eq!(name, "http");
    source.to_string()
}

#[tokio::test]
async fn files_that_make_no_sense_are_named() {
    let message = complaint(|tls| tls.identity.certificate = "/nowhere/tls.crt".into()).await;
    assert!(
        message.starts_with("the certificate in /nowhere/tls.crt cannot be used: No such file"),
        "{message}"
    );
    let message = complaint(|tls| tls.identity.certificate = tls.identity.key.clone()).await;
    assert!(message.contains("BEGIN CERTIFICATE"), "{message}");
    let message = complaint(|tls| tls.identity.key = tls.identity.certificate.clone()).await;
    assert!(message.contains("no private key"), "{message}");
    let message = complaint(|tls| {
        put(
            &tls.identity.key,
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        );
    })
    .await;
    assert!(message.contains("encrypted"), "{message}");
    let message = complaint(|tls| {
        put(
            &tls.identity.certificate,
            "-----BEGIN CERTIFICATE-----\nAAAA",
        )
    })
    .await;
    assert!(message.contains("not PEM"), "{message}");
    let other = Authority::new().issue(NAME, Validity::Valid);
    let message = complaint(|tls| put(&tls.identity.key, &other.key)).await;
    assert!(
        message.contains("not the key of the certificate"),
        "{message}"
    );
    let message = complaint(|tls| tls.client_ca = Some(tls.identity.key.clone())).await;
    assert!(message.starts_with("the authorities in"), "{message}");
}

/// With certificates asked for, operators may come from elsewhere; without, they may not.
#[tokio::test]
async fn admin_may_be_reached_from_elsewhere_with_certificates() {
    let everywhere: SocketAddr = "0.0.0.0:0".parse().unwrap();
    let (authority, folder) = authority();
    let mut config = ServerConfig {
        admin: everywhere.into(),
        ..ServerConfig::default()
    };
    config.tls.admin = Some(crate::certificates::config(folder.path()));
    let error = crate::admin::bind(config).await.unwrap_err();
    assert!(matches!(error, BindError::AdminNotLoopback(_)), "{error}");

    let tls = mutual(folder.path(), &authority, &["operator.example"]);
    let running = start_with(RULES, |config| {
        config.admin = everywhere.into();
        config.tls.admin = Some(tls);
    })
    .await;
    let port = running.addresses.admin.port();
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let get = async |identity: Option<&Identity>, head: &str| {
        let client = authority.client(identity, &TLS13);
        let mut stream = connect(to, client, b"http/1.1").await?;
        let head = format!("GET /metrics HTTP/1.1\r\nconnection: close\r\n{head}\r\n");
        stream.write_all(head.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let operator = authority.issue("operator.example", Validity::Valid);
    let answer = get(Some(&operator), "host: limits.example\r\n")
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let page = "host: limits.example\r\norigin: https://evil.example\r\n";
    let answer = get(Some(&operator), page).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    get(None, "host: limits.example\r\n").await.unwrap_err();
    running.stop().await;
}
