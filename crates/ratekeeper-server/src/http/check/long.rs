//! Answers to many checks, which are long: only a bounded amount of them is kept for clients that
//! do not take them.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::ApiError;

/// The most checks whose answers count as short.
const CHECKS_OF_SHORT: usize = 64;

/// About what one check is answered, in bytes.
const BYTES_OF_CHECK: usize = 400;

/// So much of an answer is handed over at a time. The connection keeps about two of these, and the
/// rest is here, and counted.
const PIECE: usize = 16 << 10;

/// The KiB that all long answers may take at a time.
#[derive(Debug)]
pub(crate) struct LongAnswers(Arc<Semaphore>);

impl LongAnswers {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let kib = (bytes_max >> 10).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Reserves room for the answer to this many checks, before anything is decided; none for a
    /// short one.
    ///
    /// # Errors
    /// Too many bytes wait to be taken.
    pub(crate) fn room(&self, checks: usize) -> Result<Option<OwnedSemaphorePermit>, NoRoom> {
        if checks <= CHECKS_OF_SHORT {
            return Ok(None);
        }
        let kib = u32::try_from((checks * BYTES_OF_CHECK) >> 10).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.0).try_acquire_many_owned(kib);
        room.map(Some).map_err(|_| NoRoom)
    }
}

/// Too many long answers wait to be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NoRoom;

impl NoRoom {
    pub(crate) const MESSAGE: &str =
        "too many long answers wait to be taken; ask for fewer checks at once";
}

impl From<NoRoom> for ApiError {
    fn from(_: NoRoom) -> Self {
        Self::unavailable(NoRoom::MESSAGE)
    }
}

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
