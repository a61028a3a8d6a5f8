//! The proxy: from a request that may pass to its upstream's answer.

use std::convert::Infallible;
use std::error::Error;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::TrySendError;
use ratekeeper_server::Peer;
use ratekeeper_tower::{BodyForm, Ending, Passage, Shed, ShedContext};
use ratekeeper_trace::RequestSpan;
use tokio::time::timeout;
use tower::Service;

use crate::body::{HeldPlace, Progress, ProxyBody, RequestBody};
use crate::connect::{ConnectError, ConnectionUse, connect};
use crate::fault::Fault;
use crate::head::{self, Inbound};
use crate::media_type::{is_grpc, is_stream};
use crate::pool::{Connection, Lease, Pool};
use crate::shared::Shared;
use crate::upgrade::Upgrade;
use crate::upstream::{AnsweredBy, Upstream, WaitOrder};

/// A service that forwards requests, with connections of its own in each worker.
#[derive(Clone, Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    pool: Pool,
}

impl Proxy {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let pool = Pool::default();
        Self { shared, pool }
    }
}

impl Service<Request<RequestBody>> for Proxy {
    type Response = Response<ProxyBody>;
    type Error = Infallible;
    // One allocation per request: the futures of hyper's connections have no name.
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> Self::Future {
        let proxy = self.clone();
        Box::pin(async move {
            let is_grpc = is_grpc(request.headers());
            let answer = proxy.forward(request).await;
            Ok(answer.unwrap_or_else(|fault| fault.response(is_grpc)))
        })
    }
}

impl Proxy {
    async fn forward(
        self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<ProxyBody>, Fault> {
        let upstream = self.route(&request)?;
        let passage = match self.admit(&upstream, &mut request) {
            Ok(passage) => passage,
            Err(shed) => return Ok(shed.map(ProxyBody::text)),
        };
        let gives_samples = !is_stream(request.headers());
        let body_bytes_max = self.shared.body_bytes_max;
        if request.body().size_hint().lower() > body_bytes_max {
            return Err(Fault::TooLarge(body_bytes_max));
        }
        let upgrade = Upgrade::of(&mut request);
        let is_http10 = request.version() == Version::HTTP_10;
        let (mut parts, body) = request.into_parts();
        let peer = parts.extensions.remove::<Peer>();
        let span = match &self.shared.tracer {
            Some(_) => parts.extensions.remove::<Arc<RequestSpan>>(),
            None => None,
        };
        let inbound = Inbound {
            peer: peer.as_ref(),
            scheme: self.shared.scheme,
            forwarding: &self.shared.forwarding,
        };
        head::forward(&mut parts, &upstream, inbound);
        if let Some(upgrade) = &upgrade {
            upgrade.ask(&mut parts.headers);
        }
        let exchange = Exchange {
            upstream: &upstream,
            pool: &self.pool,
            progress: body.progress(),
            body_bytes_max,
            connection_use: match upgrade {
                Some(_) => ConnectionUse::Upgrade,
                None => ConnectionUse::Requests,
            },
            begun: Instant::now(),
        };
        let sheds = passage.as_ref().is_some_and(Passage::is_enforced);
        let order = match sheds {
            true => WaitOrder::ControlledDelay,
            false => WaitOrder::InTurn,
        };
        let place = upstream.room.place(upstream.connect_timeout, order).await;
        // Its client may have given up meanwhile.
        let is_late = || sheds && passage.as_ref().is_some_and(Passage::is_late);
        let Some(place) = place.filter(|_| !is_late()) else {
            return match passage.filter(|_| sheds) {
                Some(passage) => {
                    let answer = passage.shed().response(&parts.headers, BodyForm::default());
                    Ok(answer.map(ProxyBody::text))
                }
                None => {
                    let upstream = upstream.name.clone();
                    Err(Fault::Full { upstream })
                }
            };
        };
        let place = HeldPlace::new(place, exchange.progress.as_ref());
        let outcome = exchange.run(Request::from_parts(parts, body)).await;
        if let Some(span) = span {
            let status = outcome.as_ref().ok().map(|(answer, _)| answer.status());
            span.upstream(&upstream.name, exchange.begun, status);
        }
        let gives_samples = gives_samples && exchange.connection_use == ConnectionUse::Requests;
        let in_flight = passage.map(|it| it.answered(ending(&outcome).filter(|_| gives_samples)));
        let place = place.with(in_flight);
        let (answer, lease) = outcome.inspect_err(|fault| {
            tracing::debug!(
                upstream = &*upstream.name,
                ?fault,
                "no answer from the upstream"
            );
        })?;
        upstream.counts.note_latency(exchange.begun.elapsed());
        let (mut parts, incoming) = answer.into_parts();
        let begins = match (upgrade, parts.status) {
            (Some(upgrade), StatusCode::SWITCHING_PROTOCOLS) => Some(upgrade),
            (None, StatusCode::SWITCHING_PROTOCOLS) => {
                let why = "it switched protocols without having been asked to".into();
                let upstream = upstream.name.clone();
                return Err(Fault::Broken { upstream, why });
            }
            _ => None,
        };
        if begins.is_none() {
            head::of_answer(&mut parts.headers);
        }
        parts.version = if is_http10 {
            Version::HTTP_10
        } else {
            Version::HTTP_11
        };
        let pace = upstream.response_timeout;
        let lease = lease.filter(|_| begins.is_none());
        let (of_answer, of_tunnel) = match begins {
            None => (Some(place), None),
            Some(_) => (None, Some(place)),
        };
        let body = ProxyBody::of_upstream(incoming, lease, of_answer, pace);
        let mut answer = Response::from_parts(parts, body);
        if let Some(upgrade) = begins {
            upgrade.begin(&mut answer, &self.shared, of_tunnel);
        }
        answer.extensions_mut().insert(AnsweredBy(upstream));
        Ok(answer)
    }

    /// Takes the request through the shedders, if any is in use; the answer to one that is shed.
    fn admit(
        &self,
        upstream: &Upstream,
        request: &mut Request<RequestBody>,
    ) -> Result<Option<Passage>, Box<Response<Bytes>>> {
        let Some(context) = request.extensions_mut().remove::<ShedContext>() else {
            return Ok(None);
        };
        let admitted = self.shared.shedder.admit(&upstream.counts.site, &context);
        let refused = |shed: Shed| Box::new(shed.response(request.headers(), BodyForm::default()));
        admitted.map(Some).map_err(refused)
    }

    fn route(&self, request: &Request<RequestBody>) -> Result<Arc<Upstream>, Fault> {
        let header = request.headers().get(HOST).map(HeaderValue::as_bytes);
        let authority = request.uri().authority().map(|it| it.as_str().as_bytes());
        let routes = self.shared.routes.load();
        let host = header.or(authority).unwrap_or_default();
        let found = routes.find(host, request.uri());
        found.cloned().ok_or(Fault::NoRoute)
    }
}

/// The end of a round trip, if it tells anything about the upstream's load.
fn ending(outcome: &Result<Answered, Fault>) -> Option<Ending> {
    match outcome {
        Ok((answer, _)) => match answer.status() {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => Some(Ending::Dropped),
            _ => Some(Ending::Answered),
        },
        Err(fault) => fault.is_of_upstream().then_some(Ending::Dropped),
    }
}

/// One request and its answer.
struct Exchange<'a> {
    upstream: &'a Upstream,
    pool: &'a Pool,
    progress: Option<Arc<Progress>>,
    body_bytes_max: u64,
    connection_use: ConnectionUse,
    begun: Instant,
}

/// An answer, and the connection that it comes on if that serves one request at a time.
type Answered = (Response<Incoming>, Option<Lease>);

/// A request that got no answer.
enum Failed {
    /// It was not sent.
    Unsent(Box<Request<RequestBody>>),
    /// It may have been.
    Sent(hyper::Error),
    TooSlow,
}

/// The parts of a request without a body that are needed to send it again.
struct Again {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
}

impl Again {
    fn request(self) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::none());
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers;
        request
    }
}

/// Classifies an error: a request that hyper gives back was not sent.
fn failed(mut error: TrySendError<Request<RequestBody>>) -> Failed {
    match error.take_message() {
        Some(request) => Failed::Unsent(Box::new(request)),
        None => Failed::Sent(error.into_error()),
    }
}

/// The root cause of an error, for people.
fn innermost(error: &hyper::Error) -> String {
    let mut innermost: &dyn Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

fn is_reset(error: &hyper::Error) -> bool {
    let source = error.source().and_then(|it| it.downcast_ref::<io::Error>());
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    source.is_some_and(|error| kinds.contains(&error.kind()))
}

impl Exchange<'_> {
    /// Sends the request on a kept connection, or on a new one. If the kept one turns out to be closed,
    /// the request is retried on a new one, provided nothing of it was sent, or it is idempotent
    /// (RFC 9110, section 9.2.2) and nothing came back.
    async fn run(&self, mut request: Request<RequestBody>) -> Result<Answered, Fault> {
        let key = |index| (self.upstream.id, index);
        let mut order = self.upstream.order();
        let first = order.next().unwrap_or_default();
        if self.connection_use == ConnectionUse::Requests
            && let Some(connection) = self.pool.take(key(first))
        {
            let again = self.again(&request);
            match self.send(connection, first, request).await {
                Ok(answered) => return Ok(answered),
                Err(Failed::Unsent(unsent)) => request = *unsent,
                Err(Failed::TooSlow) => return Err(self.too_slow()),
                Err(Failed::Sent(error)) => {
                    let is_closed =
                        error.is_incomplete_message() || error.is_closed() || is_reset(&error);
                    request = match again.filter(|_| is_closed) {
                        Some(again) => again.request(),
                        None => return Err(self.broken(&error)),
                    };
                }
            }
            self.upstream.counts.note_retry();
        }
        let order = std::iter::once(first).chain(order);
        // Boxed: a handshake takes twice as much memory as all the rest of a request, and most
        // requests find a kept connection.
        let (connection, index) = Box::pin(self.connect(order)).await?;
        match self.send(connection, index, request).await {
            Ok(answered) => Ok(answered),
            Err(Failed::TooSlow) => Err(self.too_slow()),
            Err(Failed::Sent(error)) => Err(self.broken(&error)),
            Err(Failed::Unsent(_)) => Err(self.broken_by("it closed the connection")),
        }
    }

    /// Opens a new connection, to the first address of `order` that can be reached.
    async fn connect(
        &self,
        order: impl Iterator<Item = usize>,
    ) -> Result<(Connection, usize), Fault> {
        let upstream = || self.upstream.name.clone();
        let mut last = None;
        for index in order {
            match connect(self.upstream, index, self.pool, self.connection_use).await {
                Ok(connection) => return Ok((connection, index)),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(ConnectError::TooSlow) => Fault::ConnectTimeout {
                upstream: upstream(),
            },
            Some(ConnectError::Failed(why)) => Fault::Unreachable {
                upstream: upstream(),
                why,
            },
            None => Fault::Unreachable {
                upstream: upstream(),
                why: "it has no address".into(),
            },
        })
    }

    async fn send(
        &self,
        connection: Connection,
        index: usize,
        mut request: Request<RequestBody>,
    ) -> Result<Answered, Failed> {
        match connection {
            Connection::Http1(mut lease) => {
                if self.progress.is_some() {
                    head::frame_http1(request.headers_mut());
                }
                let sent = lease.sender.try_send_request(request);
                let answer = self.in_time(sent).await?.map_err(failed)?;
                Ok((answer, Some(lease)))
            }
            Connection::Http2(mut sender) => {
                let (mut parts, body) = request.into_parts();
                head::as_http2(&mut parts, self.upstream, index);
                let sent = sender.try_send_request(Request::from_parts(parts, body));
                let answer = self.in_time(sent).await?.map_err(failed)?;
                Ok((answer, None))
            }
        }
    }

    /// Waits for an answer to begin. As long as the body is on its way, only pauses count.
    async fn in_time<T>(&self, answer: impl Future<Output = T>) -> Result<T, Failed> {
        let mut answer = std::pin::pin!(answer);
        let mut seen = 0;
        loop {
            if let Ok(answer) = timeout(self.upstream.response_timeout, answer.as_mut()).await {
                return Ok(answer);
            }
            match &self.progress {
                Some(progress) if progress.frames() != seen => seen = progress.frames(),
                _ => return Err(Failed::TooSlow),
            }
        }
    }

    /// The parts needed to send it once more, if it is idempotent and has no body.
    fn again(&self, request: &Request<RequestBody>) -> Option<Again> {
        let is_idempotent = request.method().is_idempotent() && self.progress.is_none();
        is_idempotent.then(|| Again {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
        })
    }

    fn too_slow(&self) -> Fault {
        match &self.progress {
            Some(progress) if progress.is_awaited() => Fault::BodyTooSlow,
            _ => {
                let upstream = self.upstream.name.clone();
                Fault::ResponseTimeout { upstream }
            }
        }
    }

    fn broken(&self, error: &hyper::Error) -> Fault {
        match &self.progress {
            Some(progress) if progress.is_too_large() => Fault::TooLarge(self.body_bytes_max),
            Some(progress) if progress.is_too_slow() => Fault::BodyTooSlow,
            Some(progress) if progress.is_broken() => Fault::BadBody,
            _ => self.broken_by(&innermost(error)),
        }
    }

    fn broken_by(&self, why: &str) -> Fault {
        let (upstream, why) = (self.upstream.name.clone(), why.into());
        Fault::Broken { upstream, why }
    }
}
