//! The response, once it is there.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{LayerShared, RateLimitBody};
use crate::{Checked, Counters};

pin_project! {
    /// The response of a [`RateLimitService`](crate::RateLimitService).
    ///
    /// ```
    /// use http::Request;
    /// use ratekeeper::{InMemory, RateLimitFuture, RateLimitService};
    /// use tower::Service;
    ///
    /// /// Calls a limited service by hand.
    /// fn call<S, B, R>(service: &mut RateLimitService<S>, request: Request<B>) -> RateLimitFuture<S, InMemory, B>
    /// where
    ///     S: Service<Request<B>, Response = http::Response<R>> + Clone,
    ///     R: http_body::Body<Data = bytes::Bytes>,
    /// {
    ///     service.call(request)
    /// }
    /// ```
    pub struct RateLimitFuture<S, C, B>
    where
        S: Service<Request<B>>,
        C: Counters,
    {
        #[pin]
        state: State<C::Answer, S::Future>,
        // The call to make once the limiter has answered.
        call: Option<(S, Request<B>)>,
        // None for a request that is not limited.
        shared: Option<Arc<LayerShared<C>>>,
        checked: Option<Checked>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<A, F> {
        Asking { #[pin] answer: A },
        Calling { #[pin] response: F },
    }
}

impl<S, C, B> RateLimitFuture<S, C, B>
where
    S: Service<Request<B>>,
    C: Counters,
{
    pub(crate) const fn unlimited(response: S::Future) -> Self {
        Self {
            state: State::Calling { response },
            call: None,
            shared: None,
            checked: None,
        }
    }

    pub(crate) const fn asking(
        answer: C::Answer,
        service: S,
        request: Request<B>,
        shared: Arc<LayerShared<C>>,
    ) -> Self {
        Self {
            state: State::Asking { answer },
            call: Some((service, request)),
            shared: Some(shared),
            checked: None,
        }
    }
}

impl<S, C, B, R> Future for RateLimitFuture<S, C, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    C: Counters,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<RateLimitBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjection::Asking { answer } => {
                    let checked = ready!(answer.poll(cx));
                    let call = this.call.take().zip(this.shared.as_ref());
                    let Some(((mut service, request), shared)) = call else {
                        // A future that has ended is not polled again.
                        return Poll::Pending;
                    };
                    let (mut parts, body) = request.into_parts();
                    if !checked.allowed {
                        let denial = shared.deny(&checked, &parts);
                        return Poll::Ready(Ok(denial.map(RateLimitBody::denial)));
                    }
                    parts.extensions.insert(checked);
                    *this.checked = Some(checked);
                    let response = service.call(Request::from_parts(parts, body));
                    this.state.set(State::Calling { response });
                }
                StateProjection::Calling { response } => {
                    let mut response = ready!(response.poll(cx))?.map(RateLimitBody::inner);
                    if let Some((shared, checked)) = this.shared.as_ref().zip(*this.checked) {
                        shared.tell(&checked, &mut response);
                    }
                    return Poll::Ready(Ok(response));
                }
            }
        }
    }
}
