//! Connections and streams, with one request at a time on each stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, TE};
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::answer::{Decisions, read};
use crate::failure::{Failure, NoConnection};
use crate::service::Service;

/// Timeout for establishing a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Answers are small: with windows of this size, window updates are rare.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 26;

/// The target of requests, with the parts common to all of them.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<Service>,
    uri: Uri,
    headers: HeaderMap,
}

impl Target {
    pub(crate) fn new(address: SocketAddr, service: Service) -> Result<Self, http::Error> {
        let mut headers = HeaderMap::new();
        let uri = if service.has_streams() {
            headers.insert(TE, HeaderValue::from_static("trailers"));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
            let authority = address.to_string();
            Uri::builder().scheme("http").authority(authority)
        } else {
            headers.insert(HOST, HeaderValue::try_from(address.to_string())?);
            if !matches!(service, Service::Gateway(_)) {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            Uri::builder()
        };
        Ok(Self {
            address,
            uri: uri.path_and_query(service.path()).build()?,
            service: Arc::new(service),
            headers,
        })
    }

    fn request<B>(&self, body: B) -> Request<B> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }

    /// Builds a request with the payload as its body, or as its path.
    fn over_http1(&self, payload: Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        let Service::Gateway(forwarded) = &*self.service else {
            return Ok(self.request(Full::new(payload)));
        };
        let mut request = self.request(Full::new(Bytes::new()));
        *request.method_mut() = forwarded.method.clone();
        // The first payload was tried before the run, and the others differ from it only in digits.
        *request.uri_mut() = Uri::from_maybe_shared(payload).map_err(|_| Failure::Malformed)?;
        Ok(request)
    }

    /// Connects and opens this many streams; over HTTP/1.1 one.
    ///
    /// # Errors
    /// The system or the peer refuses the connection, or takes too long.
    pub(crate) async fn connect(&self, streams: u32) -> Result<Vec<Stream>, NoConnection> {
        let connected = timeout(CONNECT, self.handshake(streams)).await;
        connected.unwrap_or(Err(NoConnection::Timeout(CONNECT)))
    }

    async fn handshake(&self, streams: u32) -> Result<Vec<Stream>, NoConnection> {
        let socket = TcpStream::connect(self.address).await?;
        socket.set_nodelay(true)?;
        let stream = |protocol| Stream {
            target: self.clone(),
            protocol,
        };
        if !self.service.has_streams() {
            let (send, connection) = http1::handshake(TokioIo::new(socket)).await?;
            // Its error also reaches the request in flight.
            tokio::spawn(connection);
            return Ok(vec![stream(Protocol::Http1(send))]);
        }
        let (send, connection) = h2::client::Builder::new()
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(socket)
            .await?;
        tokio::spawn(connection);
        Ok((0..streams)
            .map(|_| stream(Protocol::Http2(send.clone())))
            .collect())
    }
}

/// Sends requests one after the other.
#[derive(Debug)]
pub(crate) struct Stream {
    target: Target,
    protocol: Protocol,
}

#[derive(Debug)]
enum Protocol {
    Http2(SendRequest<Bytes>),
    Http1(http1::SendRequest<Full<Bytes>>),
}

/// A received answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) decisions: Decisions,
    pub(crate) body: Bytes,
}

impl Stream {
    /// Sends a request and waits for the answer without a timeout.
    pub(crate) async fn ask(&mut self, payload: Bytes) -> Result<Answer, Failure> {
        let Self { target, protocol } = self;
        let (status, body) = match protocol {
            Protocol::Http2(send) => over_http2(target, send, payload).await?,
            Protocol::Http1(send) => over_http1(target, send, payload).await?,
        };
        let decisions = read(&target.service, status, &body)?;
        Ok(Answer { decisions, body })
    }
}

async fn over_http2(
    target: &Target,
    send: &mut SendRequest<Bytes>,
    payload: Bytes,
) -> Result<(u16, Bytes), Failure> {
    let lost = |_| Failure::Lost;
    std::future::poll_fn(|cx| send.poll_ready(cx))
        .await
        .map_err(lost)?;
    let (response, mut sending) = send.send_request(target.request(()), false).map_err(lost)?;
    sending.send_data(payload, true).map_err(lost)?;
    let (head, mut incoming) = response.await.map_err(lost)?.into_parts();
    let mut body = Bytes::new();
    while let Some(chunk) = incoming.data().await {
        let chunk = chunk.map_err(lost)?;
        let _ = incoming.flow_control().release_capacity(chunk.len());
        body = if body.is_empty() {
            chunk
        } else {
            [body, chunk].concat().into()
        };
    }
    // A refusal without a message has its code in the headers.
    let code = match incoming.trailers().await.map_err(lost)? {
        Some(trailers) => code(&trailers),
        None => code(&head.headers),
    };
    match code {
        Some(0) => Ok((head.status.as_u16(), body)),
        Some(code) => Err(Failure::Grpc(code)),
        None if head.status.is_success() => Err(Failure::Malformed),
        None => Err(Failure::Status(head.status.as_u16())),
    }
}

fn code(headers: &HeaderMap) -> Option<u8> {
    headers.get("grpc-status")?.to_str().ok()?.parse().ok()
}

async fn over_http1(
    target: &Target,
    send: &mut http1::SendRequest<Full<Bytes>>,
    payload: Bytes,
) -> Result<(u16, Bytes), Failure> {
    let lost = |_| Failure::Lost;
    send.ready().await.map_err(lost)?;
    let request = target.over_http1(payload)?;
    let response = send.send_request(request).await.map_err(lost)?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.map_err(lost)?;
    Ok((status, body.to_bytes()))
}
