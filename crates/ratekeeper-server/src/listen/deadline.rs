//! Bounds how long one request may take.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use http::{HeaderMap, Request, Response, StatusCode};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};

use super::{Answer, Protocol};
use crate::drain::Drain;

/// Answers "too late" itself when the service within takes longer than allowed, and tells
/// HTTP/1 clients to come back on another connection once the server is on its way out.
#[derive(Clone)]
pub(super) struct Deadline<S> {
    service: S,
    protocol: Protocol,
    timeout: Duration,
    drain: Arc<Drain>,
}

impl<S> Deadline<S> {
    pub(super) const fn new(
        service: S,
        protocol: Protocol,
        timeout: Duration,
        drain: Arc<Drain>,
    ) -> Self {
        Self {
            service,
            protocol,
            timeout,
            drain,
        }
    }
}

impl<S: Answer> hyper::service::Service<Request<Incoming>> for Deadline<S> {
    type Response = Response<MaybeBody<S::Body>>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Answering {
            // Every service here is always ready: none of them keeps a queue.
            inner: self.service.clone().call(request),
            sleep: None,
            protocol: self.protocol,
            timeout: self.timeout,
            drain: Arc::clone(&self.drain),
        }
    }
}

pin_project! {
    /// An answer on its way.
    pub(super) struct Answering<F> {
        #[pin]
        inner: F,
        // Made only when the answer does not come at once, which it does nearly always:
        // a timer costs more than a decision.
        #[pin]
        sleep: Option<Sleep>,
        protocol: Protocol,
        timeout: Duration,
        drain: Arc<Drain>,
    }
}

impl<B, F> Future for Answering<F>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<MaybeBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let mut response = match this.inner.poll(cx) {
            Poll::Ready(Ok(response)) => response.map(|body| MaybeBody { body: Some(body) }),
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => {
                if this.sleep.is_none() {
                    this.sleep.set(Some(sleep(*this.timeout)));
                }
                let late = this
                    .sleep
                    .as_pin_mut()
                    .is_some_and(|sleep| sleep.poll(cx).is_ready());
                if !late {
                    return Poll::Pending;
                }
                too_late(*this.protocol)
            }
        };
        if *this.protocol == Protocol::Http1 && this.drain.has_begun() {
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Poll::Ready(Ok(response))
    }
}

fn too_late<B>(protocol: Protocol) -> Response<MaybeBody<B>> {
    let mut response = Response::new(MaybeBody { body: None });
    match protocol {
        Protocol::Http1 => {
            *response.status_mut() = StatusCode::REQUEST_TIMEOUT;
            // Half of the request may still be in the pipe.
            response
                .headers_mut()
                .insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Protocol::Http2 => deadline_exceeded(response.headers_mut()),
    }
    response
}

fn deadline_exceeded(headers: &mut HeaderMap) {
    headers.insert(
        http::header::CONTENT_TYPE,
        HeaderValue::from_static("application/grpc"),
    );
    // DEADLINE_EXCEEDED
    headers.insert("grpc-status", HeaderValue::from_static("4"));
    headers.insert(
        "grpc-message",
        HeaderValue::from_static("the request took too long"),
    );
}

pin_project! {
    /// The service's body, or none.
    pub(super) struct MaybeBody<B> {
        #[pin]
        body: Option<B>,
    }
}

impl<B: Body> Body for MaybeBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match self.project().body.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
