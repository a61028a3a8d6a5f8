//! Upkeep, metrics and faults: all that a service needs of its store besides decisions.

use std::fmt::Debug;

use ratekeeper_core::Timestamp;

use crate::memory::Refusing;
use crate::{HashKey, LeaseGauges, MemoryStore, Store, SyncGauges};

/// A store that can be maintained and measured.
pub trait ServedStore: Store + Debug {
    /// Forgets a share of what has expired by `now`; called about once a second. May take a
    /// few milliseconds, so it is not called where requests are answered.
    fn maintain(&self, now: Timestamp);

    /// Called once from each runtime that will ask it, before any request is there: a store that
    /// needs connections makes them now.
    fn prepare(&self) {}

    /// Fill level of the default store.
    fn gauges(&self) -> StoreGauges;

    /// Waits until [`Store::hash_key`] is there and another one than `known`.
    fn hash_key_other_than(&self, known: HashKey) -> impl Future<Output = HashKey> + Send {
        let _ = known;
        std::future::pending()
    }

    /// Agreement of all nodes on [`Store::hash_key`]; [`None`] where they share none.
    fn agreement(&self) -> Option<Agreement> {
        None
    }

    /// Faults that keep nodes from deciding together, now or soon, for operators.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// This node's leases, for each store that grants some.
    fn lease_gauges(&self) -> Vec<LeaseGauges> {
        Vec::new()
    }

    /// This node's synced counters, for each store that nodes share.
    fn sync_gauges(&self) -> Vec<SyncGauges> {
        Vec::new()
    }

    /// Gives back what this node holds, and adds what it has counted, before it stops; for a moment at most.
    fn close(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// State and counts of its servers, if it has any.
    fn servers(&self) -> Vec<ServerGauges> {
        Vec::new()
    }
}

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
    /// Other counts: their names without `ratelimit_redis_`, and what they are.
    pub counts: Vec<(&'static str, &'static str, f64)>,
}

/// Fill level of a store.
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

/// Calls of [`ServedStore::maintain`] in which the memory store passes through all of itself.
const SWEEP_TENDS: usize = 60;

impl ServedStore for MemoryStore {
    fn maintain(&self, now: Timestamp) {
        let capacity = usize::try_from(self.stats().capacity).unwrap_or(usize::MAX);
        self.sweep(now, capacity.div_ceil(SWEEP_TENDS));
    }

    fn gauges(&self) -> StoreGauges {
        let stats = self.stats();
        StoreGauges {
            counters: stats.counters,
            capacity: stats.capacity,
            bytes: stats.table_bytes + stats.heap_bytes,
            expired: stats.evicted_expired,
            evicted: stats.evicted_live,
            refused: stats.refused_full,
            refusing: stats.refusing,
        }
    }
}
