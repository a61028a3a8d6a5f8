//! Follows a control plane as a node does, and writes each response into a file as the bytes that came, with their length
//! in front. It takes every response, connects again after each cut, and goes on until it is killed.
//!
//! ```text
//! record_xds URL FOLDER NODE FILE
//! ```
//!
//! `FOLDER` has the certificates: `ca.crt`, `tls.crt` and `tls.key`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use prost::Message as _;
use prost::bytes::{Buf as _, Bytes};
use ratekeeper_proto::envoy::config::core::v3::Node;
use ratekeeper_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use ratekeeper_testkit::control_plane::TYPE_URL;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status};

const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// The pause before the next attempt to connect.
const PAUSE: Duration = Duration::from_millis(200);

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, folder, node, file] = &*args else {
        eprintln!("usage: record_xds URL FOLDER NODE FILE");
        return ExitCode::from(2);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = runtime
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(record(url, Path::new(folder), node, file)));
    if let Err(error) = done {
        eprintln!("record_xds: {error}");
    }
    ExitCode::FAILURE
}

/// Records until it is killed.
async fn record(url: &str, folder: &Path, node: &str, file: &str) -> Result<(), Failure> {
    let read = |name: &str| std::fs::read(folder.join(name));
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("ca.crt")?))
        .identity(Identity::from_pem(read("tls.crt")?, read("tls.key")?));
    let endpoint = Endpoint::from_shared(url.to_owned())?.tls_config(tls)?;
    let mut file = File::create(file)?;
    loop {
        let Err(why) = follow(&endpoint, node, &mut file).await else {
            continue;
        };
        eprintln!("record_xds: {why}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Records one stream to its end.
async fn follow(endpoint: &Endpoint, node: &str, file: &mut File) -> Result<(), Failure> {
    let (requests, outgoing) = mpsc::channel(1);
    let first = DiscoveryRequest {
        node: Some(Node {
            id: node.to_owned(),
            ..Node::default()
        }),
        type_url: TYPE_URL.to_owned(),
        ..DiscoveryRequest::default()
    };
    requests.send(first).await?;
    let mut client = tonic::client::Grpc::<Channel>::new(endpoint.connect().await?);
    client.ready().await?;
    let method = PathAndQuery::from_static(METHOD);
    let request = Request::new(ReceiverStream::new(outgoing));
    let mut responses = client.streaming(request, method, Raw).await?.into_inner();
    while let Some(bytes) = responses.message().await? {
        let response = DiscoveryResponse::decode(bytes.clone())?;
        let mut length = Vec::new();
        prost::encode_length_delimiter(bytes.len(), &mut length)?;
        file.write_all(&[&*length, &bytes].concat())?;
        file.flush()?;
        eprintln!(
            "record_xds: version {} with {} resources, {} bytes",
            response.version_info,
            response.resources.len(),
            bytes.len()
        );
        let taken = DiscoveryRequest {
            version_info: response.version_info,
            type_url: response.type_url,
            response_nonce: response.nonce,
            ..DiscoveryRequest::default()
        };
        requests.send(taken).await?;
    }
    Err("the stream ended".into())
}

/// Requests as messages, and responses as the bytes that they are.
struct Raw;

impl Codec for Raw {
    type Encode = DiscoveryRequest;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = DiscoveryRequest;
    type Error = Status;

    fn encode(&mut self, item: DiscoveryRequest, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(to)
            .map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = from.remaining();
        Ok(Some(from.copy_to_bytes(length)))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}
