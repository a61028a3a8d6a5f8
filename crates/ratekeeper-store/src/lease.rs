//! Hits that a node holds in leases, as callers and operators are told.

use ratekeeper_core::Micros;

/// The hits of one counter that a node holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LeasedHits {
    /// Leases.
    pub leases: u64,
    /// Hits that the store holds for them.
    pub granted: u64,
    /// Hits of them that are left.
    pub left: u64,
    /// The time until the last of them is over.
    pub until: Micros,
    /// The leases of other nodes, as of this node's last call.
    pub others: OtherLeases,
}

/// The leases of other nodes on a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OtherLeases {
    /// Nodes that have one.
    pub nodes: u64,
    /// Hits that the store holds for them.
    pub hits: u64,
}

/// The leases of a node on the counters of one store: what is held now, and counts since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LeaseGauges {
    /// The store's name; empty for the default store.
    pub store: Box<str>,
    /// Nodes that leased counters there in the last seconds; 0 before that is known.
    pub nodes: u64,
    /// Leases held.
    pub leases: u64,
    /// Hits that the store holds for them: the most that is admitted beyond limits if it loses its latest leases.
    pub held: u64,
    /// Answers to calls about leases.
    pub grants: u64,
    /// Hits granted.
    pub granted: u64,
    /// Hits admitted, as far as they were reported.
    pub spent: u64,
    /// Hits that were freed unspent.
    pub returned: u64,
    /// Hits that stay charged, and were not admitted.
    pub burned: u64,
}
