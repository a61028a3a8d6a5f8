//! gRPC through the gateway: streams both ways, what ends them, and clients that others have written.

use std::convert::Infallible;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratekeeper_testkit::assert_contains;
use ratekeeper_testkit::http2::{self, Outcome};
use ratekeeper_testkit::process::{Process, eventually, free_port, output_of};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::support::{Gateway, RULES, gateway, say};

type Codec = ProstCodec<String, String>;

/// A body that returns each frame it is sent, and then a status.
struct Echo {
    incoming: Incoming,
    trailers: Option<HeaderMap>,
    is_cancelled: Arc<AtomicBool>,
}

impl Body for Echo {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let frame = ready!(Pin::new(&mut self.incoming).poll_frame(cx));
        Poll::Ready(frame.or_else(|| self.trailers.take().map(|it| Ok(Frame::trailers(it)))))
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        if self.trailers.is_some() {
            self.is_cancelled.store(true, Ordering::SeqCst);
        }
    }
}

/// A service on a free port: `/echo/all` ends well, `/echo/fail` with a status. Its URL, and whether a call was cancelled.
async fn service() -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_cancelled);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let told = Arc::clone(&told);
            let service = service_fn(move |request: http::Request<Incoming>| {
                let mut trailers = HeaderMap::new();
                let fails = request.uri().path() == "/echo/fail";
                let status = if fails { "9" } else { "0" };
                trailers.insert("grpc-status", HeaderValue::from_static(status));
                trailers.insert("grpc-message", HeaderValue::from_static("not%20now"));
                trailers.insert("x-sum", HeaderValue::from_static("7"));
                let mut answer = http::Response::new(Echo {
                    incoming: request.into_body(),
                    trailers: Some(trailers),
                    is_cancelled: Arc::clone(&told),
                });
                let kind = HeaderValue::from_static("application/grpc");
                answer.headers_mut().insert("content-type", kind);
                std::future::ready(Ok::<_, Infallible>(answer))
            });
            let server = Builder::new(TokioExecutor::new());
            tokio::spawn(server.serve_connection(TokioIo::new(stream), service));
        }
    });
    (format!("h2c://{address}"), is_cancelled)
}

async fn client(gateway: &Gateway) -> tonic::client::Grpc<Channel> {
    let endpoint = Endpoint::from_shared(gateway.url("")).expect("a URL");
    let mut client = tonic::client::Grpc::new(endpoint.connect().await.expect("it listens"));
    client.ready().await.expect("it is connected");
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_flows_both_ways_and_ends_with_its_status() {
    let (upstream, is_cancelled) = service().await;
    let gateway = Gateway::start(&upstream, &[]);
    let mut client = client(&gateway).await;
    for (path, code) in [
        ("/echo/all", None),
        ("/echo/fail", Some(Code::FailedPrecondition)),
    ] {
        client.ready().await.expect("it is connected");
        let (words, asked) = mpsc::channel(1);
        let asked = Request::new(ReceiverStream::new(asked));
        let path = PathAndQuery::from_static(path);
        let answer = client.streaming(asked, path, Codec::default()).await;
        let mut answers = answer.expect("it is let pass").into_inner();
        let large = "x".repeat(1 << 20);
        for word in ["one", &large, "three"] {
            words.send(word.to_owned()).await.expect("it is sent");
            let back = answers.message().await.expect("it goes on");
            assert_eq!(back.as_deref(), Some(word), "before the next is sent");
        }
        drop(words);
        match (answers.message().await, code) {
            (Ok(None), None) => {
                let trailers = answers.trailers().await.expect("they come");
                let sum = trailers.and_then(|it| it.get("x-sum").cloned());
                assert_eq!(sum.expect("it is among them"), "7");
            }
            (Err(status), Some(code)) => {
                assert_eq!((status.code(), status.message()), (code, "not now"));
            }
            (end, _) => panic!("{end:?}"),
        }
    }
    assert!(!is_cancelled.load(Ordering::SeqCst));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_its_client_cancels_is_cancelled_at_the_upstream() {
    let (upstream, is_cancelled) = service().await;
    let gateway = Gateway::start(&upstream, &["--upstream-timeout", "1h"]);
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/echo/all"),
        (":authority", "a"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut call = http2::begin(gateway.port, &fields, None);
    assert_eq!(http2::outcome(&mut call), Outcome::Status(200));
    assert!(!is_cancelled.load(Ordering::SeqCst));
    http2::cancel(&mut call);
    eventually("the upstream is told", || {
        is_cancelled.load(Ordering::SeqCst)
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_over_its_limit_is_told_when_to_come_back() {
    let (upstream, _) = service().await;
    let gateway = Gateway::start(&upstream, &[]);
    let mut client = client(&gateway).await;
    let mut last = None;
    for _ in 0..4 {
        client.ready().await.expect("it is connected");
        let mut call = Request::new("hi".to_owned());
        let key = "few".parse().expect("ASCII");
        call.metadata_mut().insert("x-api-key", key);
        let path = PathAndQuery::from_static("/echo/all");
        last = Some(client.unary(call, path, Codec::default()).await);
    }
    let denied = last.and_then(Result::err).expect("3 calls pass");
    assert_eq!(denied.code(), Code::ResourceExhausted, "{denied}");
    let details = String::from_utf8_lossy(denied.details()).into_owned();
    let info = "type.googleapis.com/google.rpc.RetryInfo";
    assert_contains(&details, info);
}

/// The service of this binary, and its gRPC port.
fn ratekeeper(folder: &std::path::Path) -> (Process, u16) {
    std::fs::write(folder.join("rules.yaml"), RULES).expect("a file can be written");
    let ports = [(); 3].map(|()| free_port());
    let [grpc, http, admin] = ports.map(|port| format!("127.0.0.1:{port}"));
    let args = ["--upstream", "http://unused", "--listen", "127.0.0.1:0"];
    let mut command = gateway(folder, &args);
    command.args(["--grpc", &grpc, "--http", &http, "--admin", &admin]);
    let mut service = Process::spawn("service", command);
    service.wait_for_port(ports[0]);
    (service, ports[0])
}

/// `ratekeeper bench grpc`, which fails if any call does.
fn bench(port: u16) {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_ratekeeper"));
    bench.env_clear().args(["bench", "grpc", "--target"]);
    bench.arg(format!("127.0.0.1:{port}"));
    bench.args(["--duration", "500ms", "--warm-up", "0s", "--json"]);
    // Each request that is due is sent, however busy the machine is.
    bench.args(["--rate", "1000"]);
    output_of(&mut bench);
}

#[test]
fn many_calls_pass() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (_service, port) = ratekeeper(folder.path());
    let front = Gateway::start(&format!("h2c://127.0.0.1:{port}"), &[]);
    bench(front.port);
    let metrics = front.told("/metrics");
    let answers = r#"ratelimit_gateway_requests_total{upstream="upstream",status="2xx"} "#;
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix(answers)?.parse::<u64>().ok());
    assert!(count.is_some_and(|count| count > 0), "{metrics}");
}

/// Envoy's own probe of `grpc.health.v1` goes through the gateway to the service behind it.
#[test]
fn envoy_in_front_probes_the_health_of_what_is_behind() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let (service, port) = ratekeeper(folder.path());
    let gateway = Gateway::start(&format!("h2c://127.0.0.1:{port}"), &[]);
    let (edge, admin) = (free_port(), free_port());
    let config = ENVOY
        .replace("EDGE", &edge.to_string())
        .replace("ADMIN", &admin.to_string())
        .replace("GATEWAY", &gateway.port.to_string());
    let file = folder.path().join("envoy.yaml");
    std::fs::write(&file, config).expect("a file can be written");
    let _envoy = Process::envoy(&file, &[admin, edge]);
    let is_healthy = || {
        let request = "GET /clusters HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        say(admin, request).contains("::health_flags::healthy")
    };
    eventually("the probe finds the service well", is_healthy);
    bench(edge);
    drop(service);
    eventually("the probe finds that it is gone", || !is_healthy());
}

const ENVOY: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: ADMIN } } }
static_resources:
  listeners:
    - address: { socket_address: { address: 127.0.0.1, port_value: EDGE } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                use_remote_address: true
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [ { match: { prefix: / }, route: { cluster: gateway } } ]
  clusters:
    - name: gateway
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      health_checks:
        - { timeout: 10s, interval: 0.1s, no_traffic_interval: 0.1s, unhealthy_threshold: 1, healthy_threshold: 1, grpc_health_check: {} }
      load_assignment:
        cluster_name: gateway
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: GATEWAY } } }
"#;
