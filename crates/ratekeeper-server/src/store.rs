//! What a server asks of a store, beyond deciding.

use std::fmt::Debug;

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{Check, Explanation, Limiter};
use ratekeeper_store::{MemoryStore, Store};

/// A store that can be tended and measured.
pub trait ServedStore: Store + Debug {
    /// Forgets a share of what has expired by `now`; called about once a second. May take a
    /// few milliseconds, so it is not called where requests are answered.
    fn tend(&self, now: Timestamp);

    /// How full it is.
    fn gauges(&self) -> StoreGauges;

    /// How a limiter with this store would decide `check`, taking nothing; [`None`] for a store
    /// that cannot look at once.
    fn explain(limiter: &Limiter<Self>, check: &Check<'_>) -> Option<Explanation>
    where
        Self: Sized,
    {
        let _ = (limiter, check);
        None
    }
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
    /// Live counters that had to go for new ones, since the start.
    pub evicted: u64,
    /// Steps for whose counters there was no room, since the start.
    pub refused: u64,
}

/// In how many calls of [`ServedStore::tend`] the memory store passes through all of itself.
const SWEEP_TENDS: usize = 60;

impl ServedStore for MemoryStore {
    fn tend(&self, now: Timestamp) {
        let capacity = usize::try_from(self.stats().capacity).unwrap_or(usize::MAX);
        self.sweep(now, capacity.div_ceil(SWEEP_TENDS));
    }

    fn explain(limiter: &Limiter<Self>, check: &Check<'_>) -> Option<Explanation> {
        Some(limiter.explain(check))
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
        }
    }
}
