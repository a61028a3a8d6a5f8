//! The gRPC listener: Envoy's rate limit service, our own, health, reflection.

mod direct;
mod incoming;
mod region_link;
mod rls;
mod root;
mod unread;
mod v1;

use std::convert::Infallible;
use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use ratekeeper_proto::envoy::service::ratelimit::v3::rate_limit_service_server::{
    RateLimitServiceServer, SERVICE_NAME,
};
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_server::{
    self as v1_name, RateLimiterServiceServer,
};
use ratekeeper_proto::ratekeeper::v1::region_service_server::RegionServiceServer;
use ratekeeper_proto::{FILE_DESCRIPTOR_SET, SHORT_BYTES_MAX};
use tonic::body::Body;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};
use tower::Service;

use crate::app::App;
use crate::config::constant::ConstantAnswer;
use crate::http::media_type::is_grpc;
use crate::listen::{Fault, Peer, PeerAddress};
use incoming::{Incoming, MessageBounds};
use region_link::LinkService;
use rls::Rls;
pub(crate) use root::over_http1;

/// The name that envoyproxy/ratelimit's health service answers to, besides the empty one.
const HEALTH_NAMES: [&str; 2] = ["", "ratelimit"];

/// The services of the gRPC listener.
#[derive(Clone, Debug)]
pub(crate) struct Grpc(Arc<Services>);

#[derive(Debug)]
struct Services {
    app: Arc<App>,
    rls: Arc<Rls>,
    v1: Arc<v1::Service>,
    by_tonic: ByTonic,
}

/// The same services, and all others, as tonic serves them.
#[derive(Debug)]
struct ByTonic {
    rls: RateLimitServiceServer<Rls>,
    v1: RateLimiterServiceServer<v1::Service>,
    others: axum::Router,
}

impl Grpc {
    /// `is_local` says whether only this host can reach the listener.
    pub(crate) fn new(
        app: &Arc<App>,
        health: &Health,
        constant: Option<ConstantAnswer>,
        is_local: bool,
    ) -> Result<Self, BadDescriptors> {
        let bytes_max = app.config.bounds.message_bytes_max;
        // Health and reflection are asked in few words.
        let short_max = bytes_max.min(SHORT_BYTES_MAX);
        let v1 = Arc::new(v1::Service::new(Arc::clone(app)));
        // What a listener on this host alone lets in is on this host.
        let unknown = Peer::unnamed(PeerAddress::Unix, is_local);
        let rls = Arc::new(Rls {
            app: Arc::clone(app),
            constant,
            unknown: unknown.clone(),
        });
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
                .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let others = Routes::new(health.server().max_decoding_message_size(short_max))
            .add_service(
                reflection()
                    .build_v1()?
                    .max_decoding_message_size(short_max),
            )
            .add_service(
                reflection()
                    .build_v1alpha()?
                    .max_decoding_message_size(short_max),
            )
            .add_service(
                RegionServiceServer::new(LinkService::new(Arc::clone(app), unknown))
                    .max_decoding_message_size(short_max),
            )
            .prepare()
            .into_axum_router();
        let others = root::add(others);
        let by_tonic = ByTonic {
            rls: RateLimitServiceServer::from_arc(Arc::clone(&rls))
                .max_decoding_message_size(bytes_max),
            v1: RateLimiterServiceServer::from_arc(Arc::clone(&v1))
                .max_decoding_message_size(bytes_max),
            others,
        };
        let services = Services {
            app: Arc::clone(app),
            rls,
            v1,
            by_tonic,
        };
        Ok(Self(Arc::new(services)))
    }
}

/// The descriptors that reflection serves do not fit together: a mistake of the build.
pub(crate) type BadDescriptors = tonic_reflection::server::Error;

type BoxFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// An answer on its way.
pub(crate) enum ByTonicAnswering {
    Rls(BoxFuture, Arc<App>),
    V1(BoxFuture, Arc<App>),
    Other(BoxFuture),
}

impl Future for ByTonicAnswering {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Rls(answer, app) => {
                let answer = answer.as_mut().poll(cx);
                answer.map(|answer| answer.map(|answer| unread::decide(answer, app)))
            }
            Self::V1(answer, app) => {
                let answer = answer.as_mut().poll(cx);
                answer.map(|answer| answer.map(|answer| v1::hold_room(unread::refuse(answer, app))))
            }
            Self::Other(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<B> Service<Request<B>> for Grpc
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Fault>> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ByTonicAnswering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ByTonicAnswering {
        if let Some(answer) = refusal(&request) {
            return ByTonicAnswering::Other(Box::pin(ready(Ok(answer))));
        }
        // The services that matter do not go through a router.
        let path = request.uri().path();
        let ByTonic { rls, v1, others } = &self.0.by_tonic;
        if is_rls(path) {
            let app = Arc::clone(&self.0.app);
            let request = request.map(|body| app.reading_room.bound(body));
            return ByTonicAnswering::Rls(rls.clone().call(request), app);
        }
        if is_of(v1_name::SERVICE_NAME, path) {
            let app = Arc::clone(&self.0.app);
            let request = request.map(|body| app.reading_room.bound(body));
            return ByTonicAnswering::V1(v1.clone().call(request), app);
        }
        let bounds = MessageBounds::of(&self.0.app).short();
        let request = request.map(|body| Incoming::new(Box::pin(body), bounds).into_body());
        let answer = others.clone().call(request);
        ByTonicAnswering::Other(Box::pin(async move {
            answer.await.map(|answer| answer.map(Body::new))
        }))
    }
}

/// The answer to what is neither a call of gRPC, which are all by POST, nor for the page at `/`. tonic would take any method.
fn refusal<B>(request: &Request<B>) -> Option<Response<Body>> {
    const POST: HeaderValue = HeaderValue::from_static("POST");
    let mut answer = Response::new(Body::empty());
    if request.method() == Method::POST {
        if is_grpc(request.headers()) {
            return None;
        }
        *answer.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    } else {
        if request.uri().path() == root::PATH {
            return None;
        }
        *answer.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        answer.headers_mut().insert(ALLOW, POST);
    }
    Some(answer)
}

/// Returns true if `path` belongs to Envoy's service.
pub(crate) fn is_rls(path: &str) -> bool {
    is_of(SERVICE_NAME, path)
}

fn is_of(service: &str, path: &str) -> bool {
    let method = path
        .strip_prefix('/')
        .and_then(|path| path.strip_prefix(service));
    method.is_some_and(|method| method.starts_with('/'))
}

/// The state that `grpc.health.v1` reports.
#[derive(Debug)]
pub(crate) struct Health(HealthReporter);

impl Health {
    pub(crate) async fn new(is_ready: bool) -> Self {
        let health = Self(HealthReporter::new());
        health.set(is_ready).await;
        health
    }

    fn server(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.0.clone()))
    }

    pub(crate) async fn set(&self, is_ready: bool) {
        let status = if is_ready {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        for name in HEALTH_NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// Ends the streams of those who watch, which would otherwise keep the drain waiting.
    pub(crate) async fn close(mut self) {
        for name in HEALTH_NAMES {
            self.0.clear_service_status(name).await;
        }
    }
}
