//! The bodies of requests and answers, streamed through the gateway piece by piece.

mod answer;
mod copy;
mod held_slot;
mod kept_bytes;
mod leftover;
mod progress;
mod received;
mod timing;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Request, Version};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use ratekeeper_http::{BodyScanner, ClientHeader};
use ratekeeper_server::{Fault as BoxError, Patience};
use ratekeeper_tower::RequestBytes;

pub(crate) use self::answer::AnswerBody;
pub use self::answer::ProxyBody;
pub(crate) use self::copy::BodyCopy;
use self::copy::Copier;
pub(crate) use self::held_slot::{Finish, HeldSlot, SlotAndPermits};
use self::kept_bytes::AHEAD_MAX;
pub(crate) use self::kept_bytes::{KeptBytes, KeptSums};
pub(crate) use self::progress::Progress;
use self::timing::Timing;
use crate::fault::Fault;
use crate::head::clean_trailers;
use crate::media_type::is_stream;

/// A client's body on its way to an upstream.
#[derive(Debug)]
pub struct RequestBody {
    /// None for a request without a body. Boxed: most requests have none, and each is moved often.
    coming: Option<Box<Coming>>,
}

/// A body of which more may come.
#[derive(Debug)]
struct Coming {
    /// None once this is dropped.
    incoming: Option<Incoming>,
    left: u64,
    /// The most that may pass, in bytes.
    bytes_max: u64,
    progress: Arc<Progress>,
    /// None if the head tells the length.
    bytes: Option<RequestBytes>,
    is_http2: bool,
    /// The header with the client's address, which no trailer may be.
    client_header: ClientHeader,
    /// True for a streaming call, whose client may take as long as it likes once the decision is made.
    is_stream: bool,
    /// None if any client may.
    timing: Option<Timing>,
    /// The part that came before the decision, and goes to the upstream first.
    ahead: Option<Ahead>,
    /// Looks for values that contradict those that decided.
    scanner: Option<Box<BodyScanner>>,
    /// Gets all that goes to the upstream.
    copier: Option<Copier>,
}

/// The part of a body that came before the decision.
#[derive(Debug)]
struct Ahead {
    frames: VecDeque<Frame<Bytes>>,
    bytes: usize,
    /// None for a copy, which is no longer than what is buffered of any body.
    kept: Option<KeptBytes>,
    /// True if the body ended with it.
    is_over: bool,
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
    #[error("the request's body has a value twice that limits go by, or is no JSON behind it")]
    Ambiguous,
}

impl RequestBody {
    /// The body of `request`, of which at most `bytes_max` pass, no slower than `patience` allows, and no trailer that is
    /// `client_header`. Streaming calls (gRPC, Connect) may be silent for as long as they like, once the decision is made.
    pub(crate) fn of(
        mut request: Request<Incoming>,
        bytes_max: u64,
        patience: Patience,
        client_header: &ClientHeader,
    ) -> Request<Self> {
        let is_http2 = request.version() == Version::HTTP_2;
        if request.body().is_end_stream() {
            return request.map(|_| Self::none());
        }
        let is_stream = is_stream(request.headers());
        // An estimate of its usage goes by its length.
        let bytes = (!request.headers().contains_key(CONTENT_LENGTH)).then(RequestBytes::default);
        if let Some(bytes) = &bytes {
            request.extensions_mut().insert(bytes.clone());
        }
        request.map(|incoming| Self {
            coming: Some(Box::new(Coming {
                incoming: Some(incoming),
                left: bytes_max,
                bytes_max,
                progress: Arc::default(),
                bytes,
                is_http2,
                client_header: client_header.clone(),
                is_stream,
                timing: Timing::new(patience),
                ahead: None,
                scanner: None,
                copier: None,
            })),
        })
    }

    /// All of a body that was there before.
    fn copied(frames: VecDeque<Frame<Bytes>>, bytes: usize, progress: Arc<Progress>) -> Self {
        let ahead = Ahead {
            frames,
            bytes,
            kept: None,
            is_over: true,
        };
        Self {
            coming: Some(Box::new(Coming {
                incoming: None,
                left: 0,
                bytes_max: 0,
                progress,
                bytes: None,
                is_http2: false,
                client_header: ClientHeader::default(),
                is_stream: false,
                timing: None,
                ahead: Some(ahead),
                scanner: None,
                copier: None,
            })),
        }
    }

    /// Has what goes to the upstream copied, as long as it is short; None if there is no body.
    pub(crate) fn copy(&mut self) -> Option<BodyCopy> {
        let coming = self.coming.as_mut()?;
        let copy = BodyCopy::new(&coming.progress);
        coming.copier = Some(copy.copier());
        Some(copy)
    }

    pub(crate) const fn none() -> Self {
        Self { coming: None }
    }

    /// The progress of the body; None if there is no body.
    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        let coming = self.coming.as_ref()?;
        Some(Arc::clone(&coming.progress))
    }

    /// Keeps what is read of it before the decision, as far as there is room.
    pub(crate) fn keep(&mut self, kept: KeptBytes) {
        if let Some(coming) = &mut self.coming {
            coming.ahead = Some(Ahead {
                frames: VecDeque::new(),
                bytes: 0,
                kept: Some(kept),
                is_over: false,
            });
        }
    }

    /// The first piece that was kept.
    pub(crate) fn ahead(&self) -> Option<&Bytes> {
        let ahead = self.coming.as_ref()?.ahead.as_ref()?;
        ahead.frames.front()?.data_ref()
    }

    /// Reads and [keeps](Self::keep) the next piece; None at the end.
    pub(crate) fn poll_ahead(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, Fault>> {
        match &mut self.coming {
            Some(coming) => coming.poll_ahead(cx),
            None => Poll::Ready(Ok(None)),
        }
    }

    /// Has `scanner` look through the rest for values that contradict those it has.
    pub(crate) fn watch(&mut self, scanner: BodyScanner) {
        if let Some(coming) = &mut self.coming {
            coming.scanner = Some(Box::new(scanner));
        }
    }
}

/// Strips from trailers the fields that only a head may carry.
fn without_claims(frame: Frame<Bytes>, client_header: &ClientHeader) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            clean_trailers(&mut trailers, client_header);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        if self.is_http2
            && !self.progress.is_done()
            && !self.progress.is_broken()
            && let Some(incoming) = self.incoming.take()
        {
            leftover::discard(incoming);
        }
    }
}

/// The next frame of a body, or its end.
type NextFrame = Option<Result<Frame<Bytes>, BadBody>>;

impl Coming {
    fn record(&self, record: impl FnOnce(&Progress)) {
        record(&self.progress);
    }

    /// The next frame that comes from the client.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<NextFrame> {
        let Some(incoming) = &mut self.incoming else {
            return Poll::Ready(None);
        };
        let Poll::Ready(frame) = Pin::new(&mut *incoming).poll_frame(cx) else {
            self.record(|progress| progress.is_awaited.store(true, Ordering::Relaxed));
            let is_timed = !self.is_stream || self.ahead.is_some();
            if is_timed && self.timing.as_mut().is_some_and(|it| it.is_over(cx)) {
                self.record(|progress| progress.is_too_slow.store(true, Ordering::Relaxed));
                return Poll::Ready(Some(Err(BadBody::TooSlow)));
            }
            return Poll::Pending;
        };
        self.record(|progress| progress.is_awaited.store(false, Ordering::Relaxed));
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
                        if let Some(bytes) = &self.bytes {
                            bytes.add(length);
                        }
                        self.record(Progress::record_frame);
                        if is_over {
                            self.record(|progress| progress.is_done.store(true, Ordering::Relaxed));
                        }
                        Some(Ok(without_claims(frame, &self.client_header)))
                    }
                    None => {
                        self.record(|progress| {
                            progress.is_too_large.store(true, Ordering::Relaxed)
                        });
                        Some(Err(BadBody::TooLarge))
                    }
                }
            }
            Some(Err(error)) => {
                self.record(|progress| progress.is_broken.store(true, Ordering::Relaxed));
                Some(Err(BadBody::Broken(error)))
            }
            None => {
                self.record(|progress| progress.is_done.store(true, Ordering::Relaxed));
                None
            }
        })
    }

    /// Reads and keeps the next piece; None at the end.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Fault>> {
        let frame = match ready!(self.poll_incoming(cx)) {
            None => None,
            Some(Ok(frame)) => Some(frame),
            Some(Err(error)) => {
                return Poll::Ready(Err(match error {
                    BadBody::TooLarge => Fault::TooLarge(self.bytes_max),
                    BadBody::TooSlow => Fault::BodyTooSlow,
                    BadBody::Broken(_) | BadBody::Ambiguous => Fault::BadBody,
                }));
            }
        };
        let Some(ahead) = &mut self.ahead else {
            return Poll::Ready(Ok(None));
        };
        let Some(frame) = frame else {
            ahead.is_over = true;
            return Poll::Ready(Ok(None));
        };
        let data = frame.data_ref().cloned();
        let length = data.as_ref().map_or(0, Bytes::len);
        ahead.bytes += length;
        ahead.frames.push_back(frame);
        if ahead.kept.as_mut().is_some_and(|kept| !kept.add(length)) {
            return Poll::Ready(Err(Fault::NoRoomForBody));
        }
        if ahead.bytes > AHEAD_MAX {
            return Poll::Ready(Err(Fault::Unread(AHEAD_MAX)));
        }
        // Trailers are the last frame, and have no data.
        Poll::Ready(Ok(data))
    }

    /// Looks through a frame behind those that decided.
    fn watched(&mut self, frame: Frame<Bytes>) -> Result<Frame<Bytes>, BadBody> {
        if let (Some(scanner), Some(data)) = (&mut self.scanner, frame.data_ref()) {
            scanner.feed(data);
            // Behind what is no JSON, lenient readers may find another value.
            if scanner.check().is_err() || scanner.is_broken() {
                self.record(|progress| progress.is_broken.store(true, Ordering::Relaxed));
                return Err(BadBody::Ambiguous);
            }
        }
        Ok(frame)
    }
}

impl Coming {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(ahead) = &mut self.ahead {
            if let Some(frame) = ahead.frames.pop_front() {
                ahead.bytes -= frame.data_ref().map_or(0, Bytes::len);
                return Poll::Ready(Some(Ok(frame)));
            }
            if ahead.is_over {
                return Poll::Ready(None);
            }
            self.ahead = None;
        }
        let frame = ready!(self.poll_incoming(cx));
        Poll::Ready(frame.map(|frame| {
            let watched = frame.and_then(|frame| self.watched(frame));
            watched.map_err(Into::into)
        }))
    }

    fn is_end_stream(&self) -> bool {
        let ahead = self.ahead.as_ref();
        ahead.is_none_or(|ahead| ahead.frames.is_empty())
            && self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let none = SizeHint::with_exact(0);
        let mut hint = self.incoming.as_ref().map_or(none, Body::size_hint);
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.bytes as u64);
        match hint.upper() {
            Some(upper) => {
                hint.set_upper(upper.saturating_add(ahead));
                hint.set_lower(hint.lower().saturating_add(ahead));
            }
            None => hint.set_lower(hint.lower().saturating_add(ahead)),
        }
        hint
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(coming) = &mut self.coming else {
            return Poll::Ready(None);
        };
        let frame = ready!(coming.poll_frame(cx));
        if let Some(copier) = &coming.copier
            && !matches!(frame, Some(Err(_)))
        {
            let is_last = frame.is_none() || coming.is_end_stream();
            copier.add(frame.as_ref().and_then(|it| it.as_ref().ok()), is_last);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.coming.as_ref().is_none_or(|it| it.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let none = SizeHint::with_exact(0);
        self.coming.as_ref().map_or(none, |it| it.size_hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is moved some ten times between its sockets, within a request or an answer.
    #[test]
    fn bodies_take_no_room_where_they_are_moved() {
        assert_eq!(size_of::<RequestBody>(), size_of::<usize>());
        assert_eq!(size_of::<ProxyBody>(), size_of::<Bytes>());
    }
}
