//! Bounds one request in size and time, and tells who sent it.

use std::borrow::BorrowMut;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::body::AnswerBody;
use super::framing::FramedTwice;
use super::line::{Line, UnderWay};
use super::refusal::Refusal;
use super::service::{HttpService, Protocol};

/// Refuses a request that is too large, answers "too late" itself when the inner service takes
/// longer than allowed or than the client waits, and tells HTTP/1 clients to reconnect once the
/// server is shutting down. The inner service finds the [`Peer`](super::Peer) among a request's
/// extensions.
pub(super) struct Bounded<S> {
    service: S,
    line: Arc<Line>,
}

impl<S> Bounded<S> {
    pub(super) const fn new(service: S, line: Arc<Line>) -> Self {
        Self { service, line }
    }
}

impl<S: HttpService> hyper::service::Service<Request<Incoming>> for Bounded<S> {
    type Response = Response<AnswerBody<S::Body>>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        // Every service here is always ready: none of them keeps a queue.
        self.begin(request, |service, request| service.clone().call(request))
    }
}

impl<S> Bounded<S> {
    /// Begins a request that `call` has the service answer.
    pub(super) fn begin<'a, B, R, F>(
        &'a self,
        mut asked: R,
        call: impl FnOnce(&'a S, R) -> F,
    ) -> Answering<F>
    where
        R: BorrowMut<Request<B>>,
    {
        let request = asked.borrow_mut();
        let refusal = Refusal::of_head(request, &self.line);
        let protocol = spoken(request, &self.line);
        if protocol != Protocol::Http1 && !self.line.is_http2() {
            self.line.mark_http2();
        }
        let time = time_allowed(request.headers(), protocol, &self.line);
        if self.line.framed_twice() == Some(self.line.requests().next()) {
            request.extensions_mut().insert(FramedTwice);
        }
        let under_way = Some(UnderWay::begin(&self.line));
        match (refusal, time) {
            (None, Ok(allowed)) => {
                if !(self.line.is_blind)(request.uri().path()) {
                    request.extensions_mut().insert(self.line.peer.clone());
                }
                Answering {
                    inner: Some(call(&self.service, asked)),
                    sleep: None,
                    allowed,
                    refusal: Refusal::TooLate,
                    protocol,
                    under_way,
                }
            }
            (Some(refusal), _) | (None, Err(refusal)) => Answering {
                inner: None,
                sleep: None,
                allowed: None,
                refusal,
                protocol,
                under_way,
            },
        }
    }
}

/// The protocol of this request. A gateway never serves our gRPC, so there it is HTTP/1 or
/// [`Protocol::Either`].
fn spoken<B>(request: &Request<B>, line: &Line) -> Protocol {
    match line.protocol {
        Protocol::Either if request.version() < Version::HTTP_2 => Protocol::Http1,
        protocol => protocol,
    }
}

static GRPC_TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The time that the request may take: the limit for any request, or its client's deadline if that
/// is sooner. A gateway keeps the time itself: only it knows which upstream it waits for.
fn time_allowed(
    headers: &HeaderMap,
    protocol: Protocol,
    line: &Line,
) -> Result<Option<Duration>, Refusal> {
    let longest = line.bounds.request_timeout;
    if line.protocol == Protocol::Either {
        return Ok(None);
    }
    if protocol == Protocol::Http1 {
        return Ok(Some(longest));
    }
    let Some(timeout) = headers.get(&GRPC_TIMEOUT) else {
        return Ok(Some(longest));
    };
    match grpc_timeout(timeout.as_bytes()) {
        None => Err(Refusal::BadTimeout),
        // It has passed already: nothing is decided, so nothing is charged.
        Some(Duration::ZERO) => Err(Refusal::TooLate),
        Some(timeout) => Ok(Some(longest.min(timeout))),
    }
}

/// The gRPC protocol's TimeoutValue (1 to 8 digits) and TimeoutUnit.
fn grpc_timeout(text: &[u8]) -> Option<Duration> {
    let (unit, digits) = text.split_last()?;
    if digits.is_empty() || digits.len() > 8 {
        return None;
    }
    let value = digits.iter().try_fold(0_u64, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        Some(value * 10 + digit)
    })?;
    match unit {
        b'H' => Some(Duration::from_secs(value * 3_600)),
        b'M' => Some(Duration::from_secs(value * 60)),
        b'S' => Some(Duration::from_secs(value)),
        b'm' => Some(Duration::from_millis(value)),
        b'u' => Some(Duration::from_micros(value)),
        b'n' => Some(Duration::from_nanos(value)),
        _ => None,
    }
}

pin_project! {
    /// An answer on its way, or the refusal.
    pub(super) struct Answering<F> {
        // None where the request is refused unheard.
        #[pin]
        inner: Option<F>,
        // Begins when the answer is not there at once, which is rare.
        #[pin]
        sleep: Option<Sleep>,
        allowed: Option<Duration>,
        refusal: Refusal,
        protocol: Protocol,
        // There until the answer is.
        under_way: Option<UnderWay>,
    }
}

impl<F, B> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<AnswerBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let answer = match this.inner.as_pin_mut() {
            None => None,
            Some(inner) => match inner.poll(cx) {
                Poll::Ready(Ok(answer)) => Some(answer),
                Poll::Ready(Err(never)) => match never {},
                Poll::Pending => {
                    let Some(allowed) = *this.allowed else {
                        return Poll::Pending;
                    };
                    if this.sleep.is_none() {
                        this.sleep.set(Some(sleep(allowed)));
                    }
                    let sleep = this.sleep.as_pin_mut();
                    if !sleep.is_some_and(|sleep| sleep.poll(cx).is_ready()) {
                        return Poll::Pending;
                    }
                    None
                }
            },
        };
        let under_way = this.under_way.take();
        Poll::Ready(Ok(finish(answer, *this.refusal, *this.protocol, under_way)))
    }
}

/// The service's answer, or the refusal where there is none.
fn finish<B>(
    answer: Option<Response<B>>,
    refusal: Refusal,
    protocol: Protocol,
    under_way: Option<UnderWay>,
) -> Response<AnswerBody<B>> {
    let line = under_way.as_ref().map(UnderWay::line);
    let status = answer.as_ref().map(Response::status);
    let is_switch = status == Some(StatusCode::SWITCHING_PROTOCOLS);
    let is_draining = line.is_some_and(|line| line.drain.has_begun());
    // No request follows a switch, and its handshake needs the header.
    let is_last = protocol == Protocol::Http1 && is_draining && !is_switch;
    if let Some(line) = line.filter(|_| is_switch) {
        line.mark_switch();
    }
    let mut answer = match answer {
        Some(answer) => answer.map(|body| AnswerBody::of_service(body, under_way)),
        None => refusal.response(protocol).map(AnswerBody::of_text),
    };
    if is_last {
        let close = HeaderValue::from_static("close");
        answer.headers_mut().insert(CONNECTION, close);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::ServerBounds;
    use crate::listen::drain::Drain;
    use crate::listen::{Peer, PeerAddress};

    #[test]
    fn an_answer_that_changes_protocols_is_noticed() {
        for (status, has_switched) in [(200, false), (101, true)] {
            let peer = Peer::unnamed(PeerAddress::Unix, true);
            let (bounds, drain) = (ServerBounds::default(), Arc::new(Drain::new()));
            let line = Arc::new(Line::new(peer, Protocol::Either, bounds, drain, |_| false));
            let mut answer = Response::new(());
            *answer.status_mut() = StatusCode::from_u16(status).expect("it is one");
            let under_way = Some(UnderWay::begin(&line));
            finish(Some(answer), Refusal::TooLate, Protocol::Http1, under_way);
            assert_eq!(line.has_switched(), has_switched);
        }
    }

    #[test]
    fn the_last_answer_says_so_unless_it_changes_protocols() {
        for (status, expected) in [(200, "close"), (101, "upgrade")] {
            let peer = Peer::unnamed(PeerAddress::Unix, true);
            let (bounds, drain) = (ServerBounds::default(), Arc::new(Drain::new()));
            drain.begin();
            let line = Arc::new(Line::new(peer, Protocol::Either, bounds, drain, |_| false));
            let answer = Response::builder().status(status);
            let answer = answer.header(CONNECTION, "upgrade").body(());
            let answer = Some(answer.expect("an answer"));
            let under_way = Some(UnderWay::begin(&line));
            let last = finish(answer, Refusal::TooLate, Protocol::Http1, under_way);
            assert_eq!(last.headers()[CONNECTION], expected);
        }
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3_600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("20m", Duration::from_millis(20)),
            ("99999999u", Duration::from_micros(99_999_999)),
            ("0n", Duration::ZERO),
            ("99999999H", Duration::from_secs(99_999_999 * 3_600)),
        ] {
            assert_eq!(grpc_timeout(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [
            "",
            "m",
            "1",
            "123456789m",
            "-1S",
            "1.5S",
            "1s",
            " 1S",
            "1S ",
        ] {
            assert_eq!(grpc_timeout(text.as_bytes()), None, "{text}");
        }
    }
}
