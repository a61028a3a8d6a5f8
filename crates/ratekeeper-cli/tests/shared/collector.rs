//! A collector of traces: the OTLP service over gRPC or HTTP, which keeps what it is sent.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use prost::Message as _;
use ratekeeper_testkit::process::eventually;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tonic::service::Interceptor;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A span as it was received, ids in hexadecimal digits.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty for the first span of a trace.
    pub(crate) parent: String,
    /// As in the protocol: 1 internal, 2 server, 3 client.
    pub(crate) kind: i32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) resource: BTreeMap<String, String>,
}

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<Seen>>>);

#[tonic::async_trait]
impl TraceService for Kept {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.keep(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Kept {
    fn keep(&self, request: ExportTraceServiceRequest) {
        let mut kept = self.0.lock().expect("no test has panicked here");
        for of_resource in request.resource_spans {
            let resource = of_resource.resource.unwrap_or_default().attributes;
            let resource = attributes(resource);
            let spans = of_resource.scope_spans.into_iter();
            kept.extend(spans.flat_map(|it| it.spans).map(|span| Seen {
                name: span.name,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                kind: span.kind,
                start: span.start_time_unix_nano,
                end: span.end_time_unix_nano,
                attributes: attributes(span.attributes),
                resource: resource.clone(),
            }));
        }
    }

    /// Takes a POST of this path with this header.
    async fn post(
        self,
        expected: Expected,
        request: hyper::Request<Incoming>,
    ) -> Result<hyper::Response<Empty<Bytes>>, hyper::Error> {
        let is_expected = request.uri().path() == expected.path
            && request.headers()["content-type"] == "application/x-protobuf"
            && request.headers().get("api-key").map(|it| it.as_bytes()) == Some(expected.key);
        let body = request.into_body().collect().await?.to_bytes();
        let message = ExportTraceServiceRequest::decode(body);
        let mut answer = hyper::Response::new(Empty::new());
        match message.ok().filter(|_| is_expected) {
            Some(message) => self.keep(message),
            None => *answer.status_mut() = hyper::StatusCode::BAD_REQUEST,
        }
        Ok(answer)
    }
}

/// The requests that a collector over HTTP takes.
#[derive(Clone, Copy)]
struct Expected {
    path: &'static str,
    key: &'static [u8],
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn attributes(pairs: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(value)) => value.to_string(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pairs = pairs.into_iter();
    pairs.map(|pair| (pair.key, text(pair.value))).collect()
}

/// A collector on a free port, for as long as the test runs.
pub(crate) struct Collector {
    scheme: &'static str,
    address: SocketAddr,
    kept: Kept,
    _runtime: Runtime,
}

impl Collector {
    /// One that takes all spans, and does not encrypt.
    pub(crate) fn start() -> Self {
        Self::start_by("http", Server::builder(), Ok)
    }

    /// One that `server` serves at addresses of that scheme, with the messages that `admit` lets pass.
    pub(crate) fn start_by(
        scheme: &'static str,
        mut server: Server,
        admit: impl Interceptor + Clone + Send + Sync + 'static,
    ) -> Self {
        let runtime = Runtime::new().expect("a runtime can be made");
        let kept = Kept::default();
        let service = TraceServiceServer::with_interceptor(kept.clone(), admit);
        let address = runtime.block_on(async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
            let listener = listener.expect("there is a free port");
            let address = listener.local_addr().expect("it is bound");
            let incoming = TcpIncoming::from(listener);
            let server = server.add_service(service);
            tokio::spawn(server.serve_with_incoming(incoming));
            address
        });
        Self {
            scheme,
            address,
            kept,
            _runtime: runtime,
        }
    }

    /// One over HTTP, which takes spans at that path, with the header `api-key`.
    #[allow(dead_code, reason = "not all tests that share this file need one")]
    pub(crate) fn over_http(path: &'static str, key: &'static [u8]) -> Self {
        let runtime = Runtime::new().expect("a runtime can be made");
        let kept = Kept::default();
        let expected = Expected { path, key };
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let keeper = kept.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let keeper = keeper.clone();
                let service = service_fn(move |request| keeper.clone().post(expected, request));
                tokio::spawn(async move {
                    let server = hyper::server::conn::http1::Builder::new();
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self {
            scheme: "http",
            address,
            kept,
            _runtime: runtime,
        }
    }

    /// The value of `otlp_endpoint`.
    pub(crate) fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Seen> {
        self.kept
            .0
            .lock()
            .expect("no test has panicked here")
            .clone()
    }

    /// The spans of a trace, once there are so many of them.
    pub(crate) fn trace(&self, trace: &str, count: usize) -> Vec<Seen> {
        let of_trace = || {
            let spans = self.spans().into_iter();
            let spans: Vec<_> = spans.filter(|span| span.trace == trace).collect();
            spans
        };
        eventually("the spans arrive", || of_trace().len() >= count);
        // One too many would come in the same message, as a rule.
        let spans = of_trace();
        assert_eq!(spans.len(), count, "{spans:#?}");
        spans
    }
}

/// The only span of that name.
pub(crate) fn named<'a>(spans: &'a [Seen], name: &str) -> &'a Seen {
    let mut found = spans.iter().filter(|span| span.name == name);
    match (found.next(), found.next()) {
        (Some(span), None) => span,
        _ => panic!("not one span {name}: {spans:#?}"),
    }
}
