//! Room for the long messages that are being read, over all connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
        self.bound_as(body, None)
    }

    /// Bounds the messages of `body`, each of which gRPC prefixes with its length.
    pub(crate) fn bound_messages<B>(&self, body: B) -> ReadBody<B> {
        self.bound_as(body, Some(Messages::default()))
    }

    fn bound_as<B>(&self, body: B, messages: Option<Messages>) -> ReadBody<B> {
        ReadBody {
            body,
            room: self.clone(),
            messages,
            read: 0,
            held: None,
        }
    }

    fn take(&self, kib: usize) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(kib).ok()?;
        Arc::clone(&self.0).try_acquire_many_owned(kib).ok()
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

/// Follows the messages of a gRPC body: a byte for the compression, four for the length, and so many bytes.
#[derive(Debug, Default)]
struct Messages {
    prefix: [u8; PREFIX_BYTES],
    /// The bytes of the message that have come, with its prefix.
    read: usize,
}

const PREFIX_BYTES: usize = 5;

impl Messages {
    /// The bytes of the last message that has begun, once `data` has come.
    fn pass(&mut self, mut data: &[u8]) -> usize {
        while let Some(first) = data.first() {
            if self.is_whole() {
                self.read = 0;
            }
            if let Some(byte) = self.prefix.get_mut(self.read) {
                *byte = *first;
                (self.read, data) = (self.read + 1, &data[1..]);
                continue;
            }
            let (_, rest) = data.split_at((self.whole() - self.read).min(data.len()));
            self.read += data.len() - rest.len();
            data = rest;
        }
        self.read
    }

    /// Returns true if the last message that has begun has come.
    const fn is_whole(&self) -> bool {
        self.read >= PREFIX_BYTES && self.read >= self.whole()
    }

    /// The bytes that the message has in all.
    const fn whole(&self) -> usize {
        let [_, a, b, c, d] = self.prefix;
        PREFIX_BYTES.saturating_add(u32::from_be_bytes([a, b, c, d]) as usize)
    }
}

pin_project! {
    /// A body that takes room for what it has read of a message beyond a short one, until the next message comes or it is
    /// dropped.
    #[derive(Debug)]
    pub(crate) struct ReadBody<B> {
        #[pin]
        body: B,
        room: ReadingRoom,
        messages: Option<Messages>,
        read: usize,
        held: Option<OwnedSemaphorePermit>,
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
        if this.messages.as_ref().is_some_and(Messages::is_whole) {
            // It has been taken: more is asked for.
            *this.held = None;
        }
        let frame = this.body.poll_frame(cx).map_err(Into::into);
        let Poll::Ready(Some(Ok(data))) = &frame else {
            return frame;
        };
        let data = data.data_ref().map_or(&[][..], |data| data);
        let read = match this.messages {
            None => *this.read + data.len(),
            Some(messages) => messages.pass(data),
        };
        if read < *this.read {
            // Another message.
            *this.held = None;
        }
        *this.read = read;
        if *this.read > SHORT_BYTES_MAX
            && let Err(error) = take_up_to(*this.read, this.held, this.room)
        {
            return Poll::Ready(Some(Err(Box::new(Status::from(error)))));
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cold]
fn take_up_to(
    bytes: usize,
    held: &mut Option<OwnedSemaphorePermit>,
    room: &ReadingRoom,
) -> Result<(), NoReadingRoom> {
    let has = held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
    let more = bytes.div_ceil(1 << 10).saturating_sub(has);
    let more = room.take(more).ok_or(NoReadingRoom)?;
    match held {
        Some(held) => held.merge(more),
        None => *held = Some(more),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
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

    /// A gRPC message of so many bytes.
    fn message(bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
        [&[0], &length[..], &vec![7; bytes]].concat()
    }

    #[test]
    fn messages_are_followed_however_they_are_cut() {
        let data = [message(300), message(0), message(70_000), message(3)].concat();
        for piece in [1, 2, 3, 5, 7, 1_000, 16_384, data.len()] {
            let (mut messages, mut most) = (Messages::default(), 0);
            for piece in data.chunks(piece) {
                most = most.max(messages.pass(piece));
            }
            assert_eq!(messages.pass(&[]), 8);
            assert!(most <= 70_005, "{most}");
        }
    }

    /// A stream of checks goes on for hours.
    #[tokio::test]
    async fn messages_that_were_read_need_no_room() {
        let room = ReadingRoom::new(100 << 10);
        let sent = [message(90 << 10), message(90 << 10), message(100)].concat();
        let pieces = sent
            .chunks(16_384)
            .map(|piece| Ok::<_, Fault>(Frame::data(Bytes::copy_from_slice(piece))));
        let pieces: Vec<_> = pieces.collect();
        let mut body = room.bound_messages(http_body_util::StreamBody::new(
            futures_util::stream::iter(pieces),
        ));
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            read += frame
                .expect("there is room")
                .into_data()
                .expect("no trailers")
                .len();
        }
        assert_eq!(read, sent.len());
        assert_eq!(room.0.available_permits(), 100, "the last message is short");
        let long = message(90 << 10);
        let pieces = long
            .chunks(16_384)
            .map(|piece| Ok::<_, Fault>(Frame::data(Bytes::copy_from_slice(piece))));
        let pieces: Vec<_> = pieces.collect();
        let stream = futures_util::stream::iter(pieces).chain(futures_util::stream::pending());
        let mut body = room.bound_messages(http_body_util::StreamBody::new(stream));
        for _ in long.chunks(16_384) {
            body.frame().await.expect("a frame").expect("there is room");
        }
        assert!(room.0.available_permits() < 100);
        assert!(body.frame().now_or_never().is_none());
        assert_eq!(room.0.available_permits(), 100, "it has been read");
    }
}
