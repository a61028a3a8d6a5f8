//! A copy of a short body, for a request that is sent again.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use http::HeaderMap;
use hyper::body::Frame;
use parking_lot::Mutex;

use super::RequestBody;
use super::progress::Progress;

/// The most that is kept of one body while its request waits for an answer, in bytes: no more than is buffered of one that
/// an upstream does not take.
const COPY_BYTES_MAX: usize = 64 << 10;

/// A copy of what an upstream got of a body.
#[derive(Debug)]
pub(crate) struct BodyCopy {
    copied: Arc<Mutex<Copied>>,
    progress: Arc<Progress>,
}

/// The writer of a copy, as long as that is wanted.
#[derive(Debug)]
pub(super) struct Copier(Weak<Mutex<Copied>>);

#[derive(Debug, Default)]
struct Copied {
    pieces: Vec<Piece>,
    bytes: usize,
    is_too_long: bool,
    /// True once the last piece is there.
    is_whole: bool,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    Trailers(HeaderMap),
}

impl BodyCopy {
    pub(super) fn new(progress: &Arc<Progress>) -> Self {
        Self {
            copied: Arc::default(),
            progress: Arc::clone(progress),
        }
    }

    pub(super) fn copier(&self) -> Copier {
        Copier(Arc::downgrade(&self.copied))
    }

    /// The body, to be sent from its beginning; None if the copy is not whole.
    pub(crate) fn into_body(self) -> Option<RequestBody> {
        let copied = std::mem::take(&mut *self.copied.lock());
        if !copied.is_whole || copied.is_too_long {
            return None;
        }
        let frames: VecDeque<Frame<Bytes>> = copied
            .pieces
            .into_iter()
            .map(|piece| match piece {
                Piece::Data(data) => Frame::data(data),
                Piece::Trailers(trailers) => Frame::trailers(trailers),
            })
            .collect();
        Some(RequestBody::copied(frames, copied.bytes, self.progress))
    }
}

impl Copier {
    /// Adds the next frame, if there is one, and notes whether more may follow.
    pub(super) fn add(&self, frame: Option<&Frame<Bytes>>, is_last: bool) {
        let Some(copied) = self.0.upgrade() else {
            return;
        };
        let mut copied = copied.lock();
        copied.is_whole |= is_last;
        let Some(frame) = frame else {
            return;
        };
        copied.bytes += frame.data_ref().map_or(0, Bytes::len);
        copied.is_too_long |= copied.bytes > COPY_BYTES_MAX;
        if copied.is_too_long {
            copied.pieces = Vec::new();
            return;
        }
        let data = frame.data_ref().cloned().map(Piece::Data);
        let piece = data.or_else(|| frame.trailers_ref().cloned().map(Piece::Trailers));
        copied.pieces.extend(piece);
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// A body of pieces of that length.
    fn body(lengths: &[usize]) -> RequestBody {
        let piece = |length: &usize| Frame::data(Bytes::from(vec![b'x'; *length]));
        let frames = lengths.iter().map(piece).collect();
        RequestBody::copied(frames, lengths.iter().sum(), Arc::default())
    }

    #[tokio::test]
    async fn a_body_is_copied_if_it_is_short_and_all_of_it_was_read() {
        const MAX: usize = COPY_BYTES_MAX;
        for (lengths, read, copied) in [
            (&[1, 2][..], 2, Some(3)),
            (&[1, 2], 1, None),
            (&[1, 2], 0, None),
            (&[1, MAX - 1], 2, Some(MAX)),
            (&[1, MAX], 2, None),
            (&[MAX + 1, 1], 2, None),
        ] {
            let mut body = body(lengths);
            let copy = body.copy().expect("there is a body");
            for _ in 0..read {
                assert!(body.frame().await.is_some_and(|frame| frame.is_ok()));
            }
            let again = copy.into_body();
            let length = match again {
                Some(again) => {
                    let bytes = again.collect().await.expect("it is there").to_bytes();
                    Some(bytes.len())
                }
                None => None,
            };
            assert_eq!(length, copied, "{read} of {lengths:?}");
        }
    }
}
