//! A server on free ports, and clients that speak to it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Limiter, LimiterOptions};
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use ratekeeper_rules::{Options, Profile, ReadOptions};
use ratekeeper_server::{
    Addresses, DrainDelay, Drained, ListenAddress, PeerLists, ReloadStatus, RulesLoader,
    RulesSource, Server, ServerConfig, TopAnswer, TopPeers,
};
use ratekeeper_store::{MemoryConfig, MemoryStore};
use ratekeeper_stores::{Backend, SharedStore, Stores};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tonic::transport::Channel;

/// Far more than anything needs; reached only where a test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Limits that no test can wait out.
pub(crate) const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { name: per user, unit: year, requests_per_unit: 3, algorithm: fixed_window }
  - key: free
    rate_limit: { unlimited: true }
  - key: plain
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
    metadata: { team: blue, more: { a: 1 } }
  - key: other
    rate_limit: { unit: week, requests_per_unit: 1000000, algorithm: fixed_window }
    metadata: { team: red, more: { a: 2, b: 3 } }
  - key: odd
    rate_limit: { window: 90s, limit: 7, algorithm: fixed_window }
  - key: watched
    shadow_mode: true
    rate_limit: { window: 10000d, limit: 1, algorithm: fixed_window }
";

/// The addresses that the tests' server listens on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ports {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) metrics: Option<SocketAddr>,
}

impl Ports {
    /// A listener at a Unix socket has no port: it gets one that cannot be connected to.
    fn of(addresses: &Addresses) -> Self {
        let nowhere = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let of = |address: &Option<ListenAddress>| {
            let address = address.as_ref().and_then(ListenAddress::tcp);
            address.unwrap_or(nowhere)
        };
        Self {
            grpc: of(&addresses.grpc),
            http: of(&addresses.http),
            admin: addresses.admin.tcp().unwrap_or(nowhere),
            metrics: addresses.metrics.as_ref().and_then(ListenAddress::tcp),
        }
    }
}

/// A running server.
pub(crate) struct Running {
    pub(crate) addresses: Ports,
    pub(crate) reloads: watch::Receiver<ReloadStatus>,
    pub(crate) dir: TempDir,
    pub(crate) limiter: Arc<Limiter<Stores>>,
    pub(crate) delay: DrainDelay,
    /// The services of its gRPC listener, for another server.
    pub(crate) grpc_services: Router,
    shutdown: Option<oneshot::Sender<()>>,
    task: JoinHandle<Drained>,
}

/// Starts a server with `rules`, on free ports of loopback.
pub(crate) async fn start(rules: &str) -> Running {
    start_with(rules, |_| {}).await
}

/// The same, after `change` has changed the configuration.
pub(crate) async fn start_with(rules: &str, change: impl FnOnce(&mut ServerConfig)) -> Running {
    start_on(memory(), rules, change).await
}

pub(crate) fn memory() -> MemoryStore {
    MemoryStore::new(MemoryConfig::default()).unwrap()
}

/// The counters in `store`, as if nodes shared it.
pub(crate) fn shared(store: impl SharedStore) -> Stores {
    // These answer at once: nothing is left to be seen through.
    Stores::new(Backend::Shared(Arc::new(store)), Vec::new(), drop)
}

/// The same, with counters in `store`.
pub(crate) async fn start_on(
    store: impl Into<Stores>,
    rules: &str,
    change: impl FnOnce(&mut ServerConfig),
) -> Running {
    start_from(store, Timestamp::EPOCH, rules, change).await
}

/// The same, with a clock that begins at `time` if that is later than now.
pub(crate) async fn start_from(
    store: impl Into<Stores>,
    time: Timestamp,
    rules: &str,
    change: impl FnOnce(&mut ServerConfig),
) -> Running {
    let free = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let mut config = ServerConfig {
        grpc: Some(free.into()),
        http: Some(free.into()),
        admin: free.into(),
        drain_delay: Duration::ZERO,
        ..ServerConfig::default()
    };
    config.watch.quiet = Duration::from_millis(20);
    change(&mut config);
    let dir = tempfile::tempdir().unwrap();
    // A file has one domain.
    for (number, text) in rules.split("\n---\n").enumerate() {
        let name = match number {
            0 => "rules.yaml".to_owned(),
            number => format!("rules-{number}.yaml"),
        };
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    let mut options = Options::default();
    options.profile = config.rls.profile;
    let source = RulesSource {
        path: dir.path().to_owned(),
        tenants: None,
        read: ReadOptions::default(),
        options,
    };
    let mut loader = RulesLoader::new(source);
    let rules = loader.load().map(|loaded| loaded.rules).unwrap_or_default();
    let mut how = LimiterOptions::default();
    how.profile = config.rls.profile;
    how.clock_from = time;
    let limiter = Arc::new(Limiter::new(rules, store.into(), how).with_growth_watch());
    let server = Server::bind(config, Arc::clone(&limiter), loader)
        .await
        .unwrap();
    let (shutdown, stop) = oneshot::channel();
    Running {
        addresses: Ports::of(&server.addresses()),
        reloads: server.reloads(),
        dir,
        limiter,
        delay: server.drain_delay(),
        grpc_services: Router::new().fallback_service(server.grpc_services()),
        shutdown: Some(shutdown),
        task: tokio::spawn(server.run(async {
            let _ = stop.await;
        })),
    }
}

/// envoyproxy/ratelimit to the letter.
pub(crate) fn envoy(config: &mut ServerConfig) {
    config.rls.profile = Profile::Envoy;
}

impl Running {
    pub(crate) async fn grpc(&self) -> RateLimitServiceClient<Channel> {
        RateLimitServiceClient::connect(format!("http://{}", self.addresses.grpc))
            .await
            .unwrap()
    }

    /// Begins the shutdown and answers what to wait for.
    pub(crate) fn begin_shutdown(mut self) -> (JoinHandle<Drained>, TempDir) {
        self.announce_shutdown();
        (self.task, self.dir)
    }

    /// Begins the shutdown, to see what becomes of it.
    pub(crate) fn announce_shutdown(&mut self) {
        if let Some(shutdown) = self.shutdown.take() {
            let _ = shutdown.send(());
        }
    }

    pub(crate) async fn stop(self) -> Drained {
        self.begin_shutdown().0.await.unwrap()
    }

    /// Sends an HTTP request and answers its status and body.
    pub(crate) async fn http(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let json = [("content-type", "application/json")];
        let headers: &[_] = if body.is_empty() { &[] } else { &json };
        self.send(self.addresses.http, method, path, headers, body)
            .await
    }

    pub(crate) async fn post(
        &self,
        path: &str,
        body: &serde_json::Value,
    ) -> (u16, serde_json::Value) {
        let (status, body) = self.http("POST", path, &body.to_string()).await;
        (
            status,
            serde_json::from_str(&body).unwrap_or(serde_json::Value::Null),
        )
    }

    pub(crate) async fn admin(&self, path: &str) -> (u16, String) {
        self.send(self.addresses.admin, "GET", path, &[], "").await
    }

    pub(crate) async fn send(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String) {
        let (head, body) = self.send_whole(to, method, path, headers, body).await;
        (head.status.as_u16(), body)
    }

    /// Sends a request, and returns the head and the body of the answer.
    pub(crate) async fn send_whole(
        &self,
        to: SocketAddr,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (::http::response::Parts, String) {
        let mut request = ::http::Request::builder()
            .method(method)
            .uri(format!("http://{to}{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body.to_owned().into_bytes().into()))
            .unwrap();
        let client: Client<_, Full<bytes::Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let (head, body) = client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head, String::from_utf8(body.to_vec()).unwrap())
    }

    /// The value of a metric's series, written as in the text: `name{label="value"}`.
    pub(crate) async fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.admin("/metrics").await;
        let line = text.lines().find(|line| {
            line.strip_prefix(series)
                .is_some_and(|rest| rest.starts_with(' '))
        });
        let line = line.unwrap_or_else(|| panic!("no {series} in:\n{text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// Writes bytes to a socket and reads until the other side closes.
pub(crate) async fn raw(to: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(to).await.unwrap();
    // It may answer, and close, before it has read all of it.
    let _ = stream.write_all(bytes).await;
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer))
        .await
        .unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// A request with one entry a descriptor.
pub(crate) fn request(domain: &str, pairs: &[(&str, &str)]) -> RateLimitRequest {
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: pairs.iter().map(|pair| descriptor(&[*pair])).collect(),
        hits_addend: 0,
    }
}

pub(crate) fn descriptor(pairs: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| WireEntry {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
    };
    RateLimitDescriptor {
        entries: pairs.iter().map(entry).collect(),
        ..Default::default()
    }
}

/// A place in memory where nodes lay out their lists.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<BTreeMap<String, String>>);

impl Board {
    /// The place as the node with this name sees it.
    pub(crate) fn node(self: &Arc<Self>, name: &str) -> Arc<dyn TopPeers> {
        Arc::new(NodeOnBoard {
            board: Arc::clone(self),
            name: name.to_owned(),
        })
    }

    fn lists(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().expect("no thread panicked")
    }
}

#[derive(Debug)]
struct NodeOnBoard {
    board: Arc<Board>,
    name: String,
}

impl TopPeers for NodeOnBoard {
    fn publish<'a>(&'a self, list: &'a str) -> TopAnswer<'a, ()> {
        self.board
            .lists()
            .insert(self.name.clone(), list.to_owned());
        Box::pin(async { Ok(()) })
    }

    fn read(&self) -> TopAnswer<'_, PeerLists> {
        let lists = self.board.lists();
        let others = lists.iter().filter(|(name, _)| **name != self.name);
        let lists = others.map(|(_, text)| (Duration::ZERO, text.clone()));
        let lists = lists.collect();
        Box::pin(async { Ok(PeerLists { lists, left_out: 0 }) })
    }
}
