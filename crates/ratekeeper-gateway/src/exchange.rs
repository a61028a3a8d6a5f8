//! One request to an upstream, and its answer.

use std::error::Error;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use tokio::time::timeout;

use crate::body::{HeldSlot, Progress, RequestBody};
use crate::connect::{ConnectError, ConnectionUse, connect};
use crate::connect::{Connection, Lease, Pool};
use crate::fault::Fault;
use crate::head;
use crate::upstream::Upstream;

/// One request and its answer.
pub(crate) struct Exchange<'a> {
    pub(crate) upstream: &'a Upstream,
    pub(crate) pool: &'a Pool,
    pub(crate) progress: Option<Arc<Progress>>,
    pub(crate) body_bytes_max: u64,
    pub(crate) connection_use: ConnectionUse,
    pub(crate) begun: Instant,
}

/// An answer, and the connection that it comes on if that serves one request at a time, and may serve another.
pub(crate) type Answered = (Response<Incoming>, Option<Lease>);

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

/// Classifies an error: a request that hyper gives back was not sent, and may go over either protocol next.
fn failed(mut error: TrySendError<Request<RequestBody>>) -> Failed {
    match error.take_message() {
        Some(mut request) => {
            head::as_http1(&mut request);
            Failed::Unsent(Box::new(request))
        }
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
    /// (RFC 9110, section 9.2.2) and nothing came back. Tells `slot` before anything is sent, and leaves an empty request.
    pub(crate) async fn run(
        &self,
        request: &mut Request<RequestBody>,
        slot: &HeldSlot,
    ) -> Result<Answered, Fault> {
        let key = |index| (self.upstream.id, index);
        let mut order = self.upstream.order();
        let first = order.next().unwrap_or_default();
        if self.connection_use == ConnectionUse::Requests
            && let Some(connection) = self.pool.take(key(first))
        {
            let again = self.again(request);
            slot.sent();
            match self.send(connection, first, request).await {
                Ok(answered) => return Ok(answered),
                Err(Failed::Unsent(unsent)) => *request = *unsent,
                Err(Failed::TooSlow) => return Err(self.too_slow()),
                Err(Failed::Sent(error)) => {
                    let is_closed =
                        error.is_incomplete_message() || error.is_closed() || is_reset(&error);
                    *request = match again.filter(|_| is_closed) {
                        Some(again) => again.request(),
                        None => return Err(self.broken(&error)),
                    };
                }
            }
            self.upstream.counts.record_retry();
        }
        let order = std::iter::once(first).chain(order);
        // Boxed: a handshake takes twice as much memory as all the rest of a request, and most
        // requests find a kept connection.
        let (connection, index) = Box::pin(self.connect(order)).await?;
        slot.sent();
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
        request: &mut Request<RequestBody>,
    ) -> Result<Answered, Failed> {
        // Moved once, to where it is sent from: a request is large.
        let mut request = std::mem::replace(request, Request::new(RequestBody::none()));
        match connection {
            Connection::Http1(mut lease) => {
                if self.progress.is_some() {
                    head::frame_http1(request.headers_mut());
                }
                let sent = pin!(lease.sender.try_send_request(request));
                let answer = self.in_time(sent).await?.map_err(failed)?;
                // What was to be upgraded may speak another protocol than the upstream's requests.
                let is_for_requests = self.connection_use == ConnectionUse::Requests;
                Ok((answer, Some(lease).filter(|_| is_for_requests)))
            }
            Connection::Http2(mut sender) => {
                let (mut parts, body) = request.into_parts();
                head::as_http2(&mut parts, self.upstream, index);
                let sent = pin!(sender.try_send_request(Request::from_parts(parts, body)));
                let answer = self.in_time(sent).await?.map_err(failed)?;
                Ok((answer, None))
            }
        }
    }

    /// Waits for an answer to begin. As long as the body is on its way, only pauses count.
    // The answer stays where it is: it has room for the request, in case that cannot be sent.
    async fn in_time<T>(&self, mut answer: Pin<&mut impl Future<Output = T>>) -> Result<T, Failed> {
        let patience = self.upstream.response_timeout;
        let mut left = patience;
        while !left.is_zero() {
            if let Ok(answer) = timeout(left, answer.as_mut()).await {
                return Ok(answer);
            }
            let frame = self.progress.as_ref().and_then(|it| it.last_frame());
            let paused = frame.map_or(patience, |frame| frame.elapsed());
            left = patience.saturating_sub(paused);
        }
        Err(Failed::TooSlow)
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

#[cfg(test)]
mod tests;
