//! The body of a request, as it comes off its stream.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use h2::{Reason, RecvStream};
use http::HeaderMap;
use hyper::body::{Body, Frame};

/// The body of a request. It can be looked at as a whole first, and still be read as a stream afterwards.
#[derive(Debug)]
pub(crate) struct RequestBody {
    stream: RecvStream,
    kept: Kept,
    end: End,
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

/// The state of the stream after what was read.
#[derive(Debug)]
enum End {
    Open,
    /// Nothing follows what is kept.
    Done,
    Trailers(HeaderMap),
    Failed(h2::Error),
}

impl RequestBody {
    pub(super) const fn new(stream: RecvStream) -> Self {
        Self {
            stream,
            kept: Kept::Nothing,
            end: End::Open,
        }
    }

    /// Waits for all of it. None if `judge` finds it unfit, if it has trailers or fails, or if its end does not come along
    /// with the rest: then it is to be read as a stream, from its beginning.
    pub(crate) async fn whole(&mut self, judge: impl Fn(&[u8]) -> Gathered) -> Option<&[u8]> {
        poll_fn(|cx| self.poll_whole(cx, &judge)).await;
        let bytes = self.kept.bytes();
        let is_whole = matches!(self.end, End::Done) && judge(bytes) == Gathered::Whole;
        is_whole.then_some(bytes)
    }

    /// Ready once it is whole, or is not waited for.
    fn poll_whole(&mut self, cx: &mut Context<'_>, judge: &impl Fn(&[u8]) -> Gathered) -> Poll<()> {
        while matches!(self.end, End::Open) {
            let gathered = judge(self.kept.bytes());
            if gathered == Gathered::Unfit {
                break;
            }
            match self.stream.poll_data(cx) {
                Poll::Ready(Some(Ok(bytes))) => {
                    let length = bytes.len();
                    self.kept.push(bytes);
                    if self.stream.is_end_stream() {
                        // The capacity is given back when the stream is dropped, which is soon.
                        self.end = End::Done;
                    } else {
                        self.release(length);
                    }
                }
                Poll::Ready(Some(Err(error))) => self.end = End::Failed(error),
                Poll::Ready(None) => self.end = ready!(self.poll_trailers(cx)),
                // A reader of streams may answer before the end.
                Poll::Pending if gathered == Gathered::Whole => break,
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(())
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let trailers = ready!(self.stream.poll_trailers(cx));
        Poll::Ready(match trailers {
            Ok(None) => End::Done,
            Ok(Some(trailers)) => End::Trailers(trailers),
            Err(error) => End::Failed(error),
        })
    }

    fn release(&mut self, length: usize) {
        // It fails only if more is given back than came.
        let _ = self.stream.flow_control().release_capacity(length);
    }
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
        if matches!(self.end, End::Open) {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(bytes)) => {
                    self.release(bytes.len());
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Some(Err(error)) => self.end = End::Failed(error),
                None => self.end = ready!(self.poll_trailers(cx)),
            }
        }
        Poll::Ready(match std::mem::replace(&mut self.end, End::Done) {
            End::Open | End::Done => None,
            End::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
            // RFC 9113, section 8.1: reading stops, and nothing has failed.
            End::Failed(error) if error.reason() == Some(Reason::NO_ERROR) => None,
            End::Failed(error) => Some(Err(error)),
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.kept, Kept::Nothing)
            && match self.end {
                End::Open => self.stream.is_end_stream(),
                End::Done => true,
                End::Trailers(_) | End::Failed(_) => false,
            }
    }
}
