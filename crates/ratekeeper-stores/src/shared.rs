//! The interface of a store whose counters all nodes share.

use std::fmt::Debug;
use std::pin::Pin;
use std::sync::Arc;

use ratekeeper_core::lease::Taken;
use ratekeeper_core::region::counted::RegionPost;
use ratekeeper_core::{Micros, Outcome, Timestamp};
use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{
    Answer, Extra, HashKey, HeardRegions, LeaseGauges, LeasedHits, LoanChange, LoanCounter,
    LoanDemand, LoanState, Post, Request, Step, StoreError, SyncGauges, SyncedHits, Verdicts,
};

use crate::{Agreement, ServerGauges, StoreReply};

/// A future of either thread, in a box.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store whose counters all nodes share: its decisions, slot by slot, and all that a service needs of it besides.
///
/// [`Stores`](crate::Stores) divides requests, joins the answers, and has what a denied request took given back.
pub trait SharedStore: Debug + Send + Sync + 'static {
    /// The slot of the counter of `step`, in a request with `extra`. Steps of one slot are decided together.
    fn slot(&self, step: &Step, extra: Option<&Extra>) -> CounterSlot {
        let _ = (step, extra);
        CounterSlot::ONLY
    }

    /// Decides `request`, all of whose counters are in `slot`, as [`Store::decide`](ratekeeper_store::Store::decide)
    /// does. It refuses requests that are [named by](Request::named_by) another hash key than its own.
    fn ask(&self, slot: CounterSlot, request: &Request<'_>) -> Answer<StoreReply>;

    /// The reason not to ask `slot` now, if there is one.
    fn away(&self, slot: CounterSlot) -> Option<StoreError> {
        let _ = slot;
        None
    }

    /// Its denial of `request`, if that is known without asking. Charges nothing.
    fn recall(&self, slot: CounterSlot, request: &Request<'_>) -> Option<Verdicts> {
        let _ = (slot, request);
        None
    }

    /// Counts hits that were admitted while it did not answer, as [`Store::post`](ratekeeper_store::Store::post) does.
    fn post(&self, post: &Post) -> StoreReply {
        let _ = post;
        StoreReply::failed(StoreError::Unavailable)
    }

    /// Counts hits that were, or may have been, taken for nothing in `slot`.
    fn stranded(&self, slot: CounterSlot, hits: u64) {
        let _ = (slot, hits);
    }

    /// Returns true if answers have to wait until hits are given back: for stores that go by their callers' time.
    fn answers_last(&self) -> bool {
        false
    }

    /// The secret that counters are to be named by; [`None`] before it is known. Nodes that share counters have to agree on it:
    /// otherwise each has its own, under another name.
    fn hash_key(&self) -> Option<HashKey>;

    /// Returns true if it leases counters to its nodes, and syncs theirs.
    fn leases(&self) -> bool {
        false
    }

    /// Returns true if its counters lie on several servers, one of which has all hits on one counter.
    fn is_cluster(&self) -> bool {
        false
    }

    /// Takes the hits of `step` from a lease of its counter, with the answer to tell; [`None`] if no lease has them, or
    /// the counter is named by another hash key than `named_by`.
    fn spend(
        &self,
        step: &Step,
        named_by: Option<HashKey>,
        now: Micros,
    ) -> Option<(Taken, Outcome)> {
        let _ = (step, named_by, now);
        None
    }

    /// Puts hits back that were taken for a request that was not admitted.
    fn put_back(&self, taken: Taken) {
        let _ = taken;
    }

    /// The hits that this node holds of the counter of `step`, which is leased.
    fn held(&self, step: &Step) -> Option<LeasedHits> {
        let _ = step;
        None
    }

    /// The hits that this node knows of on the counter of `step`; [`None`] if it is not synced.
    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        let _ = step;
        None
    }

    /// Returns true if it keeps loans between regions.
    fn lends(&self) -> bool {
        false
    }

    /// Takes out what was asked for on this node of counters that regions lend each other parts of.
    fn loan_demands(&self) -> Vec<LoanDemand> {
        Vec::new()
    }

    /// Looks at the loans of `counter`, or makes `change`.
    fn loans(
        &self,
        counter: LoanCounter,
        change: Option<LoanChange>,
    ) -> BoxFuture<'_, Result<LoanState, StoreError>> {
        let _ = (counter, change);
        Box::pin(std::future::ready(Err(StoreError::Unavailable)))
    }

    /// Keeps a total that another region has posted of `counter`, and tells what this region has counted.
    fn keep_total(
        &self,
        counter: LoanCounter,
        post: RegionPost,
    ) -> BoxFuture<'_, Result<LoanState, StoreError>> {
        let _ = (counter, post);
        Box::pin(std::future::ready(Err(StoreError::Unavailable)))
    }

    /// Takes in when other regions were heard: those that were silent are taken to have used their shares of limits that
    /// regions count together.
    fn hear_of(&self, heard: &Arc<HeardRegions>) {
        let _ = heard;
    }

    /// Forgets what has expired by `now`; called about once a second, and not where requests are answered. For stores
    /// that keep something on this node.
    fn maintain(&self, now: Timestamp) {
        let _ = now;
    }

    /// Called once from each runtime that will ask it, before any request is there: a store that
    /// needs connections makes them now.
    fn prepare(&self) {}

    /// Waits until [`Self::hash_key`] is there and another one than `known`.
    fn hash_key_other_than(&self, known: HashKey) -> BoxFuture<'_, HashKey> {
        let _ = known;
        Box::pin(std::future::pending())
    }

    /// Agreement of all nodes on [`Self::hash_key`]; [`None`] where they share none.
    fn agreement(&self) -> Option<Agreement> {
        None
    }

    /// Faults that keep nodes from deciding together, now or soon, for operators.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// The number of times that background work ended early because of a bug, and was begun again.
    fn task_failures(&self) -> u64 {
        0
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
