//! The bytes that long answers may take until their clients have read them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most descriptors, of all checks together, whose answers count as short.
const DESCRIPTORS_OF_SHORT: usize = 64;

/// The approximate size of the answer to a check of one descriptor, in bytes. Each further descriptor has a status, and may
/// have a part of `standing`.
const BYTES_OF_DESCRIPTOR: usize = 400;

/// The KiB that all long answers may take at a time.
#[derive(Debug)]
pub(crate) struct LongAnswers(Arc<Semaphore>);

/// The room of one long answer, free again when this is dropped; none for a short one.
pub(crate) type AnswerRoom = Option<OwnedSemaphorePermit>;

/// Too many bytes wait to be read.
#[derive(Debug, thiserror::Error)]
#[error("too many long answers wait to be taken; ask for fewer checks or descriptors at once")]
pub(crate) struct NoAnswerRoom;

impl LongAnswers {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let kib = (bytes_max >> 10).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Reserves room for the answer to checks that have this many descriptors together, before anything is decided.
    ///
    /// # Errors
    /// Too many bytes wait to be read.
    pub(crate) fn room(&self, descriptors: usize) -> Result<AnswerRoom, NoAnswerRoom> {
        if descriptors <= DESCRIPTORS_OF_SHORT {
            return Ok(None);
        }
        let kib = u32::try_from((descriptors * BYTES_OF_DESCRIPTOR) >> 10).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.0).try_acquire_many_owned(kib);
        room.map(Some).map_err(|_| NoAnswerRoom)
    }
}
