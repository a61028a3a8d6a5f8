//! One request to an upstream, and its answer.

mod failed;

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, Method, Request, Response, Uri, Version};
use hyper::body::Incoming;
use tokio::time::timeout;

use self::failed::{Failed, failed, innermost, is_over};
use crate::body::{BodyCopy, HeldSlot, Progress, RequestBody};
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

/// The most that a request is sent again, over all reasons to: a connection that was kept may be over, and the next one
/// too busy.
const REPEATS_MAX: u32 = 2;

/// The most addresses that a request waits for in vain, `connect_timeout` each.
const SILENT_MAX: u32 = 2;

/// An answer, and its part in the connection that it comes on, if that may serve another request.
pub(crate) type Answered = (Response<Incoming>, Option<Lease>);

/// The parts of a request that are needed to send it again.
struct Again {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    copy: Option<BodyCopy>,
}

impl Again {
    /// The parts of `request`, the body of which is copied from here on.
    fn of(request: &mut Request<RequestBody>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
            copy: request.body_mut().copy(),
        }
    }

    /// The request, unless not all of its body is there.
    fn request(self) -> Option<Request<RequestBody>> {
        let body = match self.copy {
            Some(copy) => copy.into_body()?,
            None => RequestBody::none(),
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.headers;
        Some(request)
    }
}

impl Exchange<'_> {
    /// Sends the request on a kept connection, or on a new one. It is sent again, on another, provided the upstream has not
    /// looked at it, or the kept connection turns out to be closed, the request is idempotent (RFC 9110, section 9.2.2) and
    /// nothing came back. Tells `slot` before anything is sent, and leaves an empty request.
    pub(crate) async fn run(
        &self,
        request: &mut Request<RequestBody>,
        slot: &HeldSlot,
    ) -> Result<Answered, Fault> {
        let order = self.upstream.order();
        let first = order.clone().next().unwrap_or_default();
        let mut kept = match self.connection_use {
            ConnectionUse::Requests => self.pool.take((self.upstream.id, first)),
            ConnectionUse::Upgrade => None,
        };
        let mut left = REPEATS_MAX;
        loop {
            let is_kept = kept.is_some();
            let (connection, index) = match kept.take() {
                Some(connection) => (connection, first),
                // Boxed: a handshake takes twice as much memory as all the rest of a request, and most
                // requests find a kept connection.
                None => Box::pin(self.connect(order.clone())).await?,
            };
            let is_shared = matches!(connection, Connection::Http2(_));
            let again = self.again(&connection, is_kept, request);
            slot.sent();
            let failed = match self.send(connection, index, request).await {
                Ok(answered) => return Ok(answered),
                Err(failed) => failed,
            };
            // A new connection is not over before the first request, unless that came late to share it.
            let is_late = is_shared && !matches!(failed, Failed::Sent(_));
            let may_be_over = left > 0 && (is_kept || is_late);
            *request = self.next(failed, again, may_be_over)?;
            left -= 1;
            self.upstream.counts.record_retry();
        }
    }

    /// The request to be sent next, on another connection, where one has failed.
    fn next(
        &self,
        failed: Failed,
        again: Option<Again>,
        may_be_over: bool,
    ) -> Result<Request<RequestBody>, Fault> {
        let again = again.filter(|_| may_be_over);
        let (error, again) = match failed {
            Failed::TooSlow => return Err(self.too_slow()),
            Failed::Unsent(unsent) if may_be_over => return Ok(*unsent),
            Failed::Unsent(_) => return Err(self.broken_by("it closed the connection")),
            Failed::Unseen(error) => (error, again),
            Failed::Sent(error) => {
                let is_repeatable = |again: &Again| self.is_repeatable(&again.method);
                let again = again.filter(|again| is_over(&error) && is_repeatable(again));
                (error, again)
            }
        };
        let next = again.and_then(Again::request);
        next.ok_or_else(|| self.broken(&error))
    }

    /// Opens a new connection, or shares one, to the first address of `order` that can be reached. Stops after [`SILENT_MAX`]
    /// that do not answer: the rest are most likely behind the same fault.
    async fn connect(
        &self,
        order: impl Iterator<Item = usize>,
    ) -> Result<(Connection, usize), Fault> {
        let upstream = || self.upstream.name.clone();
        let mut last = None;
        let mut silent = 0;
        for index in order {
            match connect(self.upstream, index, self.pool, self.connection_use).await {
                Ok(connection) => return Ok((connection, index)),
                Err(error) => {
                    silent += u32::from(matches!(error, ConnectError::TooSlow));
                    last = Some(error);
                }
            }
            if silent == SILENT_MAX {
                break;
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
                let lease = Some(Lease::Http1(lease)).filter(|_| is_for_requests);
                Ok((answer, lease))
            }
            Connection::Http2(mut shared) => {
                let (mut parts, body) = request.into_parts();
                head::as_http2(&mut parts, self.upstream, index);
                let request = Request::from_parts(parts, body);
                let sent = pin!(shared.sender.try_send_request(request));
                let answer = self.in_time(sent).await?.map_err(failed);
                if let Err(failed) = &answer
                    && failed.is_of_connection()
                {
                    self.pool.forget((self.upstream.id, index), &shared);
                }
                let _stream = shared.into_stream();
                Ok((answer?, Some(Lease::Http2 { _stream })))
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

    /// The parts needed to send it once more. Over HTTP/1 only one that is idempotent and has no body is, and on a kept
    /// connection.
    fn again(
        &self,
        connection: &Connection,
        is_kept: bool,
        request: &mut Request<RequestBody>,
    ) -> Option<Again> {
        let may_repeat = match connection {
            Connection::Http1(_) => is_kept && self.is_repeatable(request.method()),
            Connection::Http2(_) => self.connection_use == ConnectionUse::Requests,
        };
        may_repeat.then(|| Again::of(request))
    }

    /// Returns true if the request does no harm when it is carried out twice.
    fn is_repeatable(&self, method: &Method) -> bool {
        method.is_idempotent() && self.progress.is_none()
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
