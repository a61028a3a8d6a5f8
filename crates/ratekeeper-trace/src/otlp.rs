//! The exporter: sends spans to an OpenTelemetry collector over gRPC or HTTP.
//!
//! It never stands in a request's way: spans that the collector does not take are lost and counted, and none is sent
//! twice.

mod channel;
mod post;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry::trace::{SpanContext, SpanId, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, Value};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithTonicConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use ratekeeper_tls::{Destination, TlsFileError, TlsFiles};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::metadata::MetadataMap;
use tracing::{info, warn};

use self::post::PostExporter;
use crate::span::{SpanKind, SpanValue, TraceSpan};
use crate::tracer::{SpanCounts, SpanQueue};

/// The most spans in one message.
const BATCH_MAX: usize = 512;

/// The longest time that the first span of a message waits for others.
const LINGER: Duration = Duration::from_millis(500);

/// The longest time that the collector is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The settings of the exporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpConfig {
    /// The collector's address: `http://HOST:PORT`, or `https://HOST:PORT` for TLS. Over HTTP it may have a path, which is
    /// `/v1/traces` if it has none.
    pub endpoint: String,
    /// The protocol that it takes spans over.
    pub protocol: OtlpProtocol,
    /// The files for TLS: the authorities to trust, and the certificate to present. Renewed files count from the next
    /// connection on.
    pub tls: TlsFiles,
    /// Headers of each message, such as credentials. Values that are marked as sensitive are never logged.
    pub headers: HeaderMap,
    /// The name of the service that the spans are of.
    pub service_name: String,
    /// The name of this node among those of the service.
    pub node: String,
    /// The version of the program.
    pub version: &'static str,
}

/// A protocol of collectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtlpProtocol {
    /// gRPC, as a rule on port 4317.
    Grpc,
    /// Protobuf in the body of a POST, as a rule on port 4318.
    HttpProtobuf,
}

impl OtlpConfig {
    /// The collector's server, with the files for it, which are checked.
    fn server(&self, protocol: &[u8]) -> Result<(Uri, Destination), OtlpError> {
        let uri: Uri = self.endpoint.parse().map_err(|_| self.wrong())?;
        let server = Destination::new(&uri, None, &self.tls, protocol);
        let server = server.ok_or_else(|| self.wrong())?;
        // A file that cannot be used stops the start.
        server.check_files().map_err(OtlpError::Tls)?;
        Ok((uri, server))
    }

    fn wrong(&self) -> OtlpError {
        OtlpError::Address(self.endpoint.clone())
    }
}

/// The reason there is no exporter.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The endpoint is not an address.
    #[error("{0} is not the address of a collector")]
    Address(String),
    /// A file for TLS cannot be used.
    #[error(transparent)]
    Tls(TlsFileError),
    /// The exporter refuses its settings.
    #[error("the exporter for {endpoint} cannot be made")]
    Exporter {
        /// The endpoint.
        endpoint: String,
        /// The reason.
        source: ExporterBuildError,
    },
}

/// A running export.
#[derive(Debug)]
pub struct OtlpExport {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
    counts: Arc<SpanCounts>,
}

impl OtlpExport {
    /// Begins to export on the runtime that this is called on. The collector need not be there yet.
    ///
    /// # Errors
    /// The endpoint or a file for TLS cannot be used.
    pub fn start(queue: SpanQueue, config: &OtlpConfig) -> Result<Self, OtlpError> {
        let exporter = Exporter::new(config)?;
        let scope = InstrumentationScope::builder("ratekeeper").with_version(config.version);
        let counts = Arc::clone(&queue.counts);
        let sender = Sender {
            exporter,
            scope: scope.build(),
            counts: Arc::clone(&counts),
            is_failing: false,
        };
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(sender.run(queue, stopped));
        Ok(Self { task, stop, counts })
    }

    /// Sends the spans that wait, for at most this long, and ends. Spans that are left are lost.
    pub async fn finish(mut self, within: Duration) {
        // If it has ended by itself, there is no one to tell.
        let _ = self.stop.send(());
        if timeout(within, &mut self.task).await.is_err() {
            self.task.abort();
            warn!(
                exported = self.counts.exported(),
                "the trace collector did not answer in time; the last spans are lost"
            );
        }
    }
}

/// The properties that all spans share.
fn resource(config: &OtlpConfig) -> Resource {
    let mut attributes = vec![
        KeyValue::new("service.name", config.service_name.clone()),
        KeyValue::new("service.version", config.version),
    ];
    if !config.node.is_empty() {
        attributes.push(KeyValue::new("service.instance.id", config.node.clone()));
    }
    Resource::builder_empty()
        .with_attributes(attributes)
        .build()
}

/// The exporter of a protocol.
enum Exporter {
    Grpc(Box<SpanExporter>),
    Post(Box<PostExporter>),
}

impl Exporter {
    fn new(config: &OtlpConfig) -> Result<Self, OtlpError> {
        let resource = resource(config);
        if config.protocol == OtlpProtocol::HttpProtobuf {
            let exporter = PostExporter::new(config, &resource)?;
            return Ok(Self::Post(Box::new(exporter)));
        }
        let built = SpanExporter::builder()
            .with_tonic()
            .with_channel(channel::channel(config)?)
            .with_metadata(MetadataMap::from_headers(config.headers.clone()))
            .with_timeout(PATIENCE)
            .build();
        let mut exporter = built.map_err(|source| OtlpError::Exporter {
            endpoint: config.endpoint.clone(),
            source,
        })?;
        exporter.set_resource(&resource);
        Ok(Self::Grpc(Box::new(exporter)))
    }

    /// Sends spans once; the error is for people.
    async fn export(&mut self, spans: Vec<SpanData>) -> Result<(), String> {
        match self {
            Self::Grpc(grpc) => grpc.export(spans).await.map_err(|error| error.to_string()),
            Self::Post(post) => post.export(spans).await.map_err(|error| error.to_string()),
        }
    }
}

struct Sender {
    exporter: Exporter,
    scope: InstrumentationScope,
    counts: Arc<SpanCounts>,
    /// True while the collector takes no spans: said once.
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut queue: SpanQueue, mut stopped: oneshot::Receiver<()>) {
        let mut is_stopping = false;
        loop {
            let mut batch = Vec::new();
            if is_stopping {
                batch.extend(queue.take());
                if batch.is_empty() {
                    return;
                }
            } else {
                is_stopping = gather(&mut batch, &mut queue, &mut stopped).await;
            }
            while !batch.is_empty() {
                let rest = batch.split_off(batch.len().min(BATCH_MAX));
                self.send(batch).await;
                batch = rest;
            }
        }
    }

    async fn send(&mut self, spans: Vec<TraceSpan>) {
        let count = spans.len();
        let spans = spans.into_iter().map(|span| data(span, &self.scope));
        let sent = timeout(PATIENCE, self.exporter.export(spans.collect())).await;
        match sent {
            Ok(Ok(())) => {
                self.counts.count_exported(count);
                if std::mem::replace(&mut self.is_failing, false) {
                    info!("the trace collector takes spans again");
                }
            }
            Ok(Err(error)) => self.failed(count, &error),
            Err(_) => self.failed(count, &OTelSdkError::Timeout(PATIENCE).to_string()),
        }
    }

    fn failed(&mut self, count: usize, error: &str) {
        self.counts.count_failed(count);
        if !std::mem::replace(&mut self.is_failing, true) {
            warn!(
                error,
                "the trace collector does not take spans: they are lost until it does; decisions go on"
            );
        }
    }
}

/// Waits for a span, and a moment longer for others. Returns true once no more is to be waited for.
async fn gather(
    batch: &mut Vec<TraceSpan>,
    queue: &mut SpanQueue,
    stopped: &mut oneshot::Receiver<()>,
) -> bool {
    tokio::select! {
        _ = &mut *stopped => return true,
        count = queue.spans.recv_many(batch, BATCH_MAX) => if count == 0 {
            return true;
        },
    }
    let until = Instant::now() + LINGER;
    while batch.len() < BATCH_MAX {
        let room = BATCH_MAX - batch.len();
        tokio::select! {
            _ = &mut *stopped => return true,
            more = timeout_at(until, queue.spans.recv_many(batch, room)) => match more {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => break,
            },
        }
    }
    false
}

/// The span as the exporter wants it.
fn data(span: TraceSpan, scope: &InstrumentationScope) -> SpanData {
    let context = SpanContext::new(
        TraceId::from_bytes(span.trace_id.to_be_bytes()),
        SpanId::from_bytes(span.span_id.to_be_bytes()),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    );
    let parent = span.parent.map(u64::to_be_bytes).map(SpanId::from_bytes);
    let attributes = span.attributes.into_iter();
    let attributes = attributes.map(|(name, value)| KeyValue::new(name, valued(value)));
    SpanData {
        span_context: context,
        parent_span_id: parent.unwrap_or(SpanId::INVALID),
        parent_span_is_remote: span.parent_is_remote,
        span_kind: match span.kind {
            SpanKind::Server => opentelemetry::trace::SpanKind::Server,
            SpanKind::Client => opentelemetry::trace::SpanKind::Client,
            SpanKind::Internal => opentelemetry::trace::SpanKind::Internal,
        },
        name: span.name.into(),
        start_time: span.start,
        end_time: span.end,
        attributes: attributes.collect(),
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links: SpanLinks::default(),
        status: match span.is_error {
            true => Status::error(""),
            false => Status::Unset,
        },
        instrumentation_scope: scope.clone(),
    }
}

fn valued(value: SpanValue) -> Value {
    match value {
        SpanValue::Bool(value) => value.into(),
        SpanValue::Number(number) => i64::try_from(number).unwrap_or(i64::MAX).into(),
        SpanValue::Word(word) => word.into(),
        SpanValue::Text(text) => String::from(text).into(),
    }
}
