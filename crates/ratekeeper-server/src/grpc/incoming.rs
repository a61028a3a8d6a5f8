//! The messages that come on a stream, one at a time.
//!
//! tonic reads all messages of a stream into one buffer, which grows to the longest of them and stays as long as the stream
//! does. Here each message has a buffer of its own, and so much time from when it has begun: an idle stream holds nothing,
//! and no message that never ends holds room for longer than a request may take.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::Body as StreamBody;
use bytes::{Bytes, BytesMut};
use futures_util::stream::unfold;
use hyper::body::Body;
use ratekeeper_proto::{Codec, Nesting, SHORT_BYTES_MAX, decode};
use tokio::task::yield_now;
use tokio::time::timeout;
use tonic::codec::Codec as _;
use tonic::{Code, Status, Streaming};

use super::direct::PREFIX_BYTES;
use crate::app::App;
use crate::listen::Fault;
use crate::listen::reading::{ReadingRoom, TakenRoom};

/// The messages of a body.
pub(super) struct Incoming<B> {
    body: B,
    bounds: MessageBounds,
    /// The bytes that came along with the end of the last message.
    rest: Bytes,
}

/// The bounds of each message.
#[derive(Clone, Debug)]
pub(super) struct MessageBounds {
    bytes_max: usize,
    /// The time from its first bytes to its last.
    within: Duration,
    room: ReadingRoom,
}

impl MessageBounds {
    pub(super) fn of(app: &App) -> Self {
        let bounds = &app.config.bounds;
        Self {
            bytes_max: bounds.message_bytes_max,
            within: bounds.request_timeout,
            room: app.reading_room.clone(),
        }
    }

    /// The same for messages that need not be long.
    pub(super) fn short(self) -> Self {
        Self {
            bytes_max: self.bytes_max.min(SHORT_BYTES_MAX),
            ..self
        }
    }
}

/// A message, as far as it was read.
pub(super) struct Message {
    /// Begins with its prefix.
    bytes: Bytes,
    /// False if it is compressed or too long, or if the body ended within it: a mistake, for which tonic has the words.
    is_plain: bool,
    bytes_max: usize,
    /// The room that it takes; none if it is short.
    pub(super) room: Option<TakenRoom>,
}

/// A part of a body.
enum Piece {
    Data(Bytes),
    /// tonic takes both for a stream that has ended well, wherever it was.
    TrailersOrCancelled,
    End,
}

/// The bytes of a message, with its prefix.
enum Length {
    Unknown,
    Unfit,
    Told(usize),
}

impl<B> Incoming<B>
where
    B: Body<Data = Bytes, Error: Into<Fault>> + Unpin,
{
    pub(super) const fn new(body: B, bounds: MessageBounds) -> Self {
        let rest = Bytes::new();
        Self { body, bounds, rest }
    }

    /// Waits for the next message; none at the end.
    ///
    /// # Errors
    /// The body fails, a message takes too long, or there is no room for it.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Status> {
        while self.rest.is_empty() {
            match self.piece().await? {
                Piece::Data(data) => self.rest = data,
                Piece::TrailersOrCancelled | Piece::End => return Ok(None),
            }
        }
        // Nearly all come in one piece.
        if let Length::Told(length) = self.length(&self.rest)
            && length <= self.rest.len().min(SHORT_BYTES_MAX)
        {
            let bytes = self.rest.split_to(length);
            return Ok(Some(self.message(bytes, true, None)));
        }
        // The last answer goes out first. tonic asks for this message in the poll that gives that answer, and while its
        // client takes none, nothing polls again: no time would end what is held of a message by then.
        yield_now().await;
        match timeout(self.bounds.within, self.gather()).await {
            Ok(message) => message,
            Err(_) => Err(Status::deadline_exceeded("a message took too long to come")),
        }
    }

    /// Waits for all of a message that has begun.
    async fn gather(&mut self) -> Result<Option<Message>, Status> {
        let (mut bytes, mut room) = (BytesMut::new(), None);
        loop {
            let length = match self.length(&bytes) {
                Length::Unknown => PREFIX_BYTES,
                Length::Told(length) if length > bytes.len() => length,
                fit => {
                    let is_plain = matches!(fit, Length::Told(_));
                    return Ok(Some(self.message(bytes.freeze(), is_plain, room)));
                }
            };
            if self.rest.is_empty() {
                match self.piece().await? {
                    Piece::Data(data) => self.rest = data,
                    Piece::TrailersOrCancelled => return Ok(None),
                    Piece::End => return Ok(Some(self.message(bytes.freeze(), false, room))),
                }
            }
            let missing = (length - bytes.len()).min(self.rest.len());
            bytes.extend_from_slice(&self.rest.split_to(missing));
            if bytes.len() > SHORT_BYTES_MAX {
                let room = room.get_or_insert_with(|| self.bounds.room.take_none());
                room.grow(bytes.len())?;
            }
        }
    }

    fn message(&self, bytes: Bytes, is_plain: bool, room: Option<TakenRoom>) -> Message {
        Message {
            bytes,
            is_plain,
            bytes_max: self.bounds.bytes_max,
            room,
        }
    }

    /// The bytes that a message has which begins with these.
    fn length(&self, bytes: &[u8]) -> Length {
        let Some(&[flag, ref length @ ..]) = bytes.first_chunk::<PREFIX_BYTES>() else {
            return Length::Unknown;
        };
        let length = u32::from_be_bytes(*length) as usize;
        match flag == 0 && length <= self.bounds.bytes_max {
            true => Length::Told(PREFIX_BYTES + length),
            false => Length::Unfit,
        }
    }

    async fn piece(&mut self) -> Result<Piece, Status> {
        let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await;
        match frame {
            None => Ok(Piece::End),
            Some(Ok(frame)) => Ok(frame
                .into_data()
                .map_or(Piece::TrailersOrCancelled, Piece::Data)),
            Some(Err(error)) => match Status::from_error(error.into()) {
                status if status.code() == Code::Cancelled => Ok(Piece::TrailersOrCancelled),
                status => Err(status),
            },
        }
    }

    /// The same messages for tonic to read, as whole as they are.
    pub(super) fn into_body(self) -> StreamBody
    where
        B: Send + 'static,
    {
        StreamBody::from_stream(unfold(Some(self), async |incoming| {
            let mut incoming = incoming?;
            match incoming.next().await {
                Ok(message) => Some((Ok(message?.bytes), Some(incoming))),
                Err(status) => Some((Err(status), None)),
            }
        }))
    }
}

impl Message {
    /// Reads it; none if it is none.
    ///
    /// # Errors
    /// Those of tonic, and of our codec.
    pub(super) async fn read<M: Nesting + Send + 'static>(&mut self) -> Result<Option<M>, Status> {
        let mut bytes = std::mem::take(&mut self.bytes);
        if self.is_plain {
            return decode(bytes.split_off(PREFIX_BYTES)).map(Some);
        }
        let decoder = Codec::<M, M>::default().decoder();
        let body = StreamBody::from(bytes);
        let mut read = Streaming::new_request(decoder, body, None, Some(self.bytes_max));
        read.message().await
    }
}

#[cfg(test)]
mod tests;
