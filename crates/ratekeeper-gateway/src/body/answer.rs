//! The bodies of answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use ratekeeper_server::Fault as BoxError;
use ratekeeper_tower::ResponseBody;
use tokio::time::{Instant, Sleep, sleep};

use super::held_slot::HeldSlot;
use super::received::Received;
use crate::connect::Lease;
use crate::upstream::Upstream;

/// The body that a client gets: an upstream's, or a text of the gateway's own.
#[derive(Debug)]
pub struct ProxyBody {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Boxed: it is large, and an answer is moved often on its way to the client.
    Upstream(Box<FromUpstream>),
    Text(Bytes),
}

/// An upstream's body on its way to a client.
#[derive(Debug)]
struct FromUpstream {
    received: Received,
    upstream: Arc<Upstream>,
    /// Begins when the upstream pauses. None in most answers, which come at once.
    pause: Option<Pin<Box<Sleep>>>,
    is_pausing: bool,
}

/// An upstream that stopped in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the upstream paused for too long in the middle of its answer")]
struct Stalled;

impl ProxyBody {
    pub(crate) const fn text(text: Bytes) -> Self {
        Self {
            kind: Kind::Text(text),
        }
    }

    /// The body of an answer of `upstream`, which may not pause for longer than it may take to answer.
    pub(crate) fn of_upstream(
        incoming: Incoming,
        lease: Option<Lease>,
        slot: Option<HeldSlot>,
        upstream: Arc<Upstream>,
    ) -> Self {
        Self {
            kind: Kind::Upstream(Box::new(FromUpstream {
                received: Received::new(incoming, lease, slot),
                upstream,
                pause: None,
                is_pausing: false,
            })),
        }
    }

    /// The length of a text of the gateway's own, in bytes.
    pub(crate) fn text_length(&self) -> usize {
        match &self.kind {
            Kind::Upstream(_) => 0,
            Kind::Text(text) => text.len(),
        }
    }
}

/// The body of an answer that may be an upstream's.
pub(crate) trait AnswerBody {
    /// The upstream that answered; None for an answer of the gateway's own.
    fn upstream(&self) -> Option<&Arc<Upstream>>;
}

impl AnswerBody for ProxyBody {
    fn upstream(&self) -> Option<&Arc<Upstream>> {
        match &self.kind {
            Kind::Upstream(it) => Some(&it.upstream),
            Kind::Text(_) => None,
        }
    }
}

impl<B: AnswerBody, H> AnswerBody for ResponseBody<B, H> {
    fn upstream(&self) -> Option<&Arc<Upstream>> {
        self.of_service()?.upstream()
    }
}

impl FromUpstream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(incoming) = self.received.incoming_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Ready(frame) => {
                let is_over = incoming.is_end_stream();
                self.is_pausing = false;
                match &frame {
                    None => self.received.over(),
                    Some(Ok(_)) if is_over => self.received.over(),
                    Some(Ok(_)) => {}
                    Some(Err(_)) => self.received.broken(),
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => self.paused(cx),
        }
    }

    /// Breaks the body off once its upstream has paused for too long.
    fn paused<T>(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, BoxError>>> {
        if !std::mem::replace(&mut self.is_pausing, true) {
            let pace = self.upstream.response_timeout;
            match &mut self.pause {
                Some(pause) => pause.as_mut().reset(Instant::now() + pace),
                None => self.pause = Some(Box::pin(sleep(pace))),
            }
        }
        let pause = self.pause.as_mut();
        match pause.is_some_and(|it| it.as_mut().poll(cx).is_ready()) {
            true => {
                self.received.broken();
                Poll::Ready(Some(Err(Stalled.into())))
            }
            false => Poll::Pending,
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match &mut self.kind {
            Kind::Text(text) if text.is_empty() => Poll::Ready(None),
            Kind::Text(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text))))),
            Kind::Upstream(it) => it.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Upstream(it) => it.received.incoming().is_none_or(Body::is_end_stream),
            Kind::Text(text) => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Upstream(it) => {
                let none = SizeHint::with_exact(0);
                it.received.incoming().map_or(none, Body::size_hint)
            }
            Kind::Text(text) => SizeHint::with_exact(text.len() as u64),
        }
    }
}
