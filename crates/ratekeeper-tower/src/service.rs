//! The service.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::future::{Later, ResponseFuture};
use crate::hold::Hold;
use crate::shared::Shared;
use crate::turn::{Asked, Asker, Next};
use crate::{Enforcer, LayerMode};

/// A service with limited requests, made by a [`RulesLayer`](crate::RulesLayer).
#[derive(Clone, Debug)]
pub struct RateLimit<S, E> {
    inner: S,
    shared: Arc<Shared<E>>,
}

impl<S, E> RateLimit<S, E> {
    pub(crate) const fn new(inner: S, shared: Arc<Shared<E>>) -> Self {
        Self { inner, shared }
    }
}

impl<S, E, B, R> Service<Request<B>> for RateLimit<S, E>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    E: Enforcer,
    R: Body<Data = Bytes>,
{
    type Response = Response<ResponseBody<R, Hold>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, E, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let shared = &self.shared;
        let mode = shared.switch.mode();
        let next = match shared.ask(&request, mode) {
            Ok(Asked {
                answer,
                context,
                usage,
            }) => {
                if let Some(context) = context {
                    request.extensions_mut().insert(context);
                }
                if let Some(usage) = usage {
                    request.extensions_mut().insert(usage);
                }
                match answer {
                    None => Next::CALL,
                    Some(answer) => shared.next(answer, mode, &request),
                }
            }
            Err(malformed) => shared.malformed(malformed, mode, Asker::of(&request)),
        };
        match next {
            Next::Call(pass) => {
                let stamp = pass.stamp(&mut request, &shared.watch);
                ResponseFuture::calling(self.inner.call(request), stamp)
            }
            Next::Ask(asking) => {
                let later = self.later(request, mode);
                ResponseFuture::asking(asking, later)
            }
            Next::Wait(waiting) => {
                let later = self.later(request, mode);
                ResponseFuture::waiting(waiting, later)
            }
            Next::Refuse(response) => ResponseFuture::refused(response),
        }
    }
}

impl<S: Clone, E> RateLimit<S, E> {
    /// Prepares the call: takes the service that reported ready, and leaves a clone in its place.
    fn later<B>(&mut self, request: Request<B>, mode: LayerMode) -> Box<Later<S, E, B>> {
        let clone = self.inner.clone();
        Box::new(Later {
            service: std::mem::replace(&mut self.inner, clone),
            shared: Arc::clone(&self.shared),
            mode,
            request,
        })
    }
}
