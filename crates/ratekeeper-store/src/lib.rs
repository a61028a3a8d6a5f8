//! Counter stores.
//!
//! A [`Store`] decides the steps of one request atomically: it tests them all, combines the
//! answers and charges the counters, or charges none. It knows counters, limits and time;
//! it knows no rules, no tenants and no protocol.
//!
//! [`memory`] is the store of one node. [`across`] decides a request whose counters live in
//! several places.

pub mod across;
mod boot;
mod extra;
mod hash_key;
mod heard;
mod lease;
mod loans;
pub mod memory;
mod post;
mod step;
pub mod synced;

pub use boot::boot_time;
pub use extra::{Execution, Extra, Once, Permit, PermitAct, Until};
pub use hash_key::HashKey;
pub use heard::HeardRegions;
pub use lease::{LeaseGauges, LeasedHits, OtherLeases};
pub use loans::{LoanChange, LoanCounter, LoanDemand, LoanState};
pub use memory::{MemoryConfig, MemoryStore};
pub use post::Post;
pub use step::{
    Answer, Charge, CounterKey, FullMode, Never, Request, RuleSlot, Step, StepOutcome, StoreSlot,
    Verdicts,
};
pub use synced::{SyncGauges, SyncedHits};

use std::future::Future;

/// Decides the steps of a request atomically.
pub trait Store: Send + Sync + 'static {
    /// The future of a decision that a store cannot take at once.
    type Ticket: Future<Output = Result<Verdicts, StoreError>> + Send + Unpin + 'static;

    /// Tests all steps, combines the answers, charges what is to be charged.
    ///
    /// A store that decides in memory answers [`Answer::Decided`] without allocating;
    /// one that must ask elsewhere answers [`Answer::Pending`].
    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket>;

    /// Gives back what an allowed `request` has taken where its steps were answered, as `taken`
    /// says: for whoever denies it for the sake of those that were
    /// [not](StepOutcome::Unanswered). To be asked once; the caller need not wait for it. Only stores of
    /// several places leave steps unanswered.
    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        let _ = (request, taken);
    }

    /// Counts hits that were admitted while the store did not answer. The verdicts of its answer
    /// mean nothing. [`None`] from a store that always answers, to which nothing is owed.
    fn post(&self, post: &Post) -> Option<Self::Ticket> {
        let _ = post;
        None
    }

    /// Counts the hits of `step` as perhaps taken for nothing: its request was denied, and it is unknown whether the store
    /// carried it out.
    fn strand(&self, step: &Step) {
        let _ = step;
    }

    /// The ticket of a request that failed with [`StoreError::Timeout`], to be awaited once more: for the
    /// answer if it comes after all, and for [`StoreError::Lost`] if it cannot come any more. [`None`] if
    /// the store cannot tell.
    fn late(ticket: Self::Ticket) -> Option<Self::Ticket> {
        drop(ticket);
        None
    }

    /// The secret that counters are to be named by, for a store whose nodes share one: None before
    /// it is known. Until then, and for counters that were named by another one, such a store is
    /// unavailable.
    fn hash_key(&self) -> Option<HashKey> {
        None
    }

    /// Returns true if this node keeps counters in its memory, which take their time to be [forgotten](Self::forget_own).
    fn keeps_own(&self) -> bool {
        false
    }

    /// Forgets the counters that this node keeps in its memory: they were named by another hash key, so that nobody will ask for
    /// them. Returns their number. Decisions go on meanwhile, but a full memory takes seconds.
    fn forget_own(&self) -> u64 {
        0
    }

    /// The reason why it is no use to ask it now, if that is known.
    fn away(&self) -> Option<StoreError> {
        None
    }

    /// Returns the slot of the store called `name`; the default slot if there is only one store.
    fn slot(&self, name: &str) -> StoreSlot {
        let _ = name;
        StoreSlot::default()
    }

    /// Returns true if the store in that slot leases counters to its nodes and syncs theirs: not if it is one node's own.
    fn leases(&self, slot: StoreSlot) -> bool {
        let _ = slot;
        false
    }

    /// Returns true if the counters of the store in that slot lie on several servers, one of which has all hits on one
    /// counter.
    fn is_cluster(&self, slot: StoreSlot) -> bool {
        let _ = slot;
        false
    }

    /// Returns true if the store in that slot keeps loans between regions.
    fn lends(&self, slot: StoreSlot) -> bool {
        let _ = slot;
        false
    }

    /// The hits that this node holds of the counter of `step`; [`None`] if it is not leased.
    fn held(&self, step: &Step) -> Option<LeasedHits> {
        let _ = step;
        None
    }

    /// The hits that this node knows of on the counter of `step`; [`None`] if it is not synced.
    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        let _ = step;
        None
    }

    /// Returns the slot of counters that this node keeps for itself; [`None`] if they are no other than all its counters.
    fn own_slot(&self) -> Option<StoreSlot> {
        None
    }
}

/// A store's failure to answer. A denial is not an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or has refused: nothing was carried out.
    #[error("the store is unavailable")]
    Unavailable,
    /// The store did not answer before the decision's deadline. It may still carry the request out.
    #[error("the store did not answer in time")]
    Timeout,
    /// The connection broke before the answer came: it is unknown whether the request was carried out.
    #[error("the connection to the store broke before it answered")]
    Lost,
    /// This process asks the store for more than it answers: the decision could not be sent in time.
    #[error("too many decisions wait for the store")]
    Overloaded,
    /// The store holds something else than a counter where a counter of the request belongs.
    #[error("the store returned something that is not a counter")]
    Corrupt,
}

impl StoreError {
    /// Returns true if the request was sent, so that it may have been carried out, or may be later.
    #[must_use]
    pub const fn may_be_executed(self) -> bool {
        matches!(self, Self::Timeout | Self::Lost)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Ready, ready};

    use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

    use super::*;

    /// A store that only decides.
    struct Plain;

    impl Store for Plain {
        type Ticket = Ready<Result<Verdicts, StoreError>>;

        fn decide(&self, _: &Request<'_>) -> Answer<Self::Ticket> {
            Answer::Pending(ready(Err(StoreError::Unavailable)))
        }
    }

    #[test]
    fn a_store_that_only_decides_promises_nothing_else() {
        let spec = LimitSpec::new(Algorithm::Gcra, 1, Micros::from_secs(1));
        let limit = Limit::try_new(spec).expect("a valid limit");
        let key = CounterKey {
            subject: 1,
            identity: 2,
        };
        let (step, slot) = (Step::new(key, limit), StoreSlot(1));
        assert_eq!(Plain.slot("other"), StoreSlot::default());
        assert!(!Plain.leases(slot) && !Plain.is_cluster(slot) && !Plain.lends(slot));
        assert!(Plain.held(&step).is_none() && Plain.synced(&step).is_none());
        assert_eq!(
            (Plain.own_slot(), Plain.hash_key(), Plain.away()),
            (None, None, None)
        );
        assert_eq!((Plain.keeps_own(), Plain.forget_own()), (false, 0));
        assert!(Plain::late(ready(Err(StoreError::Timeout))).is_none());
    }
}
