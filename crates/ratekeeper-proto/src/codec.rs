//! The codec of messages on the wire.

use std::marker::PhantomData;

use bytes::Buf;
use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use crate::nesting::{self, Nesting};

/// The size of a call's two buffers, in bytes. Nearly all messages are smaller; for others the buffers grow.
///
/// tonic's 8 KiB are beyond what glibc's allocator keeps for each thread (1,032 bytes): it searches its shared lists for
/// them, and merges free chunks first, twice for each call.
const BUFFER_BYTES: usize = 1_000;

/// The bytes of a stream's messages that are sent together: tonic's own default.
const YIELD_BYTES: usize = 32 << 10;

fn buffers() -> BufferSettings {
    BufferSettings::new(BUFFER_BYTES, YIELD_BYTES)
}

/// Protobuf, with three differences from tonic's codec. Bytes that are not a valid message are not the server's fault
/// (`INTERNAL`) but `DATA_LOSS`, a code that no handler uses, so that a service can tell them apart. A long message
/// cannot make a reader allocate many times its size. Buffers begin small.
#[derive(Debug)]
pub struct Codec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Nesting + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = StrictDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(buffers())
    }

    fn decoder(&mut self) -> Self::Decoder {
        StrictDecoder(PhantomData)
    }
}

/// The decoder of [`Codec`].
#[derive(Debug)]
pub struct StrictDecoder<U>(PhantomData<U>);

impl<U: Nesting> Decoder for StrictDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buf: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        decode(buf).map(Some)
    }

    fn buffer_settings(&self) -> BufferSettings {
        buffers()
    }
}

/// Decodes `message` as [`Codec`] does. It has to be in one piece.
///
/// # Errors
/// `DATA_LOSS`: it is no such message, or a long one with too many items.
pub fn decode<M: Nesting>(message: impl Buf) -> Result<M, Status> {
    if message.remaining() > nesting::SHORT_BYTES_MAX {
        let bytes = message.chunk().get(..message.remaining());
        nesting::bound::<M>(bytes.unwrap_or_default()).map_err(Status::data_loss)?;
    }
    // prost's error has the path of the field that it could not read.
    M::decode(message).map_err(|error| Status::data_loss(error.to_string()))
}
