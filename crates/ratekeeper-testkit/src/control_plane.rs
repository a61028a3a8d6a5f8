//! A control plane that sends rules over xDS: state of the world, on the aggregated stream, as go-control-plane does.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use prost::Message;
use prost_types::Any;
use ratekeeper_proto::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use ratekeeper_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use ratekeeper_proto::ratelimit::config::ratelimit::v3::{
    RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Certificate, Server, ServerTlsConfig};
use tonic::{Request, Response, Status, Streaming};

use crate::certificates::Identity;
use crate::process::eventually;

/// The type of the resources.
pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Resources of one version.
#[derive(Clone, Debug, Default)]
struct Sent {
    version: u64,
    type_url: String,
    resources: Vec<Any>,
    /// Resources of responses that are sent right before, without waiting for their answers.
    before: Vec<Vec<Any>>,
    /// Version and nonce of the last response, if they are another control plane's.
    recorded: Option<(String, String)>,
}

/// The latest of what a client said.
#[derive(Clone, Debug, Default)]
pub struct ClientReport {
    /// The name of the client.
    pub node: String,
    /// The version of the last response that it took.
    pub acknowledged: u64,
    /// The version of the last response that it answered, taken or refused.
    pub answered: u64,
    /// Its words about the last response that it refused.
    pub refusal: Option<String>,
    /// The number of its streams.
    pub streams: u64,
    /// Answers with a nonce of another response than the one that was to be answered.
    pub stale: u64,
    /// Answers to responses that others followed at once.
    pub overtaken: u64,
    /// Answers to responses that were the last ones of their version.
    pub answers: u64,
}

struct Shared {
    sent: watch::Sender<Sent>,
    heard: Mutex<ClientReport>,
    /// Ends all streams each time it changes.
    cuts: watch::Sender<u64>,
    /// Streams that begin from now on get every answer but an ACK answered.
    insists: AtomicBool,
}

/// A running control plane; it ends with the test.
#[allow(missing_debug_implementations, reason = "it holds a server")]
pub struct ControlPlane {
    shared: Arc<Shared>,
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The certificates of a control plane that wants one of its clients.
#[allow(missing_debug_implementations, reason = "it holds a private key")]
pub struct MutualTls {
    /// The control plane's own.
    pub identity: Identity,
    /// The authority that signs clients' certificates.
    pub client_authority: String,
}

impl ControlPlane {
    /// Starts on `port` of this host; 0 takes a free one. It sends nothing until it is told to.
    ///
    /// # Panics
    /// If it cannot.
    #[must_use]
    pub fn start(port: u16, tls: Option<MutualTls>) -> Self {
        let shared = Arc::new(Shared {
            sent: watch::Sender::new(Sent::default()),
            heard: Mutex::default(),
            cuts: watch::Sender::new(0),
            insists: AtomicBool::new(false),
        });
        let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        listener.set_nonblocking(true).expect("a socket can be");
        let address = listener.local_addr().expect("it is bound");
        let (stop, stopped) = oneshot::channel();
        let service = AggregatedDiscoveryServiceServer::new(Service(Arc::clone(&shared)));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("there are threads");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("it is a socket");
                let mut server = Server::builder();
                if let Some(tls) = tls {
                    let MutualTls {
                        identity,
                        client_authority,
                    } = tls;
                    let own =
                        tonic::transport::Identity::from_pem(identity.certificate, identity.key);
                    let config = ServerTlsConfig::new()
                        .identity(own)
                        .client_ca_root(Certificate::from_pem(client_authority));
                    server = server
                        .tls_config(config)
                        .expect("the certificates are good");
                }
                let serving = server
                    .add_service(service)
                    .serve_with_incoming(TcpListenerStream::new(listener));
                tokio::select! {
                    ended = serving => ended.expect("it serves"),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self {
            shared,
            address,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// The address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sends these rules to all clients, now and when they connect. Returns the version.
    pub fn send(&self, rules: &[RateLimitConfig]) -> u64 {
        self.send_resources(rules.iter().map(resource).collect())
    }

    /// Sends these resources, whatever they are.
    pub fn send_resources(&self, resources: Vec<Any>) -> u64 {
        self.send_as(TYPE_URL, resources)
    }

    /// Sends these resources in a response of the type `type_url`.
    pub fn send_as(&self, type_url: &str, resources: Vec<Any>) -> u64 {
        let mut version = 0;
        self.shared.sent.send_modify(|sent| {
            version = sent.version + 1;
            *sent = Sent {
                version,
                type_url: type_url.to_owned(),
                resources,
                ..Sent::default()
            };
        });
        version
    }

    /// Sends a response that another control plane once sent, with its version and its nonce.
    ///
    /// # Panics
    /// If it is none, or has something in it that would not be sent again.
    pub fn replay(&self, recorded: &[u8]) -> u64 {
        let response = DiscoveryResponse::decode(recorded).expect("it is a response");
        assert_eq!(
            response.encode_to_vec(),
            recorded,
            "all of it is sent again"
        );
        let mut version = 0;
        self.shared.sent.send_modify(|sent| {
            version = sent.version + 1;
            *sent = Sent {
                version,
                type_url: response.type_url,
                resources: response.resources,
                recorded: Some((response.version_info, response.nonce)),
                ..Sent::default()
            };
        });
        version
    }

    /// Sends the last of these rules, and the others as responses right before it, without waiting for answers.
    pub fn send_in_a_row(&self, mut all: Vec<Vec<RateLimitConfig>>) -> u64 {
        let any = |rules: Vec<RateLimitConfig>| rules.iter().map(resource).collect::<Vec<_>>();
        let last = all.pop().unwrap_or_default();
        let before: Vec<_> = all.into_iter().map(any).collect();
        let mut version = 0;
        self.shared.sent.send_modify(|sent| {
            version = sent.version + 1;
            *sent = Sent {
                version,
                type_url: TYPE_URL.to_owned(),
                resources: any(last),
                before,
                recorded: None,
            };
        });
        version
    }

    /// Answers each request that does not name the version sent last at once, as the snapshot cache of go-control-plane
    /// does, a refusal too; and sends the resources in another order each time. Holds for streams that begin afterwards.
    pub fn insist(&self) {
        self.shared.insists.store(true, Ordering::Relaxed);
    }

    /// Ends all streams.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The words of clients so far.
    #[must_use]
    pub fn heard(&self) -> ClientReport {
        self.shared.heard.lock().clone()
    }

    /// Waits until the version was answered, and returns what was said of it: [`None`] if it was taken.
    ///
    /// # Panics
    /// If it is not, for long.
    #[must_use]
    pub fn answer(&self, version: u64) -> Option<String> {
        eventually("the client answers", || self.heard().answered == version);
        let heard = self.heard();
        heard.refusal.filter(|_| heard.acknowledged != version)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Records an answer to a response of `version`, which had this nonce. What is said of all but the last response of
    /// a version is counted alone.
    fn record(&self, request: &DiscoveryRequest, version: u64, nonce: &str, is_last: bool) {
        let mut heard = self.heard.lock();
        if request.response_nonce != nonce {
            heard.stale += 1;
            return;
        }
        if !is_last {
            heard.overtaken += 1;
            return;
        }
        match &request.error_detail {
            Some(error) => heard.refusal = Some(error.message.clone()),
            None => {
                heard.acknowledged = version;
                heard.refusal = None;
            }
        }
        heard.answered = version;
        heard.answers += 1;
    }
}

/// The responses of a recording, which the example `record_xds` has written: the bytes of each, with their length in front.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn responses(mut recording: &[u8]) -> Vec<&[u8]> {
    let mut responses = Vec::new();
    while !recording.is_empty() {
        let length = prost::decode_length_delimiter(&mut recording).expect("a length");
        let (response, rest) = recording.split_at(length);
        responses.push(response);
        recording = rest;
    }
    responses
}

/// A resource with these rules.
#[must_use]
pub fn resource(rules: &RateLimitConfig) -> Any {
    Any {
        type_url: TYPE_URL.to_owned(),
        value: rules.encode_to_vec(),
    }
}

/// The rules of a domain with one limit by `key`.
#[must_use]
pub fn rules(
    domain: &str,
    key: &str,
    unit: RateLimitUnit,
    requests_per_unit: u32,
) -> RateLimitConfig {
    let policy = RateLimitPolicy {
        unit: unit.into(),
        requests_per_unit,
        ..RateLimitPolicy::default()
    };
    let descriptor = RateLimitDescriptor {
        key: key.to_owned(),
        rate_limit: Some(policy),
        ..RateLimitDescriptor::default()
    };
    RateLimitConfig {
        name: domain.to_owned(),
        domain: domain.to_owned(),
        descriptors: vec![descriptor],
    }
}

struct Service(Arc<Shared>);

type Responses = Pin<Box<dyn Stream<Item = Result<DiscoveryResponse, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Responses;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let (responses, stream) = mpsc::channel(1);
        let shared = Arc::clone(&self.0);
        tokio::spawn(converse(shared, request.into_inner(), responses));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

/// One stream: a response for each version that the client does not have, and the next one only after its answer.
async fn converse(
    shared: Arc<Shared>,
    mut requests: Streaming<DiscoveryRequest>,
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let (mut sent, mut cuts) = (shared.sent.subscribe(), shared.cuts.subscribe());
    cuts.mark_unchanged();
    let Some(Ok(first)) = requests.next().await else {
        return;
    };
    {
        let mut heard = shared.heard.lock();
        heard.streams += 1;
        heard.node = first.node.map(|node| node.id).unwrap_or_default();
    }
    if shared.insists.load(Ordering::Relaxed) {
        insist(&shared, first.version_info, requests, responses).await;
        return;
    }
    let mut version = 0;
    loop {
        let found = tokio::select! {
            found = sent.wait_for(|sent| sent.version != version) => found.map(|sent| sent.clone()),
            _ = cuts.changed() => return,
            _ = responses.closed() => return,
        };
        let Ok(now) = found else {
            return;
        };
        version = now.version;
        let mut nonces = Vec::new();
        for resources in now.before.into_iter().chain([now.resources]) {
            let own = || {
                let nonce = format!("nonce-{version}-{}", nonces.len());
                (version.to_string(), nonce)
            };
            let (version_info, nonce) = now.recorded.clone().unwrap_or_else(own);
            let response = DiscoveryResponse {
                version_info,
                resources,
                type_url: now.type_url.clone(),
                nonce: nonce.clone(),
            };
            if responses.send(Ok(response)).await.is_err() {
                return;
            }
            nonces.push(nonce);
        }
        let last = nonces.len().saturating_sub(1);
        for (number, nonce) in nonces.iter().enumerate() {
            tokio::select! {
                answer = requests.next() => match answer {
                    Some(Ok(answer)) => shared.record(&answer, version, nonce, number == last),
                    _ => return,
                },
                _ = cuts.changed() => return,
            }
        }
    }
}

/// The rest of a stream of a client that says it has `has`: a response whenever that is not the version sent last.
async fn insist(
    shared: &Shared,
    mut has: String,
    mut requests: Streaming<DiscoveryRequest>,
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let (mut sent, mut cuts) = (shared.sent.subscribe(), shared.cuts.subscribe());
    cuts.mark_unchanged();
    for number in 0_usize.. {
        let is_news = |sent: &Sent| sent.version > 0 && sent.version.to_string() != has;
        let mut now = tokio::select! {
            found = sent.wait_for(is_news) => match found {
                Ok(sent) => sent.clone(),
                Err(_) => return,
            },
            _ = cuts.changed() => return,
            _ = responses.closed() => return,
        };
        let count = now.resources.len();
        now.resources
            .rotate_left(number.checked_rem(count).unwrap_or(0));
        let nonce = number.to_string();
        let response = DiscoveryResponse {
            version_info: now.version.to_string(),
            resources: now.resources,
            type_url: now.type_url,
            nonce: nonce.clone(),
        };
        if responses.send(Ok(response)).await.is_err() {
            return;
        }
        let answer = tokio::select! {
            answer = requests.next() => answer,
            _ = cuts.changed() => return,
        };
        let Some(Ok(answer)) = answer else {
            return;
        };
        shared.record(&answer, now.version, &nonce, true);
        has = answer.version_info;
    }
}
