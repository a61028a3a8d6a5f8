//! Answers to many checks, which are long: [`LongAnswers`](crate::app::long_answers::LongAnswers) bounds what is
//! kept of them for clients that do not read.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

/// The bytes of an answer that are handed over at a time. The connection keeps about two of these;
/// the rest is here, and counted.
const PIECE: usize = 16 << 10;

/// A long answer, piece by piece.
#[derive(Debug)]
pub(super) struct LongBody {
    text: Bytes,
    /// Free again when all of it is handed over.
    _room: OwnedSemaphorePermit,
}

impl LongBody {
    pub(super) fn new(text: Vec<u8>, room: OwnedSemaphorePermit) -> Self {
        let text = text.into();
        Self { text, _room: room }
    }
}

impl Body for LongBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.text.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.text.len().min(PIECE);
        let piece = self.text.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.len() as u64)
    }
}
