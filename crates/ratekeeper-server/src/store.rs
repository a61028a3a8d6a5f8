//! What a server asks of a store, beyond deciding.

use std::fmt::Debug;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Seed;
use ratekeeper_store::memory::Refusing;
use ratekeeper_store::{MemoryStore, Store};
use tokio::runtime::Handle;

/// A store that can be tended and measured.
pub trait ServedStore: Store + Debug {
    /// Forgets a share of what has expired by `now`; called about once a second. May take a
    /// few milliseconds, so it is not called where requests are answered.
    fn tend(&self, now: Timestamp);

    /// Called once for each runtime that will ask it, before any request is there: a store that
    /// needs connections makes them now.
    fn prepare(&self, runtime: &Handle) {
        let _ = runtime;
    }

    /// How full it is.
    fn gauges(&self) -> StoreGauges;

    /// Waits until [`Store::hash_key`] is there and another one than `known`.
    fn seed_other_than(&self, known: Seed) -> impl Future<Output = Seed> + Send {
        let _ = known;
        std::future::pending()
    }

    /// How all nodes agree on [`Store::hash_key`]; [`None`] where they share none.
    fn agreement(&self) -> Option<Agreement> {
        None
    }

    /// What is in the way of deciding together, or will be: for operators.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// How its servers are doing, if it has any.
    fn servers(&self) -> Vec<ServerGauges> {
        Vec::new()
    }
}

/// How the nodes agree on the secret that counters are named by.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Agreement {
    /// Whether all of them are sure to have the same.
    pub is_agreed: bool,
    /// How often another one than this node's was found, since the start: some had counted apart.
    pub conflicts: u64,
}

/// How one server of a store is doing: counts since the start.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ServerGauges {
    /// Its name, for labels: never a secret.
    pub shard: Box<str>,
    /// Whether it is asked: 0 yes (closed), 1 probed (half-open), 2 no (open). [`None`] of a server that
    /// served before and does so no more.
    pub circuit: Option<u8>,
    /// Decisions that it could not take, by cause.
    pub errors: Vec<(&'static str, u64)>,
    /// Calls by how long their answer took: the upper bound in seconds, and the count between
    /// it and the bound before.
    pub durations: Vec<(f64, u64)>,
    /// How long all of them took together, in seconds.
    pub duration_seconds: f64,
    /// Other counts: their names without `ratelimit_redis_`, and what they are.
    pub counts: Vec<(&'static str, &'static str, f64)>,
}

/// How full a store is.
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
    /// How far the fullest rule has filled what it may hold with live counters that deny.
    pub refusing: Option<Refusing>,
}

/// In how many calls of [`ServedStore::tend`] the memory store passes through all of itself.
const SWEEP_TENDS: usize = 60;

impl ServedStore for MemoryStore {
    fn tend(&self, now: Timestamp) {
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
