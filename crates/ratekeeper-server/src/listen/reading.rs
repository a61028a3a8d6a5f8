//! Room for the long messages that are being read, over all connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use ratekeeper_proto::SHORT_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::listen::Fault;

/// The KiB that all long messages may take while they are read.
#[derive(Clone, Debug)]
pub(crate) struct ReadingRoom(Arc<Semaphore>);

impl ReadingRoom {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let kib = (bytes_max >> 10).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Bounds `body`, which is one message.
    pub(crate) fn bound<B>(&self, body: B) -> ReadBody<B> {
        ReadBody {
            body,
            read: 0,
            room: self.take_none(),
        }
    }

    /// Begins to read a message.
    pub(crate) fn take_none(&self) -> TakenRoom {
        TakenRoom {
            room: self.clone(),
            held: None,
        }
    }

    fn take(&self, kib: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(kib).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(kib).ok()
    }
}

/// The room that one message takes until this is dropped.
#[derive(Debug)]
pub(crate) struct TakenRoom {
    room: ReadingRoom,
    held: Option<OwnedSemaphorePermit>,
}

impl TakenRoom {
    /// Takes room for `bytes` in all; a short message takes none.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), NoReadingRoom> {
        match bytes > SHORT_BYTES_MAX {
            true => self.grow_long(bytes),
            false => Ok(()),
        }
    }

    #[cold]
    fn grow_long(&mut self, bytes: usize) -> Result<(), NoReadingRoom> {
        let has = self.held.as_ref();
        let has = has.map_or(0, OwnedSemaphorePermit::num_permits);
        let more = bytes.div_ceil(1 << 10).saturating_sub(has);
        let more = self.room.take(more).ok_or(NoReadingRoom)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

/// Too many long messages are being read.
#[derive(Debug, thiserror::Error)]
#[error("too many long messages are being read")]
pub(crate) struct NoReadingRoom;

impl NoReadingRoom {
    /// Returns true if `error` has this cause.
    pub(crate) fn is_cause(error: &(dyn std::error::Error + 'static)) -> bool {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes.any(|cause| cause.is::<Self>())
    }
}

/// For gRPC, where it means the same as a message that is too large.
impl From<NoReadingRoom> for Status {
    fn from(error: NoReadingRoom) -> Self {
        let mut status = Self::out_of_range(error.to_string());
        status.set_source(Arc::new(error));
        status
    }
}

pin_project! {
    /// A body that takes room for what it has read beyond a short message, until it is dropped.
    #[derive(Debug)]
    pub(crate) struct ReadBody<B> {
        #[pin]
        body: B,
        read: usize,
        room: TakenRoom,
    }
}

impl<B: Body<Data = Bytes, Error: Into<Fault>>> Body for ReadBody<B> {
    type Data = Bytes;
    type Error = Fault;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Fault>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx).map_err(Into::into));
        if let Some(Ok(frame)) = &frame {
            *this.read += frame.data_ref().map_or(0, Bytes::len);
            if let Err(error) = this.room.grow(*this.read) {
                return Poll::Ready(Some(Err(Box::new(Status::from(error)))));
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    async fn read(room: &ReadingRoom, length: usize) -> Result<usize, Fault> {
        let body = Full::new(Bytes::from(vec![0; length]));
        let body = room.bound(body).collect().await?;
        Ok(body.to_bytes().len())
    }

    #[tokio::test]
    async fn long_messages_share_the_room_and_short_ones_need_none() {
        let room = ReadingRoom::new(100 << 10);
        assert_eq!(read(&room, 100 << 10).await.ok(), Some(100 << 10));
        let mut first = Box::pin(room.bound(Full::new(Bytes::from(vec![0; 90 << 10]))));
        assert!(
            first
                .as_mut()
                .frame()
                .await
                .is_some_and(|frame| frame.is_ok())
        );
        let refused = read(&room, 80 << 10).await.expect_err("10 KiB are left");
        assert!(NoReadingRoom::is_cause(&*refused), "{refused}");
        assert_eq!(
            read(&room, SHORT_BYTES_MAX).await.ok(),
            Some(SHORT_BYTES_MAX)
        );
        drop(first);
        assert_eq!(read(&room, 80 << 10).await.ok(), Some(80 << 10));
    }
}
