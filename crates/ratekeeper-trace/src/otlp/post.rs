//! The export over HTTP: each message is the body of a POST, as Protobuf.

use std::io;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::transform::common::tonic::ResourceAttributesWithSchema;
use opentelemetry_proto::transform::trace::tonic::group_spans_by_resource_and_scope;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SpanData;
use prost::Message as _;
use ratekeeper_tls::Destination;

use super::{OtlpConfig, OtlpError};

/// The path of traces, unless the endpoint has one.
const PATH: &str = "/v1/traces";

/// The most bytes of an answer, whose content is not used.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Sends spans over one connection, which is opened again when it was closed.
#[derive(Debug)]
pub(super) struct PostExporter {
    server: Destination,
    path: Uri,
    headers: HeaderMap,
    resource: ResourceAttributesWithSchema,
    open: Option<SendRequest<Full<Bytes>>>,
}

/// The reason why spans were not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostError {
    #[error("{0}")]
    Connect(#[from] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
}

impl PostExporter {
    /// Connects when the first spans are sent.
    ///
    /// # Errors
    /// The address is none, or a TLS file cannot be used.
    pub(super) fn new(config: &OtlpConfig, resource: &Resource) -> Result<Self, OtlpError> {
        let (uri, server) = config.server(b"")?;
        let path = match uri.path_and_query().map_or("/", |it| it.as_str()) {
            "/" => PATH,
            path => path,
        };
        let mut headers = config.headers.clone();
        let host = uri.authority().map_or("", |it| it.as_str());
        headers.insert(
            HOST,
            HeaderValue::try_from(host).map_err(|_| config.wrong())?,
        );
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/x-protobuf"),
        );
        let name = format!("ratekeeper/{}", config.version);
        let name = HeaderValue::try_from(name).map_err(|_| config.wrong())?;
        headers.entry(USER_AGENT).or_insert(name);
        Ok(Self {
            server,
            path: path.parse().map_err(|_| config.wrong())?,
            headers,
            resource: resource.into(),
            open: None,
        })
    }

    /// Sends spans once.
    ///
    /// # Errors
    /// The collector did not take them.
    pub(super) async fn export(&mut self, spans: Vec<SpanData>) -> Result<(), PostError> {
        let message = ExportTraceServiceRequest {
            resource_spans: group_spans_by_resource_and_scope(spans, &self.resource),
        };
        let mut request = Request::post(self.path.clone());
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.headers);
        }
        let request = request.body(Full::new(message.encode_to_vec().into()))?;
        let mut sender = self.sender().await?;
        let answer = sender.send_request(request).await?;
        let status = answer.status();
        // To the end, so that the connection can be used again.
        let rest = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
        if rest.collect().await.is_ok() {
            self.open = Some(sender);
        }
        match status.is_success() {
            true => Ok(()),
            false => Err(PostError::Status(status)),
        }
    }

    /// The open connection, or a new one.
    async fn sender(&mut self) -> Result<SendRequest<Full<Bytes>>, PostError> {
        if let Some(mut kept) = self.open.take()
            && kept.ready().await.is_ok()
        {
            return Ok(kept);
        }
        let stream = self.server.connect().await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the sender, or with the collector.
        tokio::spawn(connection);
        Ok(sender)
    }
}
