//! What the store says about itself.

/// What has happened to a shard's counters, kept under its lock.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) evicted_expired: u64,
    pub(super) evicted_live: u64,
    pub(super) refused_full: u64,
}

/// A snapshot of a [`MemoryStore`](super::MemoryStore), shard after shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryStats {
    /// Counters held, expired ones that nobody has come across included.
    pub counters: u64,
    /// Counters there is room for.
    pub capacity: u64,
    /// Bytes of the table now: it grows with its counters, and never shrinks.
    pub table_bytes: u64,
    /// The most that `table_bytes` may be.
    pub table_bytes_max: u64,
    /// Counters whose state lies out of line.
    pub heap_counters: u64,
    /// Bytes of out-of-line states, bookkeeping included.
    pub heap_bytes: u64,
    /// The most that `heap_bytes` may be.
    pub heap_bytes_max: u64,
    /// Requests remembered, so that they are carried out once.
    pub once_records: u64,
    /// Bytes of those.
    pub once_bytes: u64,
    /// The most that `once_bytes` may be.
    pub once_bytes_max: u64,
    /// Expired counters forgotten, since the start.
    pub evicted_expired: u64,
    /// Live counters that had to go for new ones, since the start.
    pub evicted_live: u64,
    /// Steps answered by their [`FullMode`](crate::FullMode), since the start.
    pub refused_full: u64,
}
