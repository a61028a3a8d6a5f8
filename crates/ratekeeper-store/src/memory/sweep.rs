//! Removes expired counters in the background.
//!
//! Decisions reclaim the expired counters that they come across, which is enough to keep the store
//! bounded. Sweeping makes the gauges accurate and frees heap memory. The table keeps its memory:
//! it will be needed again, and free slots are the first to be taken.

use std::sync::atomic::Ordering;

use ratekeeper_core::Timestamp;

use super::census::Census;
use super::table::SLOTS;
use super::{MEMORY_SHARDS, MemoryStore};

/// Buckets visited under one lock, which takes some ten microseconds.
const BUCKETS_PER_LOCK: usize = 256;

impl MemoryStore {
    /// Visits the next `places` slots, rounded up to whole buckets, and removes the counters there
    /// that have expired by `now`; returns their number. Starts where the last sweep ended, and
    /// visits every slot at most once. No lock is held for longer than a few microseconds.
    ///
    /// With [`capacity`](super::MemoryStats::capacity) / 60 slots each second, a sweep passes
    /// through the whole table once a minute.
    pub fn sweep(&self, now: Timestamp, places: usize) -> usize {
        let per_shard = self.buckets_per_shard;
        let total = per_shard * MEMORY_SHARDS;
        let mut left = places.div_ceil(SLOTS).min(total);
        // Relaxed: two concurrent sweeps may overlap, which wastes time and harms nothing.
        let mut from = self.sweep_from.load(Ordering::Relaxed) % total;
        let mut reclaimed = 0;
        let mut census = Census::default();
        while left > 0 {
            let (shard, bucket) = (from / per_shard, from % per_shard);
            let count = BUCKETS_PER_LOCK.min(left).min(per_shard - bucket);
            reclaimed += self.sweep_buckets(now, shard, bucket..bucket + count, &mut census);
            left -= count;
            from = (from + count) % total;
        }
        self.sweep_from.store(from, Ordering::Relaxed);
        self.records.sweep(now);
        *self.refusing.lock() = census.fullest();
        reclaimed
    }

    fn sweep_buckets(
        &self,
        now: Timestamp,
        shard: usize,
        buckets: std::ops::Range<usize>,
        census: &mut Census,
    ) -> usize {
        let shard = &mut *self.shards[shard].0.lock();
        // A counter removed here must not come back as new in a window that has ended: a check that
        // read the clock earlier, and comes later, gets this time too.
        shard.now = shard.now.max(now);
        let before = shard.table.used();
        if before == 0 {
            return 0;
        }
        let in_use = buckets.start..buckets.end.min(shard.table.buckets());
        shard.reclaim_expired(&self.budget, in_use.clone());
        census.look(shard, in_use);
        before - shard.table.used()
    }
}
