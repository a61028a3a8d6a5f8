//! Forgetting what has expired, in the background.
//!
//! Decisions reclaim the expired counters they come across, which is enough to keep the
//! store bounded. Sweeping makes the gauges true and gives the heap's bytes back. The table keeps
//! its memory: what grew once grows again, and places that are free are the first to be taken.

use std::sync::atomic::Ordering;

use ratekeeper_core::Timestamp;

use super::table::SLOTS;
use super::{MEMORY_SHARDS, MemoryStore};

/// Buckets looked at under one lock: some ten microseconds.
const BUCKETS_PER_LOCK: usize = 256;

impl MemoryStore {
    /// Looks at the next `places` places for a counter, rounded up to whole buckets, and
    /// forgets the counters there that have expired by `now`; how many those were. Starts
    /// where the last sweep ended, and looks at every place once at most. No lock is held
    /// for longer than a few microseconds.
    ///
    /// [`capacity`](super::MemoryStats::capacity) / 60 places each second pass through the
    /// whole table once a minute.
    pub fn sweep(&self, now: Timestamp, places: usize) -> usize {
        let per_shard = self.buckets_per_shard;
        let total = per_shard * MEMORY_SHARDS;
        let mut left = places.div_ceil(SLOTS).min(total);
        // Relaxed: two sweeps at once may overlap, which wastes time and harms nothing.
        let mut from = self.sweep_from.load(Ordering::Relaxed) % total;
        let mut reclaimed = 0;
        while left > 0 {
            let (shard, bucket) = (from / per_shard, from % per_shard);
            let count = BUCKETS_PER_LOCK.min(left).min(per_shard - bucket);
            reclaimed += self.sweep_buckets(now, shard, bucket..bucket + count);
            left -= count;
            from = (from + count) % total;
        }
        self.sweep_from.store(from, Ordering::Relaxed);
        self.records.sweep(now);
        reclaimed
    }

    fn sweep_buckets(
        &self,
        now: Timestamp,
        shard: usize,
        buckets: std::ops::Range<usize>,
    ) -> usize {
        let shard = &mut *self.shards[shard].0.lock();
        // What is forgotten here must not come back as new in a window that has ended: a check
        // that read the clock earlier, and comes later, gets this time too.
        shard.now = shard.now.max(now);
        let before = shard.table.used();
        if before == 0 {
            return 0;
        }
        let in_use = buckets.start..buckets.end.min(shard.table.buckets());
        shard.reclaim_expired(&self.budget, in_use);
        before - shard.table.used()
    }
}
