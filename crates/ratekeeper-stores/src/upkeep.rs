//! Upkeep, metrics and faults: all that a service needs of its stores besides decisions.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ratekeeper_core::Timestamp;
use ratekeeper_core::region::counted::RegionPost;
use ratekeeper_store::{
    HashKey, HeardRegions, LeaseGauges, LoanChange, LoanCounter, LoanDemand, LoanState,
    MemoryStore, StoreError, SyncGauges,
};

use crate::{Agreement, Backend, ServerGauges, SharedStore, StoreGauges, Stores};

/// Calls of [`Stores::maintain`] in which a memory store passes through all of itself.
const SWEEP_TENDS: usize = 60;

impl Stores {
    /// Forgets a share of what has expired by `now`; called about once a second. May take a
    /// few milliseconds, so it is not called where requests are answered.
    pub fn maintain(&self, now: Timestamp) {
        for member in self.members() {
            match &member.store {
                Backend::Memory(store) => sweep(store, now),
                Backend::Shared(store) => store.maintain(now),
            }
        }
    }

    /// Called once from each runtime that will ask, before any request is there: stores that
    /// need connections make them now.
    pub fn prepare(&self) {
        self.all_shared().for_each(|(_, store)| store.prepare());
    }

    /// Fill level of the default store, if its counters are in memory; else all zeros.
    #[must_use]
    pub fn gauges(&self) -> StoreGauges {
        self.memory().map(gauges).unwrap_or_default()
    }

    /// Waits until [`Store::hash_key`](ratekeeper_store::Store::hash_key) is there and another one than `known`.
    pub async fn hash_key_other_than(&self, known: HashKey) -> HashKey {
        match self.shared() {
            Some(store) => store.hash_key_other_than(known).await,
            None => std::future::pending().await,
        }
    }

    /// Agreement of all nodes on the hash key; [`None`] where they share none.
    #[must_use]
    pub fn agreement(&self) -> Option<Agreement> {
        self.shared()?.agreement()
    }

    /// Faults that keep nodes from deciding together, now or soon, for operators.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let faults = self.all_shared().flat_map(|(name, store)| {
            let faults = store.faults().into_iter();
            faults.map(move |fault| match name {
                "" => fault,
                name => format!("store {name}: {fault}"),
            })
        });
        faults.collect()
    }

    /// The number of times that background work of the stores ended early because of a bug, and was begun again.
    #[must_use]
    pub fn task_failures(&self) -> u64 {
        let failures = self.all_shared().map(|(_, store)| store.task_failures());
        failures.sum()
    }

    /// This node's leases, for each store that grants some.
    #[must_use]
    pub fn lease_gauges(&self) -> Vec<LeaseGauges> {
        let all = self.all_shared().filter_map(|(name, store)| {
            Some(LeaseGauges {
                store: name.into(),
                ..store.lease_gauges()?
            })
        });
        all.collect()
    }

    /// This node's synced counters, for each store that nodes share.
    #[must_use]
    pub fn sync_gauges(&self) -> Vec<SyncGauges> {
        let all = self.all_shared().map(|(name, store)| SyncGauges {
            store: name.into(),
            ..store.sync_gauges()
        });
        all.collect()
    }

    /// Takes out what was asked for on this node of counters that regions lend each other parts of.
    #[must_use]
    pub fn loan_demands(&self) -> Vec<LoanDemand> {
        let all = self.all_shared();
        all.flat_map(|(_, store)| store.loan_demands()).collect()
    }

    /// Looks at the loans of `counter`, or makes `change`.
    ///
    /// # Errors
    /// The store does not answer, keeps no loans, or has something else in their place.
    pub async fn loans(
        &self,
        counter: LoanCounter,
        change: Option<LoanChange>,
    ) -> Result<LoanState, StoreError> {
        match self.lending(counter.store) {
            Some(store) => store.loans(counter, change).await,
            None => Err(StoreError::Unavailable),
        }
    }

    /// Keeps a total that another region has posted of `counter`, and tells what this region has counted.
    ///
    /// # Errors
    /// The store does not answer, keeps no totals, or has something else in their place.
    pub async fn keep_total(
        &self,
        counter: LoanCounter,
        post: RegionPost,
    ) -> Result<LoanState, StoreError> {
        match self.lending(counter.store) {
            Some(store) => store.keep_total(counter, post).await,
            None => Err(StoreError::Unavailable),
        }
    }

    /// Tells all stores when other regions were heard.
    pub fn hear_of(&self, heard: &Arc<HeardRegions>) {
        self.all_shared()
            .for_each(|(_, store)| store.hear_of(heard));
    }

    /// Gives back what this node holds, and adds what it has counted, before it stops; for a moment at most.
    pub async fn close(&self) {
        // All at once, as each may be away.
        let closing = self.all_shared().map(|(_, store)| store.close());
        let mut closing: Vec<_> = closing.collect();
        poll_fn(|context| {
            closing.retain_mut(|close| close.as_mut().poll(context).is_pending());
            match closing.is_empty() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// State and counts of the servers of all stores.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerGauges> {
        let servers = self.all_shared().flat_map(|(name, store)| {
            let servers = store.servers().into_iter();
            servers.map(move |server| match name {
                "" => server,
                name => ServerGauges {
                    shard: format!("{name}/{}", server.shard).into(),
                    ..server
                },
            })
        });
        servers.collect()
    }

    /// The stores that nodes share, by their names.
    fn all_shared(&self) -> impl Iterator<Item = (&str, &dyn SharedStore)> {
        self.members()
            .filter_map(|member| Some((&*member.name, member.shared()?)))
    }
}

fn sweep(store: &MemoryStore, now: Timestamp) {
    let capacity = usize::try_from(store.stats().capacity).unwrap_or(usize::MAX);
    store.sweep(now, capacity.div_ceil(SWEEP_TENDS));
}

fn gauges(store: &MemoryStore) -> StoreGauges {
    let stats = store.stats();
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
