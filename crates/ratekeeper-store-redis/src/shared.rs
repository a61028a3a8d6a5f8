//! Redis as one of several [`Stores`](ratekeeper_stores::Stores): decisions, upkeep, metrics and faults.

use std::sync::Arc;

use ratekeeper_core::lease::Taken;
use ratekeeper_core::region::counted::RegionPost;
use ratekeeper_core::{Micros, Outcome};
use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{
    Answer, Extra, HashKey, HeardRegions, LeaseGauges, LeasedHits, LoanChange, LoanCounter,
    LoanDemand, LoanState, Post, Request, Step, StoreError, SyncGauges, SyncedHits, Verdicts,
};
use ratekeeper_stores::{Agreement, BoxFuture, ServerGauges, SharedStore, StoreReply};
use tokio::runtime::Handle;

use crate::ShardCounts;
use crate::lease::Leases;
use crate::loans::{LoanAct, Loans};
use crate::metrics::Fault;
use crate::script::Group;
use crate::servers::RedisServers;
use crate::synced::is_synced;

impl RedisServers {
    /// The loans between regions, begun if there are none yet.
    fn loans(&self) -> &Loans {
        self.loans.get_or_init(|| {
            self.slots.context().generation.join();
            self.slots.loans()
        })
    }

    /// Records that hits were asked for, if regions share the limit.
    fn record_demand(&self, step: &Step) {
        if step.terms > 0 && step.hits > 0 {
            RedisServers::loans(self).record(step);
        }
    }
}

impl SharedStore for RedisServers {
    fn slot(&self, step: &Step, extra: Option<&Extra>) -> CounterSlot {
        if is_synced(step, extra) && self.slots.has_own_clock() {
            CounterSlot::Node
        } else {
            CounterSlot::Server(self.server_slot(step))
        }
    }

    fn ask(&self, slot: CounterSlot, request: &Request<'_>) -> Answer<StoreReply> {
        let topology = self.slots.topology();
        if !Group::is_sendable(request) {
            if let Some(shard) = topology.map().shards().first() {
                shard.metrics.fault(Fault::Overloaded, 1);
            }
            return Answer::Pending(StoreReply::failed(StoreError::Overloaded));
        }
        if !self.monitor.hash_key().admits(request.named_by) {
            topology.unplaced();
            return Answer::Pending(StoreReply::failed(StoreError::Unavailable));
        }
        for step in request.steps {
            self.record_demand(step);
        }
        match slot {
            CounterSlot::Server(slot) => self.slots.ask(slot, request),
            CounterSlot::Node => Answer::Decided(self.slots.sync().decide(request)),
        }
    }

    fn away(&self, slot: CounterSlot) -> Option<StoreError> {
        match slot {
            CounterSlot::Server(slot) => self.slots.away(slot),
            CounterSlot::Node => None,
        }
    }

    fn recall(&self, slot: CounterSlot, request: &Request<'_>) -> Option<Verdicts> {
        match slot {
            CounterSlot::Server(_) => {
                let denial = self.slots.recall(request)?;
                // What is denied is lacking all the same.
                for step in request.steps {
                    self.record_demand(step);
                }
                Some(denial)
            }
            CounterSlot::Node => None,
        }
    }

    fn post(&self, post: &Post) -> StoreReply {
        if !self.monitor.hash_key().admits(post.named_by) {
            return StoreReply::failed(StoreError::Unavailable);
        }
        if post.step.counted.is_some() {
            // They are counted only now. Demand for what is lent was recorded when they were asked for.
            self.record_demand(&post.step);
        }
        self.slots.post(self.server_slot(&post.step), post)
    }

    fn stranded(&self, slot: CounterSlot, hits: u64) {
        if let CounterSlot::Server(slot) = slot {
            self.slots.stranded(slot, hits);
        }
    }

    fn answers_last(&self) -> bool {
        !self.slots.has_own_clock()
    }

    fn hash_key(&self) -> Option<HashKey> {
        self.hash_key()
    }

    fn leases(&self) -> bool {
        self.slots.has_own_clock()
    }

    fn is_cluster(&self) -> bool {
        self.slots.topology().is_cluster()
    }

    #[inline]
    fn spend(
        &self,
        step: &Step,
        named_by: Option<HashKey>,
        now: Micros,
    ) -> Option<(Taken, Outcome)> {
        if !self.slots.has_own_clock() || !self.monitor.hash_key().admits(named_by) {
            return None;
        }
        let leases = self.leases.get_or_init(|| self.slots.lease());
        leases.spend(step, now)
    }

    fn put_back(&self, taken: Taken) {
        if let Some(leases) = self.leases.get() {
            leases.put_back(taken);
        }
    }

    fn held(&self, step: &Step) -> Option<LeasedHits> {
        let held = |leases: &Leases| leases.shared().held(step.key);
        Some(self.leases.get().map(held).unwrap_or_default())
    }

    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        if step.sync.is_zero() {
            return None;
        }
        let none = SyncedHits {
            interval: step.sync,
            ..SyncedHits::default()
        };
        Some(self.slots.synced().map_or(none, |it| it.known(step)))
    }

    fn lends(&self) -> bool {
        self.slots.has_own_clock()
    }

    fn loan_demands(&self) -> Vec<LoanDemand> {
        self.loans.get().map(Loans::demands).unwrap_or_default()
    }

    fn loans(
        &self,
        counter: LoanCounter,
        change: Option<LoanChange>,
    ) -> BoxFuture<'_, Result<LoanState, StoreError>> {
        let act = change.map_or(LoanAct::Look, LoanAct::Change);
        Box::pin(RedisServers::loans(self).call(counter, act))
    }

    fn keep_total(
        &self,
        counter: LoanCounter,
        post: RegionPost,
    ) -> BoxFuture<'_, Result<LoanState, StoreError>> {
        Box::pin(RedisServers::loans(self).call(counter, LoanAct::Total(post)))
    }

    fn hear_of(&self, heard: &Arc<HeardRegions>) {
        // There is one of a process.
        let _ = self.slots.context().heard.set(Arc::clone(heard));
    }

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

    fn task_failures(&self) -> u64 {
        self.slots.background().failures()
    }

    fn lease_gauges(&self) -> Option<LeaseGauges> {
        self.leased()
    }

    fn sync_gauges(&self) -> SyncGauges {
        self.sync_counts()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            tokio::join!(
                self.give_leases_back(),
                self.add_pending(),
                self.leave_hash_key()
            );
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
