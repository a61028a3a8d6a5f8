//! Facts about synced counters for callers and operators.

use ratekeeper_core::Micros;

/// The hits of one synced counter, as a node knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SyncedHits {
    /// The time between two syncs.
    pub interval: Micros,
    /// Hits that this node admitted.
    pub own: u64,
    /// Hits that the other nodes had added when the store last answered.
    pub others: u64,
    /// Hits of this node that the store does not have yet.
    pub pending: u64,
    /// The time since the store last answered; [`None`] if it never did.
    pub age: Option<Micros>,
}

/// The synced counters of a node in one store: what is there now, and counts since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SyncGauges {
    /// The store's name; empty for the default store.
    pub store: Box<str>,
    /// Counters of this node.
    pub counters: u64,
    /// Counters that wait for their next sync.
    pub due: u64,
    /// Hits that were admitted here, and are not in the store yet: other nodes do not know of them.
    pub pending: u64,
    /// Syncs that the store answered.
    pub synced: u64,
    /// Syncs without an answer.
    pub failed: u64,
    /// Hits added to the store, or taken back from it.
    pub applied: u64,
    /// Hits that were not added, because their window was over.
    pub dropped: u64,
    /// Steps that found no room for a new counter.
    pub refused: u64,
}
