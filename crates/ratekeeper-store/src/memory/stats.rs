//! Statistics of the store.

use crate::RuleSlot;

/// Events that a shard counts under its lock.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) evicted_expired: u64,
    pub(super) evicted_live: u64,
    pub(super) refused_full: u64,
}

/// The part of a rule's maximum of counters that live, denying counters take: these are never
/// evicted for new ones. At 1,000 its [`FullMode`](crate::FullMode) answers for new counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusing {
    /// The rule with the largest part.
    pub rule: RuleSlot,
    /// Thousandths, estimated from the part of the table that the last sweep visited.
    pub permille: u16,
}

/// A snapshot of a [`MemoryStore`](super::MemoryStore), shard after shard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct MemoryStats {
    /// Counters in the store, including expired ones that have not been reclaimed.
    pub counters: u64,
    /// Counters that the store can hold.
    pub capacity: u64,
    /// Present size of the table in bytes: it grows with its counters, and never shrinks.
    pub table_bytes: u64,
    /// The largest possible `table_bytes`.
    pub table_bytes_max: u64,
    /// Counters with an out-of-line state.
    pub heap_counters: u64,
    /// Bytes of out-of-line states, bookkeeping included.
    pub heap_bytes: u64,
    /// The largest possible `heap_bytes`.
    pub heap_bytes_max: u64,
    /// Records of idempotent requests.
    pub once_records: u64,
    /// Bytes of these records.
    pub once_bytes: u64,
    /// The largest possible `once_bytes`.
    pub once_bytes_max: u64,
    /// Expired counters removed since the start.
    pub evicted_expired: u64,
    /// Live counters evicted for new ones since the start.
    pub evicted_live: u64,
    /// Steps answered by their [`FullMode`](crate::FullMode), since the start.
    pub refused_full: u64,
    /// The rule with the most denying counters; None before the first sweep, or if no counter denies.
    pub refusing: Option<Refusing>,
}
