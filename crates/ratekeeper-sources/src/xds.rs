//! A client of a control plane that sends rules over xDS, state of the world, on the aggregated stream.
//!
//! The control plane sends all resources whenever one of them changes. Each response is answered once its rules are in
//! force (ACK), or with what is wrong about them (NACK); the good resources of a response apply either way.
//!
//! go-control-plane answers a NACK with the same resources at once, so their next NACK waits.

mod defaults;
mod resource;

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use http::HeaderMap;
use prost_types::Struct;
use prost_types::value::Kind;
use ratekeeper_proto::envoy::config::core::v3::{Node, node::UserAgentVersionType};
use ratekeeper_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ratekeeper_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use ratekeeper_proto::google::rpc;
use ratekeeper_rules::Source;
use ratekeeper_server::{DeliveryError, RulesFeed};
use ratekeeper_tls::TlsFiles;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::SourceStatus;
use crate::backoff::Backoff;
use crate::grpc_connection::{GrpcConnection, describe};
pub use defaults::{XdsDefaults, XdsDefaultsError};
use resource::{Resources, fingerprint};

/// The type of the resources.
const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The longest text about mistakes that is sent back, in bytes: gRPC bounds what a server reads.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// The time after which a stream without a response is told. A control plane may have nothing for a node, so the stream
/// stays; but it says nothing either to a node that it does not know.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The longest pause before resources are refused once more that were refused before. Until then, a control plane that sends
/// one response at a time keeps new rules to itself.
const REPEAT_PAUSE_MAX: Duration = Duration::from_secs(10);

/// The settings of a client.
#[derive(Clone, Debug)]
pub struct XdsConfig {
    /// The control plane: `http://HOST:PORT`, or `https://` for TLS.
    pub endpoint: String,
    /// The name that its certificate must have, if it is not the host.
    pub server_name: Option<String>,
    /// The files for TLS; read again for each connection.
    pub tls: TlsFiles,
    /// The name of this node, by which the control plane chooses what it sends.
    pub node_id: String,
    /// Further properties of this node.
    pub node_metadata: BTreeMap<String, String>,
    /// Headers of the stream's request.
    pub headers: HeaderMap,
    /// The most bytes of a response.
    pub response_bytes_max: usize,
    /// Keys for the rules that resources cannot have.
    pub defaults: XdsDefaults,
}

impl XdsConfig {
    /// The control plane and the node, for people; names the kept rules.
    #[must_use]
    pub fn name(&self) -> String {
        let (scheme, place) = match self.endpoint.strip_prefix("https://") {
            Some(place) => ("xdss", place),
            None => ("xds", self.endpoint.trim_start_matches("http://")),
        };
        format!("{scheme}://{place} (node {})", self.node_id)
    }
}

/// The fault of a control plane's address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not the address of a control plane")]
pub struct XdsAddressError(String);

/// A client of a control plane.
#[derive(Debug)]
pub struct XdsSource {
    config: XdsConfig,
    connection: GrpcConnection,
    status: SourceStatus,
    /// The texts that were delivered last.
    delivered: Vec<Source>,
    /// The version that is in force.
    version: String,
    /// The response that was refused last; [`None`] once another one is taken.
    refused: Option<Refused>,
}

/// A response that was refused, some or all of it.
#[derive(Debug)]
struct Refused {
    fingerprint: u64,
    why: String,
    /// The pauses before it is refused again.
    pauses: Backoff,
}

/// The answer to a response.
struct Answer {
    request: DiscoveryRequest,
    /// The time to wait before it is sent.
    pause: Option<Duration>,
}

/// The reason why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("{0}")]
    Connect(String),
    #[error("{}", describe(.0))]
    Status(Status),
    #[error("the stream ended")]
    Ended,
}

impl XdsSource {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// The address is none. Files are read when it connects.
    pub fn new(config: XdsConfig) -> Result<Self, XdsAddressError> {
        let server_name = config.server_name.as_deref();
        let connection = GrpcConnection::new(&config.endpoint, server_name, &config.tls);
        Ok(Self {
            connection: connection.ok_or_else(|| XdsAddressError(config.endpoint.clone()))?,
            status: SourceStatus::new(config.name(), "rules"),
            delivered: Vec::new(),
            version: String::new(),
            refused: None,
            config,
        })
    }

    /// The state of the client, for operators.
    #[must_use]
    pub fn source_status(&self) -> SourceStatus {
        self.status.clone()
    }

    /// Follows the control plane until the server that takes the rules ends. May be called again after a panic ended it.
    pub async fn run(&mut self, feed: &RulesFeed) {
        let mut backoff = Backoff::default();
        loop {
            let ended = self.stream(feed, &mut backoff).await;
            let Err(why) = ended else {
                return;
            };
            self.status.failed(why.to_string());
            sleep(backoff.next()).await;
        }
    }

    /// Follows one stream. Returns once the server has ended.
    async fn stream(&mut self, feed: &RulesFeed, backoff: &mut Backoff) -> Result<(), StreamError> {
        let channel = self.connection.open().await.map_err(StreamError::Connect)?;
        let (requests, outgoing) = mpsc::channel(1);
        // A full response, whatever is in force: another control plane may count its versions alike.
        let first = DiscoveryRequest {
            node: Some(self.node()),
            type_url: TYPE_URL.to_owned(),
            ..DiscoveryRequest::default()
        };
        requests.send(first).await.map_err(|_| StreamError::Ended)?;
        let first = async {
            let mut responses = self.call(channel, ReceiverStream::new(outgoing)).await?;
            let first = responses.message().await;
            Ok::<_, StreamError>((responses, first))
        };
        let (mut responses, mut next) = self.telling_silence(first).await?;
        while let Some(response) = next.map_err(StreamError::Status)? {
            self.status.reached();
            let Some(Answer { request, pause }) = self.take(response, feed).await else {
                return Ok(());
            };
            // Of a refused one too: the control plane is there, and its next stream begins with the same.
            backoff.reset();
            let mut early = None;
            if let Some(pause) = pause {
                // What comes meanwhile is news.
                early = timeout(pause, responses.message()).await.ok();
            }
            let early = early.transpose().map_err(StreamError::Status)?;
            let sent = requests.send(request).await;
            sent.map_err(|_| StreamError::Ended)?;
            next = match early {
                Some(early) => Ok(early),
                None => responses.message().await,
            };
        }
        Err(StreamError::Ended)
    }

    /// Waits for the first response, and tells operators if that takes long. A control plane may send the head of the stream
    /// with it.
    async fn telling_silence<T>(&self, first: impl Future<Output = T>) -> T {
        let mut first = pin!(first);
        if let Ok(first) = timeout(SILENCE_MAX, &mut first).await {
            return first;
        }
        let why = "it sends nothing: it has no rules for this node, or does not know its id (xds_node_id)";
        self.status.silent(why.to_owned());
        first.await
    }

    async fn call(
        &self,
        channel: Channel,
        requests: ReceiverStream<DiscoveryRequest>,
    ) -> Result<tonic::Streaming<DiscoveryResponse>, StreamError> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.config.response_bytes_max);
        let metadata = MetadataMap::from_headers(self.config.headers.clone());
        let request = Request::from_parts(metadata, tonic::Extensions::default(), requests);
        let opened = client.stream_aggregated_resources(request).await;
        Ok(opened.map_err(StreamError::Status)?.into_inner())
    }

    /// Delivers a response, and returns the answer to it; [`None`] once the server has ended.
    async fn take(&mut self, response: DiscoveryResponse, feed: &RulesFeed) -> Option<Answer> {
        let DiscoveryResponse {
            version_info,
            resources,
            type_url,
            nonce,
        } = response;
        let read = match type_url == TYPE_URL {
            true => Ok(Resources::read(
                resources,
                &self.config.defaults,
                &self.delivered,
            )),
            false => Err(format!(
                "this is a response of the type {type_url}, which was not asked for"
            )),
        };
        let fingerprint = match &read {
            Ok(read) => read.fingerprint,
            Err(why) => fingerprint(why),
        };
        let mut pause = None;
        let refused = self.refused.as_mut();
        if let Some(before) = refused.filter(|before| before.fingerprint == fingerprint) {
            pause = Some(before.pauses.next());
        } else {
            let why = match read {
                Ok(read) => self.deliver(read, feed).await?,
                Err(why) => {
                    self.status.mistaken(std::slice::from_ref(&why));
                    why
                }
            };
            self.refused = (!why.is_empty()).then(|| Refused {
                fingerprint,
                why,
                pauses: Backoff::up_to(REPEAT_PAUSE_MAX),
            });
        }
        self.status.delivered(self.refused.is_some());
        if self.refused.is_none() {
            self.version = version_info;
        }
        let request = DiscoveryRequest {
            version_info: self.version.clone(),
            type_url: TYPE_URL.to_owned(),
            response_nonce: nonce,
            error_detail: (self.refused.as_ref()).map(|refused| refusal(&refused.why)),
            ..DiscoveryRequest::default()
        };
        Some(Answer { request, pause })
    }

    /// Delivers resources, and returns what is wrong about them, empty if nothing is; [`None`] once the server has ended.
    async fn deliver(&mut self, read: Resources, feed: &RulesFeed) -> Option<String> {
        let mut mistakes = read.mistakes;
        self.status.mistaken(&mistakes);
        match feed.deliver(read.sources.clone()).await {
            Ok(()) => {}
            Err(DeliveryError::Ended) => return None,
            Err(refused) => mistakes.push(refused.to_string()),
        }
        self.delivered = read.sources;
        Some(mistakes.join("\n"))
    }

    fn node(&self) -> Node {
        let text = |text: &String| prost_types::Value {
            kind: Some(Kind::StringValue(text.clone())),
        };
        let fields = self.config.node_metadata.iter();
        let fields: BTreeMap<_, _> = fields
            .map(|(key, value)| (key.clone(), text(value)))
            .collect();
        Node {
            id: self.config.node_id.clone(),
            metadata: (!fields.is_empty()).then_some(Struct { fields }),
            user_agent_name: "ratekeeper".to_owned(),
            user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion(
                env!("CARGO_PKG_VERSION").to_owned(),
            )),
            ..Node::default()
        }
    }
}

/// The error of a NACK.
fn refusal(mistakes: &str) -> rpc::Status {
    let cut = mistakes.floor_char_boundary(ERROR_BYTES_MAX);
    rpc::Status {
        code: Code::InvalidArgument as i32,
        message: mistakes.get(..cut).unwrap_or_default().to_owned(),
        details: Vec::new(),
    }
}
