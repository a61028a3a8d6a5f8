//! The interface of a store whose counters all nodes share.

use std::fmt::Debug;
use std::pin::Pin;

use ratekeeper_core::Timestamp;
use ratekeeper_store::{HashKey, LeaseGauges, Store, SyncGauges};

use crate::{Agreement, ServerGauges, StoreReply};

/// A future of either thread, in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store whose counters all nodes share, with all that a service needs of it besides decisions.
pub trait SharedStore: Store<Ticket = StoreReply> + Debug {
    /// Forgets what has expired by `now`; called about once a second, and not where requests are answered. For stores
    /// that keep something on this node.
    fn maintain(&self, now: Timestamp) {
        let _ = now;
    }

    /// Called once from each runtime that will ask it, before any request is there: a store that
    /// needs connections makes them now.
    fn prepare(&self) {}

    /// Waits until [`Store::hash_key`] is there and another one than `known`.
    fn hash_key_other_than(&self, known: HashKey) -> BoxFuture<'_, HashKey> {
        let _ = known;
        Box::pin(std::future::pending())
    }

    /// Agreement of all nodes on [`Store::hash_key`]; [`None`] where they share none.
    fn agreement(&self) -> Option<Agreement> {
        None
    }

    /// Faults that keep nodes from deciding together, now or soon, for operators.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// This node's leases, if it has asked for some.
    fn lease_gauges(&self) -> Option<LeaseGauges> {
        None
    }

    /// This node's synced counters.
    fn sync_gauges(&self) -> SyncGauges {
        SyncGauges::default()
    }

    /// State and counts of its servers.
    fn servers(&self) -> Vec<ServerGauges> {
        Vec::new()
    }

    /// Gives back what this node holds, and adds what it has counted, before it stops; for a moment at most.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}
