//! The size of the store.

use super::MEMORY_SHARDS;
use super::table::{BUCKET_BYTES, BUCKETS_MAX, Table};

/// The size of a [`MemoryStore`](super::MemoryStore), fixed when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryConfig {
    /// Bytes for all counters together, at least [`Self::LEAST`] (1 MiB). Three quarters are the
    /// table, with 57 bytes a counter; 3/16 are for states that do not fit inline, 1/16 for records
    /// of idempotent requests. Memory is used as counters come.
    pub memory_limit: usize,
    /// The largest share of the table that one rule may hold, in percent: 1 to 100.
    pub max_share_percent: u8,
}

impl MemoryConfig {
    /// The smallest `memory_limit`.
    pub const LEAST: usize = 1 << 20;

    /// The default `memory_limit`: 256 MiB, 3.5 million counters.
    pub const DEFAULT_LIMIT: usize = 256 << 20;

    pub(super) fn sizes(self) -> Result<Sizes, MemoryError> {
        let Self {
            memory_limit,
            max_share_percent,
        } = self;
        if !(1..=100).contains(&max_share_percent) {
            return Err(MemoryError::ShareOutOfRange);
        }
        if memory_limit < Self::LEAST {
            return Err(MemoryError::TooSmall);
        }
        let once_bytes = memory_limit / 16;
        let heap_bytes = memory_limit / 4 - once_bytes;
        let buckets = (memory_limit - heap_bytes - once_bytes) / MEMORY_SHARDS / BUCKET_BYTES;
        let buckets = Table::buckets_within(buckets.min(BUCKETS_MAX));
        // A zeroed vector that is too large would abort the process. Asked of the system itself: an allocator may keep
        // what it has back, and then zeroes all of it for the tables.
        memmap2::MmapMut::map_anon(buckets * BUCKET_BYTES * MEMORY_SHARDS)
            .map_err(|_| MemoryError::TooLarge)?;
        Ok(Sizes {
            buckets,
            heap_bytes,
            once_bytes,
        })
    }
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            memory_limit: Self::DEFAULT_LIMIT,
            max_share_percent: 50,
        }
    }
}

/// The reason why a store of this size cannot be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Below [`MemoryConfig::LEAST`].
    #[error("a memory limit is at least 1 MiB")]
    TooSmall,
    /// The system does not have that much memory.
    #[error("not enough memory; choose a smaller memory limit")]
    TooLarge,
    /// The share is not 1 to 100.
    #[error("the largest share of one rule is 1 to 100 percent")]
    ShareOutOfRange,
}

/// The sizes that follow from a configuration.
pub(super) struct Sizes {
    /// Buckets of each shard at its largest.
    pub(super) buckets: usize,
    /// Bytes for out-of-line states.
    pub(super) heap_bytes: usize,
    /// Bytes for records of idempotent requests.
    pub(super) once_bytes: usize,
}
