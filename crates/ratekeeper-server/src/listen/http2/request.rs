//! The body of a request, as it comes off its stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request};
use hyper::body::{Body, Frame};

/// The body of a request. It can be looked at as a whole first, and still be read as a stream afterwards.
#[derive(Debug)]
pub(crate) struct RequestBody {
    kept: Kept,
    rest: Rest,
}

/// The state of a body, judged by what has come of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gathered {
    /// More is to come.
    Begun,
    /// Only the end is to come.
    Whole,
    /// It is not to be gathered.
    Unfit,
}

/// The bytes that were read and not handed on.
#[derive(Debug)]
enum Kept {
    Nothing,
    One(Bytes),
    Several(BytesMut),
}

/// The rest of a stream, after the bytes that were read.
#[derive(Debug)]
enum Rest {
    Open(RecvStream),
    Nothing,
    Trailers(HeaderMap),
    Failed(h2::Error),
}

impl RequestBody {
    pub(super) const fn new(stream: RecvStream) -> Self {
        Self {
            kept: Kept::Nothing,
            rest: Rest::Open(stream),
        }
    }

    /// Takes `request` away from where it is; an empty one is left there.
    pub(crate) fn take(request: &mut Request<Self>) -> Request<Self> {
        let body = request.body_mut();
        let mut taken = Request::new(Self {
            kept: std::mem::replace(&mut body.kept, Kept::Nothing),
            rest: std::mem::replace(&mut body.rest, Rest::Nothing),
        });
        *taken.method_mut() = request.method().clone();
        *taken.version_mut() = request.version();
        *taken.uri_mut() = std::mem::take(request.uri_mut());
        *taken.headers_mut() = std::mem::take(request.headers_mut());
        *taken.extensions_mut() = std::mem::take(request.extensions_mut());
        taken
    }

    /// Waits for all of it. False if `judge` finds it unfit, if it has trailers or fails, or if its end does not come along
    /// with the rest: then it is to be read as a stream, from its beginning.
    pub(crate) async fn is_whole(&mut self, judge: impl Fn(&[u8]) -> Gathered) -> bool {
        poll_fn(|cx| self.poll_whole(cx, &judge)).await;
        matches!(self.rest, Rest::Nothing) && judge(self.bytes()) == Gathered::Whole
    }

    /// The bytes that were read and not handed on.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.kept.bytes()
    }

    /// Ready once it is whole, or is not waited for.
    fn poll_whole(&mut self, cx: &mut Context<'_>, judge: &impl Fn(&[u8]) -> Gathered) -> Poll<()> {
        while let Rest::Open(stream) = &mut self.rest {
            let gathered = judge(self.kept.bytes());
            if gathered == Gathered::Unfit {
                break;
            }
            match stream.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    if stream.is_end_stream() {
                        // The capacity is given back with the last handle of the stream, which is soon.
                        self.rest = Rest::Nothing;
                    } else {
                        release(stream, bytes.len());
                    }
                    self.kept.push(bytes);
                }
                Poll::Ready(Some(Err(error))) => self.rest = Rest::Failed(error),
                Poll::Ready(None) => self.rest = ready!(poll_trailers(stream, cx)),
                // A reader of streams may answer before the end.
                Poll::Pending if gathered == Gathered::Whole => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }
}

fn poll_trailers(stream: &mut RecvStream, cx: &mut Context<'_>) -> Poll<Rest> {
    let trailers = ready!(stream.poll_trailers(cx));
    Poll::Ready(match trailers {
        Ok(None) => Rest::Nothing,
        Ok(Some(trailers)) => Rest::Trailers(trailers),
        Err(error) => Rest::Failed(error),
    })
}

fn release(stream: &mut RecvStream, length: usize) {
    // It fails only if more is given back than came.
    let _ = stream.flow_control().release_capacity(length);
}

impl Kept {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Nothing => &[],
            Self::One(bytes) => bytes,
            Self::Several(bytes) => bytes,
        }
    }

    fn push(&mut self, more: Bytes) {
        if more.is_empty() {
            return;
        }
        *self = match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => Self::One(more),
            Self::One(first) => {
                let mut bytes = BytesMut::with_capacity(first.len() + more.len());
                bytes.extend_from_slice(&first);
                bytes.extend_from_slice(&more);
                Self::Several(bytes)
            }
            Self::Several(mut bytes) => {
                bytes.extend_from_slice(&more);
                Self::Several(bytes)
            }
        };
    }

    fn take(&mut self) -> Option<Bytes> {
        match std::mem::replace(self, Self::Nothing) {
            Self::Nothing => None,
            Self::One(bytes) => Some(bytes),
            Self::Several(bytes) => Some(bytes.freeze()),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        if let Some(bytes) = self.kept.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        if let Rest::Open(stream) = &mut self.rest {
            match ready!(stream.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    release(stream, bytes.len());
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => self.rest = Rest::Failed(error),
                None => self.rest = ready!(poll_trailers(stream, cx)),
            }
        }
        Poll::Ready(match std::mem::replace(&mut self.rest, Rest::Nothing) {
            Rest::Open(_) | Rest::Nothing => None,
            Rest::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            // RFC 9113, section 8.1: reading stops, and nothing has failed.
            Rest::Failed(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            Rest::Failed(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kept, Kept::Nothing)
            && match &self.rest {
                Rest::Open(stream) => stream.is_end_stream(),
                Rest::Nothing => true,
                Rest::Trailers(_) | Rest::Failed(_) => false,
            }
    }
}
