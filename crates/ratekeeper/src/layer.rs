//! The tower layer.

mod answer;
mod body;
mod future;
mod service;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Response};
use tower_layer::Layer;

use crate::key::KeyText;
use crate::{Checked, Counters, InMemory, Key, RateLimiter};
use answer::{Policies, default_denial};
pub use body::RateLimitBody;
pub use future::RateLimitFuture;
pub use service::RateLimitService;

/// Limits the requests of the services that it wraps: axum, tonic, hyper, anything of `http`.
///
/// Without a [key](Self::key) all requests count together. A denied request gets 429 with `Retry-After`, a denied gRPC
/// call `RESOURCE_EXHAUSTED`. Every limited response has `X-RateLimit-*`, `RateLimit` and `RateLimit-Policy`. Where
/// layers meet, the policies are those of all, and the rest is of the one that denies, or has the least remaining. The
/// [`Checked`] answer is among the extensions of request and response.
///
/// ```
/// use std::net::SocketAddr;
/// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
///
/// // With axum, the extension is a `ConnectInfo<SocketAddr>`.
/// let limiter = RateLimiter::keyed(Limit::per_minute(60).burst(20))?;
/// let layer = RateLimitLayer::new(limiter).key(|parts| parts.extensions.get::<SocketAddr>().copied());
/// # let _ = layer;
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// # The peer's address in axum
///
/// `into_make_service_with_connect_info` puts it among the extensions.
///
/// ```
/// use std::net::SocketAddr;
///
/// use axum::{Router, extract::ConnectInfo, routing::get};
/// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
///
/// let limits = RateLimitLayer::new(RateLimiter::keyed(Limit::per_minute(60))?)
///     .key(|parts| Some(parts.extensions.get::<ConnectInfo<SocketAddr>>()?.0));
/// let app = Router::new().route("/", get(async || "hello")).layer(limits);
/// let app = app.into_make_service_with_connect_info::<SocketAddr>();
/// # let _ = async |listener: tokio::net::TcpListener| axum::serve(listener, app).await;
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// # The peer's address in tonic
///
/// Its server has put it there; with TLS the extension is a `TlsConnectInfo<TcpConnectInfo>`.
///
/// ```
/// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
/// use tonic::transport::{Server, server::TcpConnectInfo};
///
/// let limits = RateLimitLayer::new(RateLimiter::keyed(Limit::per_minute(60))?)
///     .key(|parts| parts.extensions.get::<TcpConnectInfo>()?.remote_addr());
/// let mut server = Server::builder().layer(limits);
/// # let _ = server.add_routes(tonic::service::Routes::default()).serve(([127, 0, 0, 1], 0).into());
/// # Ok::<(), ratekeeper::Error>(())
/// ```
///
/// # The peer's address in hyper
///
/// The loop that accepts connections knows it, and puts it there.
///
/// ```
/// use std::convert::Infallible;
/// use std::net::SocketAddr;
///
/// use bytes::Bytes;
/// use http_body_util::Full;
/// use hyper::body::Incoming;
/// use hyper::server::conn::http1;
/// use hyper::service::service_fn;
/// use hyper::{Request, Response};
/// use hyper_util::rt::TokioIo;
/// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
/// use tokio::net::TcpListener;
/// use tower::{Layer, ServiceExt};
///
/// async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
///     Ok(Response::new(Full::from("hello")))
/// }
///
/// async fn serve(listener: TcpListener) -> Result<(), Box<dyn std::error::Error>> {
///     let limits = RateLimitLayer::new(RateLimiter::keyed(Limit::per_minute(60))?)
///         .key(|parts| parts.extensions.get::<SocketAddr>().copied());
///     let hello = limits.layer(tower::service_fn(hello));
///     loop {
///         let (stream, peer) = listener.accept().await?;
///         let hello = hello.clone();
///         let service = service_fn(move |mut request: Request<Incoming>| {
///             request.extensions_mut().insert(peer);
///             hello.clone().oneshot(request)
///         });
///         tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
///     }
/// }
/// ```
///
/// # The client's address on AWS Lambda
///
/// `lambda_http` puts what the gateway says of the request there. A load balancer says nothing: take
/// [`forwarded_for`]`(&parts.headers, 1)`. Each instance of a function counts alone; `.redis(url)` has them count together.
///
/// ```
/// # mod lambda_http {
/// #     pub mod request {
/// #         pub struct Identity { pub source_ip: Option<String> }
/// #         pub struct V1 { pub identity: Identity }
/// #         pub struct V2 { pub http: Identity }
/// #         #[derive(Clone)]
/// #         pub enum RequestContext {
/// #             ApiGatewayV1(std::sync::Arc<V1>),
/// #             ApiGatewayV2(std::sync::Arc<V2>),
/// #             Alb,
/// #         }
/// #     }
/// # }
/// use lambda_http::request::RequestContext;
/// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
///
/// # fn main() -> Result<(), ratekeeper::Error> {
/// let limits = RateLimitLayer::new(RateLimiter::keyed(Limit::per_minute(60))?)
///     .key(|parts| match parts.extensions.get()? {
///         RequestContext::ApiGatewayV2(context) => context.http.source_ip.clone(),
///         RequestContext::ApiGatewayV1(context) => context.identity.source_ip.clone(),
///         _ => None,
///     });
/// # let _ = limits;
/// # Ok(())
/// # }
/// ```
///
/// # The client's address behind proxies
///
/// Each of your own proxies adds an address to `X-Forwarded-For`; what clients write there is not believed.
///
/// ```
/// use ratekeeper::{Limit, RateLimitLayer, RateLimiter, forwarded_for};
///
/// let limits = RateLimitLayer::new(RateLimiter::keyed(Limit::per_minute(60))?)
///     .key(|parts| forwarded_for(&parts.headers, 2));
/// # let _ = limits;
/// # Ok::<(), ratekeeper::Error>(())
/// ```
pub struct RateLimitLayer<C = InMemory> {
    pub(crate) shared: Arc<LayerShared<C>>,
}

pub(crate) struct LayerShared<C> {
    pub(crate) limiter: RateLimiter<C>,
    pub(crate) policies: Policies,
    key: KeyFn,
    cost: Arc<dyn Fn(&Parts) -> u64 + Send + Sync>,
    denied: DeniedFn,
    pub(crate) has_headers: bool,
}

/// Writes the key of a request; false if it is not limited.
type KeyFn = Arc<dyn Fn(&Parts, &mut KeyText) -> bool + Send + Sync>;

/// Makes the response to a denied request.
type DeniedFn = Arc<dyn Fn(&Checked, &Parts) -> Response<Bytes> + Send + Sync>;

impl<C: Counters> RateLimitLayer<C> {
    /// A layer that asks `limiter`, of which a clone can be kept for [`refund`](RateLimiter::refund) and
    /// [`peek`](RateLimiter::peek).
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
    ///
    /// // A hundred requests a second, whoever sends them.
    /// let layer = RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(100))?);
    /// # let _ = layer;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn new(limiter: RateLimiter<C>) -> Self {
        Self {
            shared: Arc::new(LayerShared {
                policies: Policies::of(limiter.limits()),
                limiter,
                key: Arc::new(|_, _| true),
                cost: Arc::new(|_| 1),
                denied: Arc::new(default_denial),
                has_headers: true,
            }),
        }
    }

    /// Sets the function that says who sends a request: by a header, by an extension that an outer layer or the server
    /// has put there, such as the peer's address, by the path. `None` is not limited.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(5))?).key(|parts| {
    ///     let key = parts.headers.get("x-api-key")?.to_str().ok()?;
    ///     Some(key.to_owned())
    /// });
    /// # let _ = layer;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn key<K: Key>(self, key: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static) -> Self {
        self.with(|shared| {
            shared.key = Arc::new(move |parts, text| match key(parts) {
                Some(key) => {
                    key.with_text(|key| text.set(key));
                    true
                }
                None => false,
            });
        })
    }

    /// Sets the function that says what a request costs; 1 by default. 0 passes uncounted.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(100))?)
    ///     .cost(|parts| if parts.uri.path() == "/export" { 50 } else { 1 });
    /// # let _ = layer;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn cost(self, cost: impl Fn(&Parts) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|shared| shared.cost = Arc::new(cost))
    }

    /// Sets the response to denied requests. The layer adds its headers where the response has none of the same name.
    ///
    /// ```
    /// use http::Response;
    /// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(5))?).denied(|checked, _| {
    ///     let text = format!("not so fast: {} a second", checked.limit);
    ///     let mut response = Response::new(text);
    ///     *response.status_mut() = http::StatusCode::TOO_MANY_REQUESTS;
    ///     response
    /// });
    /// # let _ = layer;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn denied<B: Into<Bytes>>(
        self,
        denied: impl Fn(&Checked, &Parts) -> Response<B> + Send + Sync + 'static,
    ) -> Self {
        self.with(|shared| {
            shared.denied = Arc::new(move |checked, parts| denied(checked, parts).map(Into::into));
        })
    }

    /// Leaves the headers of limits out of all responses, but for `Retry-After`.
    ///
    /// ```
    /// use ratekeeper::{Limit, RateLimitLayer, RateLimiter};
    ///
    /// let layer = RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(5))?).without_headers();
    /// # let _ = layer;
    /// # Ok::<(), ratekeeper::Error>(())
    /// ```
    #[must_use]
    pub fn without_headers(self) -> Self {
        self.with(|shared| shared.has_headers = false)
    }

    fn with(mut self, change: impl FnOnce(&mut LayerShared<C>)) -> Self {
        change(Arc::make_mut(&mut self.shared));
        self
    }
}

impl<C: Counters> LayerShared<C> {
    /// Asks about a request; None if it is not limited.
    pub(crate) fn ask(&self, parts: &Parts) -> Option<C::Answer> {
        let mut text = KeyText::default();
        if !(self.key)(parts, &mut text) {
            return None;
        }
        let hits = (self.cost)(parts);
        let answer = text.read(|key| self.limiter.ask_text(key, hits));
        Some(answer)
    }

    /// The response to a denied request, with its headers.
    pub(crate) fn deny(&self, checked: &Checked, parts: &Parts) -> Response<Bytes> {
        let mut response = (self.denied)(checked, parts);
        answer::add_retry(checked, response.headers_mut());
        self.tell(checked, &mut response);
        response
    }

    /// Adds the headers to a response. What an inner layer says stays if it denies, or has less left; the policies of both
    /// are told.
    pub(crate) fn tell<B>(&self, checked: &Checked, response: &mut Response<B>) {
        let inner = response.extensions().get::<Checked>();
        let is_first = inner.is_none();
        let is_tighter =
            inner.is_none_or(|inner| inner.allowed && inner.remaining >= checked.remaining);
        if is_tighter {
            response.extensions_mut().insert(*checked);
        }
        if self.has_headers {
            let headers = response.headers_mut();
            if is_tighter {
                self.policies.add_state(checked, headers);
            }
            self.policies.add_line(is_first, headers);
        }
    }
}

impl<C> Clone for LayerShared<C> {
    fn clone(&self) -> Self {
        Self {
            limiter: self.limiter.clone(),
            policies: self.policies.clone(),
            key: Arc::clone(&self.key),
            cost: Arc::clone(&self.cost),
            denied: Arc::clone(&self.denied),
            has_headers: self.has_headers,
        }
    }
}

impl<C> Clone for RateLimitLayer<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C: fmt::Debug> fmt::Debug for RateLimitLayer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("limiter", &self.shared.limiter)
            .finish_non_exhaustive()
    }
}

impl<S, C> Layer<S> for RateLimitLayer<C> {
    type Service = RateLimitService<S, C>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimitService::new(inner, Arc::clone(&self.shared))
    }
}

/// The client's address behind `proxies` trusted proxies, each of which appends the address that it sees to
/// `X-Forwarded-For`, with or without the port. None if the header has fewer entries, or the entry is no address: then the
/// peer is no such proxy.
///
/// Entries before that one are the client's own word, and ignored.
///
/// ```
/// use http::HeaderMap;
/// use ratekeeper::forwarded_for;
///
/// let mut headers = HeaderMap::new();
/// headers.insert("x-forwarded-for", "spoofed, 203.0.113.7, 10.0.0.2".parse().unwrap());
/// assert_eq!(forwarded_for(&headers, 2), "203.0.113.7".parse().ok());
/// assert_eq!(forwarded_for(&headers, 1), "10.0.0.2".parse().ok());
/// assert_eq!(forwarded_for(&headers, 0), None);
/// assert_eq!(forwarded_for(&headers, 9), None);
/// ```
#[must_use]
pub fn forwarded_for(headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    let lines: Vec<_> = headers.get_all("x-forwarded-for").iter().collect();
    let mut entries = lines.iter().rev().flat_map(|line| {
        // A line that is no text has one entry that is no address.
        let text = line.to_str().unwrap_or("?");
        text.rsplit(',').map(str::trim)
    });
    address(entries.nth(proxies.checked_sub(1)?)?)
}

/// An address as proxies write it: some with its port, and then IPv6 in brackets.
fn address(entry: &str) -> Option<IpAddr> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(socket) = entry.parse::<SocketAddr>() {
        return Some(socket.ip());
    }
    let inner = entry.strip_prefix('[')?.strip_suffix(']')?;
    inner.parse().ok().map(IpAddr::V6)
}
