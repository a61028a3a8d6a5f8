//! The proxy: from a request that may pass to its upstream's answer.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Body as _;
use ratekeeper_server::Peer;
use ratekeeper_tower::{
    BodyForm, Ending, Hold, LoadSign, Passage, Shed, ShedContext, UsageReading,
};
use ratekeeper_trace::RequestSpan;
use tower::Service;

use crate::body::{Finish, HeldSlot, ProxyBody, RequestBody, SlotAndPermits};
use crate::connect::ConnectionUse;
use crate::connect::Pool;
use crate::exchange::{Answered, Exchange};
use crate::fault::Fault;
use crate::head;
use crate::media_type::{is_endless, is_grpc, is_stream};
use crate::routes::{OnClientGone, Route};
use crate::shared::Shared;
use crate::upgrade::Upgrade;
use crate::upstream::{NoSlot, RequestSlot, Upstream, WaitOrder};

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
    type Future = ForwardFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let route = self.route(&request);
        let hold = request.extensions_mut().remove::<Hold>();
        let usage = request.extensions_mut().remove::<UsageReading>();
        let finishing = match &route {
            Ok(route) if route.on_client_gone(hold.is_some()) == OnClientGone::Finish => {
                let is_sent = Arc::default();
                Some((Arc::clone(route), Finish { is_sent, usage }))
            }
            _ => None,
        };
        let finish = finishing.as_ref().map(|(_, finish)| finish.clone());
        let proxy = self.clone();
        let running = Box::pin(async move {
            let is_grpc = is_grpc(request.headers());
            let answer = match route {
                Ok(route) => proxy.forward(&mut request, &route, (hold, finish)).await,
                Err(fault) => Err(fault),
            };
            Ok(answer.unwrap_or_else(|fault| fault.response(is_grpc)))
        });
        ForwardFuture {
            running: Some(running),
            finishing,
        }
    }
}

// One allocation per request: the futures of hyper's connections have no name.
type Running = Pin<Box<dyn Future<Output = Result<Response<ProxyBody>, Infallible>> + Send>>;

/// The future of an upstream's answer. If its client goes away, it goes on by itself where its route says so.
pub struct ForwardFuture {
    /// None once it is ready.
    running: Option<Running>,
    /// Finishes the exchange if its client goes away, once its request is being sent; None if it ends with its client.
    finishing: Option<(Arc<Route>, Finish)>,
}

impl fmt::Debug for ForwardFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardFuture").finish_non_exhaustive()
    }
}

impl Future for ForwardFuture {
    type Output = Result<Response<ProxyBody>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        const ONCE: &str = "a future is not polled after it was ready";
        let answer = ready!(self.running.as_mut().expect(ONCE).as_mut().poll(cx));
        self.running = None;
        Poll::Ready(answer)
    }
}

impl Drop for ForwardFuture {
    fn drop(&mut self) {
        // Relaxed: the flag is set while this is polled.
        let Some((running, (route, finish))) = self.running.take().zip(self.finishing.take())
        else {
            return;
        };
        if finish.is_sent.load(Ordering::Relaxed) {
            route.upstream.abandoned.go_on(async move {
                let Ok(answer) = running.await;
                if let Some(usage) = finish.usage {
                    usage.head(answer.status(), answer.headers());
                }
                // The answer's body goes on in the same way when it is dropped.
                drop(answer);
            });
        }
    }
}

/// The upstream's part of a request that is traced. It is recorded when this is dropped, also with a client that goes
/// away: the upstream was told of it, and its own spans name it as their parent.
struct UpstreamSpan<'a> {
    span: Arc<RequestSpan>,
    upstream: &'a Upstream,
    begun: Instant,
    slot: &'a HeldSlot,
    /// The status of its answer; None while there is none.
    status: Option<StatusCode>,
    /// True once there is an answer, or will be none.
    is_over: bool,
}

impl Drop for UpstreamSpan<'_> {
    fn drop(&mut self) {
        if self.is_over || self.slot.is_sent() {
            let Self { span, upstream, .. } = self;
            span.upstream(&upstream.name, self.begun, self.status);
        }
    }
}

/// A request that is the upstream's.
struct Outbound {
    /// The protocol that its client wants to go on with.
    upgrade: Option<Upgrade>,
    /// The version that its client speaks.
    version: Version,
    /// The address of its client.
    client: Option<IpAddr>,
    span: Option<Arc<RequestSpan>>,
}

impl Proxy {
    async fn forward(
        &self,
        request: &mut Request<RequestBody>,
        route: &Arc<Route>,
        (hold, finish): (Option<Hold>, Option<Finish>),
    ) -> Result<Response<ProxyBody>, Fault> {
        let upstream = Arc::clone(&route.upstream);
        let passage = match self.admit(&upstream, request) {
            Ok(passage) => passage,
            Err(shed) => return Ok(shed.map(ProxyBody::text)),
        };
        let is_stream = is_stream(request.headers());
        let body_bytes_max = self.shared.body_bytes_max;
        if request.body().size_hint().lower() > body_bytes_max {
            return Err(Fault::TooLarge(body_bytes_max));
        }
        let Outbound {
            upgrade,
            version,
            client,
            span,
        } = self.outbound(request, &upstream);
        let exchange = Exchange {
            upstream: &upstream,
            pool: &self.pool,
            progress: request.body().progress(),
            body_bytes_max,
            connection_use: match upgrade {
                Some(_) => ConnectionUse::Upgrade,
                None => ConnectionUse::Requests,
            },
            begun: Instant::now(),
        };
        let (slot, passage) = match slot_of(&upstream, client, passage).await {
            Ok(found) => found,
            Err(shed) => return no_slot(&upstream, shed, request.headers()),
        };
        // The clock is read again only by those that waited.
        let since = match slot.has_waited {
            true => Instant::now(),
            false => exchange.begun,
        };
        let held = SlotAndPermits::new(slot, hold);
        let slot = HeldSlot::new(route, held, since, exchange.progress.as_ref());
        let passage = passage.map(|mut passage| {
            // The time until their answer begins says nothing.
            if is_stream || exchange.connection_use == ConnectionUse::Upgrade {
                passage.begun(None);
            }
            passage
        });
        let mut slot = slot.with(passage, finish);
        let outcome = run(&exchange, request, &slot, span).await;
        let at = outcome.is_ok().then(Instant::now);
        slot.answered(sign(&exchange, is_stream, &outcome), at);
        if let Some(at) = at {
            let took = at.saturating_duration_since(exchange.begun);
            upstream.counts.record_latency(took);
        }
        match outcome {
            Ok(answered) => self.answer(answered, slot, (upgrade, version), upstream),
            Err(fault) => {
                broke_off(&fault, slot, &upstream);
                Err(fault)
            }
        }
    }

    /// Makes the request the upstream's, and tells what its answer needs to know of it.
    fn outbound(&self, request: &mut Request<RequestBody>, upstream: &Upstream) -> Outbound {
        let upgrade = Upgrade::of(request);
        let version = request.version();
        let extensions = request.extensions_mut();
        let peer = extensions.remove::<Peer>();
        let tracer = self.shared.tracer.as_ref();
        let span = tracer.and_then(|_| extensions.remove::<Arc<RequestSpan>>());
        let inbound = self.shared.inbound(peer.as_ref());
        let client = inbound.client(request.headers());
        head::forward(request, upstream, inbound);
        if let Some(upgrade) = &upgrade {
            upgrade.ask(request.headers_mut());
        }
        Outbound {
            upgrade,
            version,
            client,
            span,
        }
    }

    /// The answer for the client, from that of `upstream`.
    fn answer(
        &self,
        (answer, lease): Answered,
        mut slot: HeldSlot,
        (upgrade, version): (Option<Upgrade>, Version),
        upstream: Arc<Upstream>,
    ) -> Result<Response<ProxyBody>, Fault> {
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
            if is_endless(&parts.headers) {
                slot.ends_with_client();
            }
        }
        parts.version = match version {
            Version::HTTP_10 => Version::HTTP_10,
            _ => Version::HTTP_11,
        };
        let lease = lease.filter(|_| begins.is_none());
        let (of_answer, of_tunnel) = match begins {
            None => (Some(slot), None),
            Some(_) => (None, Some(slot)),
        };
        let body = ProxyBody::of_upstream(incoming, lease, of_answer, upstream);
        let mut answer = Response::from_parts(parts, body);
        if let Some(upgrade) = begins {
            upgrade.begin(&mut answer, &self.shared, of_tunnel);
        }
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
        let admitted = self.shared.shedder.admit(&upstream.site, &context);
        let refused = |shed: Shed| Box::new(shed.response(request.headers(), BodyForm::default()));
        admitted.map(Some).map_err(refused)
    }

    fn route(&self, request: &Request<RequestBody>) -> Result<Arc<Route>, Fault> {
        let routes = self.shared.routes.load();
        routes.of(request).cloned().ok_or(Fault::NoRoute)
    }
}

/// Ends an exchange without an answer.
fn broke_off(fault: &Fault, slot: HeldSlot, upstream: &Upstream) {
    tracing::debug!(
        upstream = &*upstream.name,
        ?fault,
        "no answer from the upstream"
    );
    // It has broken off, or had its time. If the client is to blame, it may still be at work.
    if fault.is_of_upstream() {
        slot.done();
    }
}

/// Waits for a slot of the upstream. The error has the passage of a request that goes without one, if the shedders are to
/// know of it.
async fn slot_of(
    upstream: &Upstream,
    client: Option<IpAddr>,
    passage: Option<Passage>,
) -> Result<(RequestSlot, Option<Passage>), Option<Passage>> {
    let sheds = passage.as_ref().is_some_and(Passage::is_enforced);
    let order = match sheds {
        true => WaitOrder::ControlledDelay,
        false => WaitOrder::InTurn,
    };
    let patience = upstream.connect_timeout;
    let slot = upstream.slots.acquire(client, patience, order).await;
    // Its client may have given up meanwhile.
    let is_late = || sheds && passage.as_ref().is_some_and(Passage::is_late);
    match slot {
        Ok(slot) if !is_late() => Ok((slot, passage)),
        // A client that has its share is none of the shedders' business.
        Err(NoSlot::Share) => Err(None),
        Ok(_) | Err(NoSlot::Queue) => Err(passage.filter(|_| sheds)),
    }
}

/// Runs the exchange, as a part of `span` where the request is traced.
async fn run(
    exchange: &Exchange<'_>,
    request: &mut Request<RequestBody>,
    slot: &HeldSlot,
    span: Option<Arc<RequestSpan>>,
) -> Result<Answered, Fault> {
    let mut traced = span.map(|span| UpstreamSpan {
        span,
        upstream: exchange.upstream,
        begun: exchange.begun,
        slot,
        status: None,
        is_over: false,
    });
    let outcome = exchange.run(request, slot).await;
    if let Some(traced) = &mut traced {
        traced.status = outcome.as_ref().ok().map(|(answer, _)| answer.status());
        traced.is_over = true;
    }
    outcome
}

/// The answer to a request that found no slot at its upstream: of the shedder if `passage` is one's.
fn no_slot(
    upstream: &Upstream,
    passage: Option<Passage>,
    headers: &HeaderMap,
) -> Result<Response<ProxyBody>, Fault> {
    match passage {
        Some(passage) => {
            let answer = passage.shed().response(headers, BodyForm::default());
            Ok(answer.map(ProxyBody::text))
        }
        None => {
            let upstream = upstream.name.clone();
            Err(Fault::Full { upstream })
        }
    }
}

/// The sign of the upstream's load in the outcome, if there is one.
fn sign(
    exchange: &Exchange<'_>,
    is_stream: bool,
    outcome: &Result<Answered, Fault>,
) -> Option<LoadSign> {
    match exchange.connection_use {
        ConnectionUse::Upgrade => None,
        ConnectionUse::Requests if is_stream => ending(outcome).map(LoadSign::Untimed),
        ConnectionUse::Requests => ending(outcome).map(LoadSign::RoundTrip),
    }
}

/// The end of a round trip, if it tells anything about the upstream's load.
fn ending(outcome: &Result<Answered, Fault>) -> Option<Ending> {
    match outcome {
        Ok((answer, _)) => Some(LoadSign::ending(answer.status(), answer.headers())),
        Err(fault) => fault.is_of_upstream().then_some(Ending::Dropped),
    }
}
