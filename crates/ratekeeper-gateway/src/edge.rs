//! The outermost service: admits well-formed requests, counts answers, and logs them once they have
//! been sent.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Method, Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use ratekeeper_server::{Fault as BoxError, Peer};
use ratekeeper_tower::{Arrival, CallerSlot, SpentSlot};
use ratekeeper_trace::{RequestSpan, SpanValue};
use tower::Service;

use crate::body::{AnswerBody, ProxyBody, RequestBody};
use crate::denials::MadeId;
use crate::head::admit;
use crate::log::Entry;
use crate::media_type::is_grpc;
use crate::peek::Peek;
use crate::shared::Shared;

/// Passes requests on to the inner service `S`, and answers malformed ones itself.
#[derive(Clone, Debug)]
pub struct Edge<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Edge<S> {
    pub(crate) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S> Edge<S> {
    /// Begins the log entry of `request`, whose caller and id are to be in it.
    fn begin_entry(&self, request: &mut Request<Incoming>) -> Entry {
        let id: Arc<str> = self
            .shared
            .denials
            .request_id(Some(request.headers()))
            .into();
        let (caller, spent) = (CallerSlot::default(), SpentSlot::default());
        let slots = (caller.clone(), spent.clone());
        let entry = Entry::begin(request, &self.shared.forwarding, &id, slots);
        let extensions = request.extensions_mut();
        extensions.insert(MadeId(id));
        extensions.insert(caller);
        extensions.insert(spent);
        entry
    }
}

impl<S, B> Service<Request<Incoming>> for Edge<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible> + Clone,
    B: AnswerBody,
{
    type Response = Response<EdgeBody<B>>;
    type Error = Infallible;
    type Future = Answering<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Incoming>) -> Self::Future {
        let is_logged = self.shared.log.is_some();
        let logged = is_logged.then(|| Logged {
            entry: Box::new(self.begin_entry(&mut request)),
            shared: Arc::clone(&self.shared),
        });
        let shared = Arc::clone(&self.shared);
        let mut request = with_bounds(request, &shared);
        let span = trace(&shared, &mut request);
        let mut answering = Answering {
            peeking: None,
            inner: None,
            refusal: None,
            logged,
            span,
            shared,
        };
        let admitted = admit(&request);
        if admitted.is_ok()
            && let Some(usage) = answering.shared.routes.load().usage(&request)
        {
            request.extensions_mut().insert(usage);
        }
        if let Err(fault) = admitted {
            answering.refusal = Some(Box::new(fault.response(is_grpc(request.headers()))));
        } else if let Some(peek) = peek(&answering.shared, &mut request) {
            let clone = self.inner.clone();
            // Its client waits from now, however long its body takes.
            request.extensions_mut().insert(Arrival::now());
            answering.peeking = Some(Box::new(Peeking {
                // The one that is ready.
                service: std::mem::replace(&mut self.inner, clone),
                request,
                peek,
            }));
        } else {
            answering.inner = Some(self.inner.call(request));
        }
        answering
    }
}

/// Has the body of a request pass within the gateway's bounds.
fn with_bounds(request: Request<Incoming>, shared: &Shared) -> Request<RequestBody> {
    let client_header = &shared.forwarding.client_header;
    RequestBody::of(
        request,
        shared.body_bytes_max,
        shared.patience,
        client_header,
    )
}

/// Begins to read the body of a request, if its decision needs a part of it.
fn peek(shared: &Shared, request: &mut Request<RequestBody>) -> Option<Peek> {
    let mode = shared.limits.mode();
    shared.body_needs.peek(request, mode, |request| {
        let peer = request.extensions().get::<Peer>();
        shared.inbound(peer).client(request.headers())
    })
}

/// Begins the span of a request that is traced, and tells its upstream of it.
fn trace(shared: &Shared, request: &mut Request<RequestBody>) -> Option<Arc<RequestSpan>> {
    let tracer = shared.tracer.as_ref()?;
    let span = tracer.request(request.headers(), name(request.method()))?;
    let method = SpanValue::text(request.method().as_str());
    span.record("http.request.method", method);
    // Without the query, which holds secrets more often than the path does.
    span.record("url.path", SpanValue::text(request.uri().path()));
    span.pass_on(request.headers_mut());
    let span = Arc::new(span);
    request.extensions_mut().insert(Arc::clone(&span));
    Some(span)
}

/// The name of a request's span: its method, if that is one of the standard's.
fn name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        Method::PATCH => "PATCH",
        _ => "HTTP",
    }
}

/// A request whose body is read before the inner service is called.
struct Peeking<S> {
    service: S,
    request: Request<RequestBody>,
    peek: Peek,
}

pin_project! {
    /// An answer on its way.
    pub struct Answering<S>
    where
        S: Service<Request<RequestBody>>,
    {
        // None once the inner service is called. Boxed, here and below: what few requests need is not to be moved with all.
        peeking: Option<Box<Peeking<S>>>,
        // None for a malformed request.
        #[pin]
        inner: Option<S::Future>,
        refusal: Option<Box<Response<ProxyBody>>>,
        // Behind the inner service: dropped with it, what that tells the log is there.
        logged: Option<Logged>,
        span: Option<Arc<RequestSpan>>,
        shared: Arc<Shared>,
    }
}

impl<S: Service<Request<RequestBody>>> fmt::Debug for Answering<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answering").finish_non_exhaustive()
    }
}

impl<S, B> Future for Answering<S>
where
    S: Service<Request<RequestBody>, Response = Response<B>, Error = Infallible>,
    B: AnswerBody,
{
    type Output = Result<Response<EdgeBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(peeking) = this.peeking {
            let read = ready!(peeking.peek.poll(&mut peeking.request, cx));
            if let Some(read_by) = this.peeking.take() {
                let mut read_by = *read_by;
                match read {
                    Ok(()) => this.inner.set(Some(read_by.service.call(read_by.request))),
                    Err(fault) => {
                        let is_grpc = is_grpc(read_by.request.headers());
                        *this.refusal = Some(Box::new(fault.response(is_grpc)));
                    }
                }
            }
        }
        let answer = match this.inner.as_pin_mut() {
            Some(inner) => match ready!(inner.poll(cx)) {
                Ok(answer) => answer.map(|body| Kind::Inner { body }),
                Err(never) => match never {},
            },
            None => {
                let refusal = this.refusal.take();
                let refusal = refusal.expect("a future is not polled after it was ready");
                (*refusal).map(|body| Kind::Refusal { body })
            }
        };
        let upstream = match answer.body() {
            Kind::Inner { body } => body.upstream(),
            Kind::Refusal { .. } => None,
        };
        let counts = upstream.map_or(&this.shared.own, |upstream| &upstream.counts);
        counts.record_answer(answer.status().as_u16());
        let mut logged = this.logged.take();
        if let Some(logged) = &mut logged {
            logged.entry.record_answer(&answer, upstream);
        }
        let span = this.span.take();
        if let Some(span) = &span {
            span.record_status(answer.status());
        }
        Poll::Ready(Ok(answer.map(|kind| EdgeBody { kind, logged, span })))
    }
}

pin_project! {
    /// The body of an answer, which is logged once it has ended.
    #[derive(Debug)]
    pub struct EdgeBody<B> {
        #[pin]
        kind: Kind<B>,
        logged: Option<Logged>,
        // It ends with the body.
        span: Option<Arc<RequestSpan>>,
    }
}

pin_project! {
    #[project = KindNow]
    #[derive(Debug)]
    enum Kind<B> {
        Inner { #[pin] body: B },
        Refusal { #[pin] body: ProxyBody },
    }
}

/// The log entry of a request, written once nothing of its answer is left to send, or nobody to send it to.
#[derive(Debug)]
struct Logged {
    entry: Box<Entry>,
    shared: Arc<Shared>,
}

impl Drop for Logged {
    fn drop(&mut self) {
        if let Some(log) = &self.shared.log {
            log.write(&self.entry);
        }
    }
}

impl<B> Body for EdgeBody<B>
where
    B: Body<Data = Bytes, Error = BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        let frame = ready!(match this.kind.project() {
            KindNow::Inner { body } => body.poll_frame(cx),
            KindNow::Refusal { body } => body.poll_frame(cx),
        });
        if let (Some(logged), Some(Ok(frame))) = (this.logged, &frame)
            && let Some(data) = frame.data_ref()
        {
            logged.entry.record_bytes(data.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body } => body.is_end_stream(),
            Kind::Refusal { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body } => body.size_hint(),
            Kind::Refusal { body } => body.size_hint(),
        }
    }
}
