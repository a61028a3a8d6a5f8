//! Facts about stores for operators.

use ratekeeper_store::memory::Refusing;

/// Agreement of the nodes on the hash key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreement {
    /// True if all of them are sure to have the same.
    pub is_agreed: bool,
    /// Times that another one than this node's was found, since the start: some had counted apart.
    pub conflicts: u64,
}

/// State of one server of a store, with counts since the start.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerGauges {
    /// Its name, for labels: never a secret.
    pub shard: Box<str>,
    /// Circuit: 0 closed (it is asked), 1 half-open (it is probed), 2 open (it is not asked). [`None`] of a server that
    /// served before and does so no more.
    pub circuit: Option<u8>,
    /// Decisions that it could not take, by cause.
    pub errors: Vec<(&'static str, u64)>,
    /// Calls by how long their answer took: the upper bound in seconds, and the count between
    /// it and the bound before.
    pub durations: Vec<(f64, u64)>,
    /// Time that all of them took together, in seconds.
    pub duration_seconds: f64,
    /// Other counts: the ends of their metrics' names, and their help.
    pub counts: Vec<(&'static str, &'static str, f64)>,
}

/// Fill level of a store in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreGauges {
    /// Counters it keeps.
    pub counters: u64,
    /// Counters it has room for.
    pub capacity: u64,
    /// Bytes it has set aside for them.
    pub bytes: u64,
    /// Counters forgotten after they had expired, since the start.
    pub expired: u64,
    /// Live counters evicted for new ones, since the start.
    pub evicted: u64,
    /// Steps refused because the store was full, since the start.
    pub refused: u64,
    /// The rule with the largest share of its room taken by live counters that deny.
    pub refusing: Option<Refusing>,
}
