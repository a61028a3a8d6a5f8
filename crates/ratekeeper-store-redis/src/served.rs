//! Upkeep, metrics and faults of Redis.

use ratekeeper_store::{HashKey, LeaseGauges, SyncGauges};
use ratekeeper_stores::{Agreement, BoxFuture, ServerGauges, SharedStore};
use tokio::runtime::Handle;

use crate::{RedisStore, ShardCounts};

impl SharedStore for RedisStore {
    /// Connects, so that this runtime's first decision need not wait for it. In a cluster only to
    /// the shards already known.
    fn prepare(&self) {
        let connections = self.slots.connections(&Handle::current());
        for shard in self.slots.topology().map().shards() {
            connections.to(shard);
        }
    }

    fn hash_key_other_than(&self, known: HashKey) -> BoxFuture<'_, HashKey> {
        Box::pin(self.hash_key_other_than(known))
    }

    fn agreement(&self) -> Option<Agreement> {
        Some(Agreement {
            is_agreed: self.is_hash_key_agreed(),
            conflicts: self.hash_key_conflicts(),
        })
    }

    fn faults(&self) -> Vec<String> {
        self.faults()
    }

    fn lease_gauges(&self) -> Option<LeaseGauges> {
        self.leased()
    }

    fn sync_gauges(&self) -> SyncGauges {
        self.sync_counts()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::join!(self.give_leases_back(), self.add_pending());
        })
    }

    fn servers(&self) -> Vec<ServerGauges> {
        let former = self.former_shards().into_iter();
        let former = former.map(|shard| ServerGauges {
            circuit: None,
            ..gauges(shard)
        });
        self.shards()
            .into_iter()
            .map(gauges)
            .chain(former)
            .collect()
    }
}

#[allow(clippy::cast_precision_loss, reason = "counts in metrics are doubles")]
fn gauges(shard: ShardCounts) -> ServerGauges {
    let counts = [
        ("pipelines", "Calls sent", shard.pipelines as f64),
        ("decisions", "Decisions sent", shard.decisions as f64),
        (
            "groups",
            "Groups of decisions sent; decisions on the same counters form one group",
            shard.calls as f64,
        ),
        (
            "merged_decisions",
            "Decisions merged with others on the same counters",
            (shard.decisions - shard.calls.min(shard.decisions)) as f64,
        ),
        (
            "queue_seconds",
            "Total time that decisions waited to be sent",
            shard.queued_seconds,
        ),
        (
            "script_reloads",
            "Reloads of the script",
            shard.reloads as f64,
        ),
        (
            "circuit_opened",
            "Openings of the circuit breaker",
            shard.opened as f64,
        ),
        (
            "denied_from_memory",
            "Denials repeated from memory",
            shard.denied_from_memory as f64,
        ),
        (
            "redirects",
            "Calls retried elsewhere or later because they were not executed",
            shard.redirects as f64,
        ),
        (
            "stranded_hits",
            "Hits of denied requests that may still be charged, an upper bound",
            shard.stranded_hits as f64,
        ),
        (
            "moved_counters",
            "Counters moved back to the server's clock after it went back by more than their window",
            shard.moved_counters as f64,
        ),
        (
            "clock_steps_back",
            "Times that the server's clock went back by more than a second",
            shard.clock_steps_back as f64,
        ),
    ];
    ServerGauges {
        shard: shard.shard,
        circuit: Some(shard.circuit.number()),
        errors: shard.faults.to_vec(),
        durations: shard.duration_buckets,
        duration_seconds: shard.duration_seconds,
        counts: counts.to_vec(),
    }
}
