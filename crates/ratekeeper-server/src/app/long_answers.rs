//! The bytes that long answers may take until their clients have read them.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most checks whose answers count as short.
const CHECKS_OF_SHORT: usize = 64;

/// The approximate size of one check's answer, in bytes.
const BYTES_OF_CHECK: usize = 400;

/// The KiB that all long answers may take at a time.
#[derive(Debug)]
pub(crate) struct LongAnswers(Arc<Semaphore>);

/// The room of one long answer, free again when this is dropped; none for a short one.
pub(crate) type AnswerRoom = Option<OwnedSemaphorePermit>;

/// Too many bytes wait to be read.
#[derive(Debug, thiserror::Error)]
#[error("too many long answers wait to be taken; ask for fewer checks at once")]
pub(crate) struct NoAnswerRoom;

impl LongAnswers {
    pub(crate) fn new(bytes_max: usize) -> Self {
        let kib = (bytes_max >> 10).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Semaphore::new(kib)))
    }

    /// Reserves room for the answer to this many checks, before anything is decided.
    ///
    /// # Errors
    /// Too many bytes wait to be read.
    pub(crate) fn room(&self, checks: usize) -> Result<AnswerRoom, NoAnswerRoom> {
        if checks <= CHECKS_OF_SHORT {
            return Ok(None);
        }
        let kib = u32::try_from((checks * BYTES_OF_CHECK) >> 10).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.0).try_acquire_many_owned(kib);
        room.map(Some).map_err(|_| NoAnswerRoom)
    }
}
