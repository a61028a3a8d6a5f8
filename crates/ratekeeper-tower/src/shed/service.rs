//! The service and its future.

use std::future::Future;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, UPGRADE};
use http::{Method, Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use ratekeeper_http::answer::BodyForm;
use ratekeeper_rules::RuleSet;
use ratekeeper_shed::Ending;
use tower_service::Service;

use super::layer::Shared;
use super::upload::{Upload, UploadBody};
use super::{Arrival, InFlight, LoadSign, Passage, Shed, ShedContext};
use crate::asked::original;
use crate::body::ResponseBody;

/// A service behind shedders, made by a [`ShedLayer`](crate::ShedLayer).
#[derive(Clone, Debug)]
pub struct ShedService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> ShedService<S> {
    pub(super) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }

    /// The context that a layer outside has put into `request`, or one by the layer's own rules. None if nothing is
    /// to be shed, or if the request makes no sense: then that is for others to say.
    fn context<B>(&self, request: &mut Request<B>) -> Option<ShedContext> {
        if let Some(context) = request.extensions_mut().remove::<ShedContext>() {
            return Some(context);
        }
        let shared = &self.shared;
        let rules = Arc::clone(&shared.rules.read());
        if !rules.is_in_use() {
            return None;
        }
        let peer = (shared.peer)(request.extensions());
        // No shedder goes by the scheme.
        let original = original(request, peer, "http", &shared.forwarding).ok()?;
        let caller = shared.describer.caller(&original, &RuleSet::default()).ok();
        let name = caller.as_ref().map(|caller| (caller.key, &*caller.name));
        let tenant = shared.hasher.hash_one(name);
        let arrival = Arrival::of(request.extensions());
        Some(ShedContext::new(rules, &original, arrival, tenant, None))
    }
}

impl<S, B, R> Service<Request<B>> for ShedService<S>
where
    S: Service<Request<UploadBody<B>>, Response = Response<R>>,
    B: Body,
    R: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<R, InFlight>>;
    type Error = S::Error;
    type Future = ShedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let Some(context) = self.context(&mut request) else {
            let request = request.map(|body| UploadBody::new(body, None));
            return ShedFuture::passed(self.inner.call(request), None);
        };
        let Shared { shedder, site, .. } = &*self.shared;
        match shedder.admit(site, &context) {
            Ok(passage) => {
                let passed = Passed::new(passage, &request);
                let upload = passed.upload.clone();
                let request = request.map(|body| UploadBody::new(body, upload));
                ShedFuture::passed(self.inner.call(request), Some(passed))
            }
            Err(shed) => ShedFuture::shed(shed, &request),
        }
    }
}

/// A sign of load, from an ending.
type SignOf = fn(Ending) -> LoadSign;

/// The sign of load at the end of `request`: none for an upgrade, and none with a time for a call that may stream.
fn sign_of<B>(request: &Request<B>) -> Option<SignOf> {
    let kind = request.headers().get(CONTENT_TYPE);
    let is_grpc = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let is_upgrade = request.headers().contains_key(UPGRADE) || request.method() == Method::CONNECT;
    match (is_upgrade, is_grpc) {
        (true, _) => None,
        (false, true) => Some(LoadSign::Untimed),
        (false, false) => Some(LoadSign::RoundTrip),
    }
}

/// A request that was not shed.
#[derive(Debug)]
struct Passed {
    /// None once it is answered.
    passage: Option<Passage>,
    /// None if the end says nothing about load.
    sign: Option<SignOf>,
    /// None if there is no body to wait for, or no time to measure.
    upload: Option<Arc<Upload>>,
}

pin_project! {
    /// The response of a [`ShedService`].
    #[derive(Debug)]
    pub struct ShedFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateNow]
    #[derive(Debug)]
    enum State<F> {
        Passed { #[pin] inner: F, passed: Option<Passed> },
        Shed { response: Option<Response<Bytes>> },
    }
}

impl<F> ShedFuture<F> {
    const fn passed(inner: F, passed: Option<Passed>) -> Self {
        Self {
            state: State::Passed { inner, passed },
        }
    }

    fn shed<B>(shed: Shed, request: &Request<B>) -> Self {
        let response = Some(shed.response(request.headers(), BodyForm::default()));
        Self {
            state: State::Shed { response },
        }
    }
}

impl<F, R, E> Future for ShedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<R, InFlight>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateNow::Passed { inner, passed } => {
                let answer = ready!(inner.poll(cx));
                let in_flight = passed.take().and_then(|it| it.answered(&answer));
                Poll::Ready(
                    answer.map(|answer| {
                        answer.map(|body| ResponseBody::inner(body, in_flight, None))
                    }),
                )
            }
            StateNow::Shed { response } => {
                let response = response.take();
                let response = response.expect("a future is not polled after it was ready");
                Poll::Ready(Ok(response.map(ResponseBody::refusal)))
            }
        }
    }
}

impl Passed {
    fn new<B: Body>(mut passage: Passage, request: &Request<B>) -> Self {
        let sign = sign_of(request);
        let is_timed =
            sign.is_some_and(|sign| matches!(sign(Ending::Answered), LoadSign::RoundTrip(_)));
        if !is_timed {
            passage.begun(None);
        }
        let has_body = !request.body().is_end_stream();
        Self {
            passage: Some(passage),
            sign,
            upload: (is_timed && has_body).then(Upload::begin),
        }
    }

    /// The passage, which `began` then by its body.
    fn take(&mut self, began: fn(&Upload) -> Option<Instant>) -> Option<Passage> {
        let mut passage = self.passage.take()?;
        if let Some(upload) = &self.upload {
            passage.begun(began(upload));
        }
        Some(passage)
    }

    fn answered<R, E>(mut self, answer: &Result<Response<R>, E>) -> Option<InFlight> {
        let ending = match answer {
            Ok(answer) => LoadSign::ending(answer.status(), answer.headers()),
            Err(_) => Ending::Dropped,
        };
        let passage = self.take(match ending {
            // A service that is full refuses a request before it has all of it, and often before it has any.
            Ending::Dropped => Upload::refused,
            _ => Upload::arrived,
        })?;
        Some(passage.answered(self.sign.map(|sign| sign(ending))))
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        if let Some(mut passage) = self.take(Upload::arrived) {
            passage.given_up();
        }
    }
}
