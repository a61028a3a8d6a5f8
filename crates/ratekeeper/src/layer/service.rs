//! The service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::{LayerShared, RateLimitBody, RateLimitFuture};
use crate::Counters;

/// A service with limited requests, made by a [`RateLimitLayer`](crate::RateLimitLayer).
///
/// ```
/// use ratekeeper::{Limit, RateLimitLayer, RateLimitService, RateLimiter};
/// use tower::Layer;
///
/// fn limited<S>(service: S) -> Result<RateLimitService<S>, ratekeeper::Error> {
///     Ok(RateLimitLayer::new(RateLimiter::keyed(Limit::per_second(5))?).layer(service))
/// }
/// # let _ = limited(());
/// ```
pub struct RateLimitService<S, C = crate::InMemory> {
    inner: S,
    shared: Arc<LayerShared<C>>,
}

impl<S, C> RateLimitService<S, C> {
    pub(crate) const fn new(inner: S, shared: Arc<LayerShared<C>>) -> Self {
        Self { inner, shared }
    }
}

impl<S: Clone, C> Clone for RateLimitService<S, C> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.shared))
    }
}

impl<S: fmt::Debug, C> fmt::Debug for RateLimitService<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, C, B, R> Service<Request<B>> for RateLimitService<S, C>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    C: Counters,
    R: Body<Data = Bytes>,
{
    type Response = Response<RateLimitBody<R>>;
    type Error = S::Error;
    type Future = RateLimitFuture<S, C, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        match self.shared.ask(&parts) {
            None => RateLimitFuture::unlimited(self.inner.call(Request::from_parts(parts, body))),
            Some(answer) => {
                // The service that was ready is called, and a clone of it is made ready for the next request.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                let request = Request::from_parts(parts, body);
                RateLimitFuture::asking(answer, ready, request, Arc::clone(&self.shared))
            }
        }
    }
}
