//! What is awaited until there is an answer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::layer::Shared;
use crate::turn::{Pass, Place, Stamp, Turn};
use crate::{Enforcer, Mode};

/// A request, and the service that will get it.
pub(crate) struct Later<S, B> {
    pub(crate) service: S,
    pub(crate) request: Request<B>,
}

impl<S, B> Later<S, B> {
    fn call<E: Enforcer>(mut self, pass: Pass<E::Permit>) -> State<S, E, B>
    where
        S: Service<Request<B>>,
    {
        let stamp = pass.stamp(&mut self.request);
        State::Calling {
            response: self.service.call(self.request),
            stamp: Some(stamp),
        }
    }
}

pin_project! {
    /// The answer of a [`RateLimit`](crate::RateLimit): it asks whether the request may pass, waits for its turn, and calls
    /// the inner service, as far as each of these is needed. Dropping it gives back what the request holds.
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
            asking: E::Asking,
            shared: Arc<Shared<E>>,
            mode: Mode,
            later: Option<Later<S, B>>,
        },
        Waiting {
            #[pin]
            sleep: Sleep,
            place: Place,
            pass: Option<Pass<E::Permit>>,
            later: Option<Later<S, B>>,
        },
        Calling {
            #[pin]
            response: S::Future,
            stamp: Option<Stamp<E::Permit>>,
        },
        Refused {
            response: Option<Response<Bytes>>,
        },
    }
}

/// The invariant that an `expect` of a state's content stands on.
const ONCE: &str = "a state is left as soon as its content is taken";

impl<S, E, B> ResponseFuture<S, E, B>
where
    S: Service<Request<B>>,
    E: Enforcer,
{
    pub(crate) fn asking(
        shared: Arc<Shared<E>>,
        mode: Mode,
        asking: E::Asking,
        later: Later<S, B>,
    ) -> Self {
        let later = Some(later);
        let state = State::Asking {
            asking,
            shared,
            mode,
            later,
        };
        Self { state }
    }

    pub(crate) fn waiting(
        delay: Duration,
        place: Place,
        pass: Pass<E::Permit>,
        later: Later<S, B>,
    ) -> Self {
        let state = State::waiting(delay, place, pass, later);
        Self { state }
    }

    pub(crate) fn calling(response: S::Future, stamp: Stamp<E::Permit>) -> Self {
        let stamp = Some(stamp);
        let state = State::Calling { response, stamp };
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
    fn waiting(delay: Duration, place: Place, pass: Pass<E::Permit>, later: Later<S, B>) -> Self {
        Self::Waiting {
            // From here on: what a queue is told to wait does not add up.
            sleep: sleep(delay),
            place,
            pass: Some(pass),
            later: Some(later),
        }
    }

    fn refused(response: Response<Bytes>) -> Self {
        Self::Refused {
            response: Some(response),
        }
    }
}

impl<S, E, B, R> Future for ResponseFuture<S, E, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    E: Enforcer,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<ResponseBody<R, E::Permit>>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Asking {
                    asking,
                    shared,
                    mode,
                    later,
                } => {
                    let admission = ready!(asking.poll(cx));
                    let later = later.take().expect(ONCE);
                    match shared.turn(admission, *mode, later.request.headers()) {
                        Turn::Now(pass) => later.call(pass),
                        Turn::After(delay, place, pass) => {
                            State::waiting(delay, place, pass, later)
                        }
                        Turn::Never(response) => State::refused(response),
                    }
                }
                StateProjection::Waiting {
                    sleep, pass, later, ..
                } => {
                    ready!(sleep.poll(cx));
                    let (pass, later) = (pass.take().expect(ONCE), later.take().expect(ONCE));
                    later.call(pass)
                }
                StateProjection::Calling { response, stamp } => {
                    let response = ready!(response.poll(cx))?;
                    return Poll::Ready(Ok(stamp.take().expect(ONCE).on(response)));
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
