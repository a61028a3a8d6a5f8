//! The bodies of requests and answers, streamed through the gateway piece by piece.

mod leftover;
mod place;
mod progress;
mod received;
mod timing;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use pin_project_lite::pin_project;
use ratekeeper_server::{Fault as BoxError, Patience};
use tokio::time::{Instant, Sleep, sleep};

pub(crate) use self::place::{HeldPlace, Seat};
pub(crate) use self::progress::Progress;
use self::received::Received;
use self::timing::Timing;
use crate::head::clean_trailers;
use crate::media_type::is_stream;
use crate::pool::Lease;

/// A client's body on its way to an upstream.
#[derive(Debug)]
pub struct RequestBody {
    /// None for a request without a body.
    incoming: Option<Incoming>,
    left: u64,
    progress: Option<Arc<Progress>>,
    is_http2: bool,
    /// None if its client may take as long as it likes.
    timing: Option<Timing>,
}

/// A body that is larger than it may be, or that its sender did not finish.
#[derive(Debug, thiserror::Error)]
enum BadBody {
    #[error("the request's body is too large")]
    TooLarge,
    #[error("the request's body comes too slowly")]
    TooSlow,
    #[error("the request's body broke off")]
    Broken(#[source] hyper::Error),
}

impl RequestBody {
    /// The body of `request`, of which at most `bytes_max` pass, and no slower than `patience` allows.
    /// Streaming calls (gRPC, Connect) may be silent for as long as they like.
    pub(crate) fn of(
        request: Request<Incoming>,
        bytes_max: u64,
        patience: Patience,
    ) -> Request<Self> {
        let is_http2 = request.version() == Version::HTTP_2;
        if request.body().is_end_stream() {
            return request.map(|_| Self::none());
        }
        let is_stream = is_stream(request.headers());
        request.map(|incoming| Self {
            incoming: Some(incoming),
            left: bytes_max,
            progress: Some(Arc::default()),
            is_http2,
            timing: Timing::new(patience).filter(|_| !is_stream),
        })
    }

    pub(crate) const fn none() -> Self {
        Self {
            incoming: None,
            left: 0,
            progress: None,
            is_http2: false,
            timing: None,
        }
    }

    /// The progress of the body; None if there is no body.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.clone()
    }

    fn note(&self, note: impl FnOnce(&Progress)) {
        if let Some(progress) = &self.progress {
            note(progress);
        }
    }
}

/// Strips from trailers the fields that only a head may carry.
fn without_claims(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            clean_trailers(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let is_over = |progress: &Arc<Progress>| progress.is_done() || progress.is_broken();
        if self.is_http2
            && !self.progress.as_ref().is_none_or(is_over)
            && let Some(incoming) = self.incoming.take()
        {
            leftover::discard(incoming);
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(cx) else {
            self.note(|progress| progress.is_awaited.store(true, Ordering::Relaxed));
            if self.timing.as_mut().is_some_and(|it| it.is_over(cx)) {
                self.note(|progress| progress.is_too_slow.store(true, Ordering::Relaxed));
                return Poll::Ready(Some(Err(BadBody::TooSlow.into())));
            }
            return Poll::Pending;
        };
        self.note(|progress| progress.is_awaited.store(false, Ordering::Relaxed));
        let Some(incoming) = &self.incoming else {
            return Poll::Ready(None);
        };
        let is_over = incoming.is_end_stream();
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                if let Some(timing) = &mut self.timing {
                    timing.came(length);
                }
                match self.left.checked_sub(length as u64) {
                    Some(left) => {
                        self.left = left;
                        self.note(|progress| {
                            progress.frames.fetch_add(1, Ordering::Relaxed);
                        });
                        if is_over {
                            self.note(|progress| progress.is_done.store(true, Ordering::Relaxed));
                        }
                        Some(Ok(without_claims(frame)))
                    }
                    None => {
                        self.note(|progress| progress.is_too_large.store(true, Ordering::Relaxed));
                        Some(Err(BadBody::TooLarge.into()))
                    }
                }
            }
            Some(Err(error)) => {
                self.note(|progress| progress.is_broken.store(true, Ordering::Relaxed));
                Some(Err(BadBody::Broken(error).into()))
            }
            None => {
                self.note(|progress| progress.is_done.store(true, Ordering::Relaxed));
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let none = SizeHint::with_exact(0);
        self.incoming.as_ref().map_or(none, Body::size_hint)
    }
}

pin_project! {
    /// The body that a client gets: an upstream's, or a text of the gateway's own.
    #[derive(Debug)]
    pub struct ProxyBody {
        #[pin]
        kind: Kind,
    }
}

pin_project! {
    #[project = KindNow]
    #[derive(Debug)]
    enum Kind {
        Upstream {
            received: Received,
            pace: Duration,
            // Begins when the upstream pauses.
            #[pin]
            pause: Option<Sleep>,
            is_pausing: bool,
        },
        Text { text: Bytes },
    }
}

/// An upstream that stopped in the middle of its answer.
#[derive(Debug, thiserror::Error)]
#[error("the upstream paused for too long in the middle of its answer")]
struct Stalled;

impl ProxyBody {
    pub(crate) const fn text(text: Bytes) -> Self {
        Self {
            kind: Kind::Text { text },
        }
    }

    /// The body of an upstream, which may not pause for longer than `pace`.
    pub(crate) fn of_upstream(
        incoming: Incoming,
        lease: Option<Lease>,
        place: Option<HeldPlace>,
        pace: Duration,
    ) -> Self {
        Self {
            kind: Kind::Upstream {
                received: Received::new(incoming, lease, place),
                pace,
                pause: None,
                is_pausing: false,
            },
        }
    }

    /// The length of a text of the gateway's own, in bytes.
    pub(crate) fn text_length(&self) -> usize {
        match &self.kind {
            Kind::Upstream { .. } => 0,
            Kind::Text { text } => text.len(),
        }
    }
}

impl Body for ProxyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (received, pace, mut pause, is_pausing) = match self.project().kind.project() {
            KindNow::Text { text } if text.is_empty() => return Poll::Ready(None),
            KindNow::Text { text } => {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(text)))));
            }
            KindNow::Upstream {
                received,
                pace,
                pause,
                is_pausing,
            } => (received, pace, pause, is_pausing),
        };
        let Some(incoming) = received.incoming_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut *incoming).poll_frame(cx) {
            Poll::Ready(frame) => {
                *is_pausing = false;
                match &frame {
                    None => received.over(),
                    Some(Ok(_)) if incoming.is_end_stream() => received.over(),
                    Some(Ok(_)) => {}
                    Some(Err(_)) => received.broken(),
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => {
                if !std::mem::replace(is_pausing, true) {
                    match pause.as_mut().as_pin_mut() {
                        Some(pause) => pause.reset(Instant::now() + *pace),
                        None => pause.set(Some(sleep(*pace))),
                    }
                }
                let is_over = pause.as_pin_mut().is_some_and(|it| it.poll(cx).is_ready());
                match is_over {
                    true => {
                        received.broken();
                        Poll::Ready(Some(Err(Stalled.into())))
                    }
                    false => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Upstream { received, .. } => received.incoming().is_none_or(Body::is_end_stream),
            Kind::Text { text } => text.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Upstream { received, .. } => {
                let none = SizeHint::with_exact(0);
                received.incoming().map_or(none, Body::size_hint)
            }
            Kind::Text { text } => SizeHint::with_exact(text.len() as u64),
        }
    }
}
