//! The future of a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::hold::Hold;
use crate::shared::Shared;
use crate::turn::{InLine, Next, Stamp};
use crate::{AdmissionOf, Enforcer, LayerMode};

/// A request that has not reached the inner service yet, with everything that it needs to proceed. Boxed wherever it waits:
/// the future of a request that is passed on at once is moved, and is not to carry the room for it.
pub(crate) struct Later<S, E, B> {
    pub(crate) service: S,
    pub(crate) shared: Arc<Shared<E>>,
    /// The mode when the request arrived.
    pub(crate) mode: LayerMode,
    pub(crate) request: Request<B>,
}

impl<S, E: Enforcer, B> Later<S, E, B> {
    fn admitted(self: Box<Self>, admission: AdmissionOf<E>) -> State<S, E, B>
    where
        S: Service<Request<B>>,
    {
        let next = self.shared.admitted(admission, self.mode, &self.request);
        self.go_on(next)
    }

    fn at_turn(self: Box<Self>, queued: E::Queued) -> State<S, E, B>
    where
        S: Service<Request<B>>,
    {
        let next = self.shared.at_turn(queued, self.mode, &self.request);
        self.go_on(next)
    }

    fn go_on(self: Box<Self>, next: Next<E>) -> State<S, E, B>
    where
        S: Service<Request<B>>,
    {
        match next {
            Next::Call(pass) => {
                let mut later = *self;
                let stamp = pass.stamp(&mut later.request, &later.shared.watch);
                State::calling(later.service.call(later.request), stamp)
            }
            Next::Wait(waiting) => State::waiting(waiting, self),
            Next::Ask(asking) => State::asking(asking, self),
            Next::Refuse(response) => State::refused(response),
        }
    }
}

pin_project! {
    /// The response of a [`RateLimit`](crate::RateLimit): asks if the request may pass, waits for
    /// its turn, and calls the inner service, as far as each is needed. Dropping it gives back what
    /// the request holds.
    pub struct ResponseFuture<S, E, B>
    where
        S: Service<Request<B>>,
        E: Enforcer,
    {
        #[pin]
        state: State<S, E, B>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, E, B>
    where
        S: Service<Request<B>>,
        E: Enforcer,
    {
        Asking {
            #[pin]
            asking: E::Future,
            later: Option<Box<Later<S, E, B>>>,
        },
        Waiting {
            waiting: Pin<Box<InLine<E::Queued>>>,
            later: Option<Box<Later<S, E, B>>>,
        },
        Calling {
            #[pin]
            response: S::Future,
            stamp: Option<Stamp>,
        },
        Refused {
            response: Option<Response<Bytes>>,
        },
    }
}

/// The invariant behind an `expect` on a state's content.
const ONCE: &str = "a state is left as soon as its content is taken";

impl<S, E, B> ResponseFuture<S, E, B>
where
    S: Service<Request<B>>,
    E: Enforcer,
{
    pub(crate) fn asking(asking: E::Future, later: Box<Later<S, E, B>>) -> Self {
        let state = State::asking(asking, later);
        Self { state }
    }

    pub(crate) fn waiting(
        waiting: Pin<Box<InLine<E::Queued>>>,
        later: Box<Later<S, E, B>>,
    ) -> Self {
        let state = State::waiting(waiting, later);
        Self { state }
    }

    pub(crate) fn calling(response: S::Future, stamp: Stamp) -> Self {
        let state = State::calling(response, stamp);
        Self { state }
    }

    pub(crate) fn refused(response: Response<Bytes>) -> Self {
        let state = State::refused(response);
        Self { state }
    }
}

impl<S, E, B> State<S, E, B>
where
    S: Service<Request<B>>,
    E: Enforcer,
{
    fn asking(asking: E::Future, later: Box<Later<S, E, B>>) -> Self {
        let later = Some(later);
        Self::Asking { asking, later }
    }

    fn waiting(waiting: Pin<Box<InLine<E::Queued>>>, later: Box<Later<S, E, B>>) -> Self {
        let later = Some(later);
        Self::Waiting { waiting, later }
    }

    fn calling(response: S::Future, stamp: Stamp) -> Self {
        let stamp = Some(stamp);
        Self::Calling { response, stamp }
    }

    fn refused(response: Response<Bytes>) -> Self {
        let response = Some(response);
        Self::Refused { response }
    }
}

impl<S, E, B, R> Future for ResponseFuture<S, E, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    E: Enforcer,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<R, Hold>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Asking { asking, later } => {
                    let admission = ready!(asking.poll(cx));
                    later.take().expect(ONCE).admitted(admission)
                }
                StateProjection::Waiting { waiting, later } => {
                    let waiting = waiting.as_mut().project();
                    ready!(waiting.paced.poll(cx));
                    let queued = waiting.queued.take().expect(ONCE);
                    later.take().expect(ONCE).at_turn(queued)
                }
                StateProjection::Calling { response, stamp } => {
                    let response = ready!(response.poll(cx));
                    let stamp = stamp.take().expect(ONCE);
                    return Poll::Ready(match response {
                        Ok(response) => Ok(stamp.on(response)),
                        Err(error) => {
                            stamp.failed();
                            Err(error)
                        }
                    });
                }
                StateProjection::Refused { response } => {
                    let response = response.take().expect(ONCE);
                    return Poll::Ready(Ok(response.map(ResponseBody::refusal)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, E, B> fmt::Debug for ResponseFuture<S, E, B>
where
    S: Service<Request<B>>,
    E: Enforcer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Asking { .. } => "asking",
            State::Waiting { .. } => "waiting",
            State::Calling { .. } => "calling",
            State::Refused { .. } => "refused",
        };
        f.debug_struct("ResponseFuture")
            .field("state", &state)
            .finish()
    }
}
