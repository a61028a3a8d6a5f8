//! Several stores behind one, of which rules name the one that keeps their counters.
//!
//! Each has connections, a breaker and deadlines of its own, so that a slow one slows no other
//! else's decisions. Limits of one request that lie in two of them are taken in both or in none,
//! and one that is away leaves its own undecided and no others. Where there is but one, it is
//! asked directly.

use std::fmt;
use std::sync::Arc;

use ratekeeper_core::lease::Taken;
use ratekeeper_store::across::{self, Partition, Partitions, Rest};
use ratekeeper_store::{
    Answer, Extra, HashKey, LeasedHits, MemoryStore, Post, Request, Step, Store, StoreError,
    StoreSlot, SyncedHits, Verdicts,
};

use crate::leased::Leased;
use crate::{BoxFuture, SharedStore, StoreReply};

/// The most stores with names beside the default one: each has connections and tasks of its own.
pub const NAMED_STORES_MAX: usize = 32;

/// The default store and those that have names. Clones are the same stores.
#[derive(Clone)]
pub struct Stores(Arc<Inner>);

/// The pending answer of [`Stores`].
pub type StoresTicket = across::Ticket<Stores>;

/// One of several stores.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there are few, which are made once and stay where they are"
)]
pub enum Backend {
    /// Counters in this process.
    Memory(MemoryStore),
    /// Counters that all nodes share.
    Shared(Arc<dyn SharedStore>),
}

struct Inner {
    default: Member,
    /// Slot 1 and those after it.
    named: Vec<Member>,
    /// The counters of rules that count on each node by itself, where the default store is shared; the last slot.
    own: Option<Member>,
    spawn: Box<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>,
}

#[derive(Debug)]
pub(crate) struct Member {
    /// Empty for the default store.
    pub(crate) name: Box<str>,
    pub(crate) store: Backend,
}

impl Member {
    pub(crate) fn shared(&self) -> Option<&dyn SharedStore> {
        match &self.store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => Some(&**store),
        }
    }
}

impl From<MemoryStore> for Stores {
    /// Counters in memory alone.
    fn from(store: MemoryStore) -> Self {
        // Memory answers at once: nothing is left to be seen through.
        Self::new(Backend::Memory(store), Vec::new(), drop)
    }
}

impl Stores {
    /// The counters in `default`, but for those that rules put into one of `named`. What gives
    /// hits back after its caller has gone runs where `spawn` puts it.
    #[must_use]
    pub fn new(
        default: Backend,
        named: Vec<(Box<str>, Backend)>,
        spawn: impl Fn(BoxFuture<'static, ()>) + Send + Sync + 'static,
    ) -> Self {
        let member = |(name, store)| Member { name, store };
        Self(Arc::new(Inner {
            default: member((Box::default(), default)),
            named: named.into_iter().map(member).collect(),
            own: None,
            spawn: Box::new(spawn),
        }))
    }

    /// The same stores, and one for rules that count on each node by itself. To be called before it is cloned.
    #[must_use]
    pub fn with_own(mut self, store: MemoryStore) -> Self {
        if let Some(stores) = Arc::get_mut(&mut self.0) {
            stores.own = Some(Member {
                name: "own".into(),
                store: Backend::Memory(store),
            });
        }
        self
    }

    /// The default store's counters, if they are in memory.
    #[must_use]
    pub fn memory(&self) -> Option<&MemoryStore> {
        match &self.0.default.store {
            Backend::Memory(store) => Some(store),
            Backend::Shared(_) => None,
        }
    }

    /// Returns true if nodes share one of them, which can be away while this node is there.
    #[must_use]
    pub fn is_one_shared(&self) -> bool {
        self.shared().is_some()
    }

    /// The first of those that nodes share, the default store before any other. Each knows what all of them know of
    /// the hash key.
    pub(crate) fn shared(&self) -> Option<&dyn SharedStore> {
        let mut shared = self.members().filter_map(Member::shared);
        shared.next()
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.0.default)
            .chain(&self.0.named)
            .chain(&self.0.own)
    }

    fn in_memory(&self) -> impl Iterator<Item = &MemoryStore> {
        self.members().filter_map(|member| match &member.store {
            Backend::Memory(store) => Some(store),
            Backend::Shared(_) => None,
        })
    }

    fn member(&self, store: StoreSlot) -> &Member {
        if store == OWN
            && let Some(own) = &self.0.own
        {
            return own;
        }
        let index = usize::from(store.0).checked_sub(1);
        let named = index.and_then(|index| self.0.named.get(index));
        named.unwrap_or(&self.0.default)
    }

    /// The place of the counter of `step`, in a request with `extra`.
    fn partition_of(&self, step: &Step, extra: Option<&Extra>) -> Partition {
        match self.member(step.store).shared() {
            None => step.store.into(),
            Some(store) => Partition {
                store: step.store,
                slot: store.slot(step, extra),
            },
        }
    }

    /// Decides a request of which steps may be in stores that nodes share.
    #[inline(never)]
    fn decide_shared(&self, request: &Request<'_>) -> Answer<StoresTicket> {
        // Before it is divided: leased hits are taken in memory, and put back if the rest is denied.
        if request.steps.iter().any(|step| !step.lease.is_zero())
            && let Some(leased) = Leased::take(self, request)
        {
            return leased.decide(request, |rest| self.ask_all(rest));
        }
        self.ask_all(request)
    }

    /// Asks all stores with counters of `request`.
    fn ask_all(&self, request: &Request<'_>) -> Answer<StoresTicket> {
        let partition_of = |step: &Step| self.partition_of(step, request.extra);
        across::decide(self, request, partition_of)
    }

    /// The store that leases the counter of `step`, if it is leased.
    pub(crate) fn leasing(&self, step: &Step) -> Option<&dyn SharedStore> {
        match step.lease.is_zero() {
            true => None,
            false => self.member(step.store).shared(),
        }
    }

    /// The store in that slot, if it keeps loans between regions.
    pub(crate) fn lending(&self, slot: StoreSlot) -> Option<&dyn SharedStore> {
        self.member(slot).shared().filter(|store| store.lends())
    }

    /// Puts hits of a lease back that were taken for a request that was not admitted.
    pub(crate) fn put_back(&self, store: StoreSlot, taken: Taken) {
        if let Some(store) = self.member(store).shared() {
            store.put_back(taken);
        }
    }
}

/// The slot of the counters that are a node's own.
const OWN: StoreSlot = StoreSlot(u8::MAX);

const _: () = assert!(NAMED_STORES_MAX < OWN.0 as usize, "no name has its slot");

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members()).finish()
    }
}

impl Store for Stores {
    type Ticket = StoresTicket;

    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<StoresTicket> {
        match &self.0.default.store {
            Backend::Memory(store) if self.0.named.is_empty() && self.0.own.is_none() => {
                Answer::Decided(store.decide_now(request))
            }
            _ => self.decide_shared(request),
        }
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        let partition_of = |step: &Step| self.partition_of(step, request.extra);
        across::give_back(self, request, taken, partition_of);
    }

    fn post(&self, post: &Post) -> Option<StoresTicket> {
        let store = self.member(post.step.store).shared()?;
        Some(StoresTicket::one(store.post(post)))
    }

    fn strand(&self, step: &Step) {
        self.stranded(self.partition_of(step, None), step.hits.unsigned_abs());
    }

    fn late(ticket: StoresTicket) -> Option<StoresTicket> {
        ticket.late()
    }

    /// All stores' counters are named by one key, which those that nodes share have in common.
    fn hash_key(&self) -> Option<HashKey> {
        self.shared()?.hash_key()
    }

    fn keeps_own(&self) -> bool {
        self.in_memory().next().is_some()
    }

    fn forget_own(&self) -> u64 {
        self.in_memory().map(MemoryStore::clear).sum()
    }

    fn slot(&self, name: &str) -> StoreSlot {
        let found = self.0.named.iter().position(|named| &*named.name == name);
        let slot = found.and_then(|index| u8::try_from(index + 1).ok());
        slot.map(StoreSlot).unwrap_or_default()
    }

    fn leases(&self, slot: StoreSlot) -> bool {
        let store = self.member(slot).shared();
        store.is_some_and(SharedStore::leases)
    }

    fn is_cluster(&self, slot: StoreSlot) -> bool {
        let store = self.member(slot).shared();
        store.is_some_and(SharedStore::is_cluster)
    }

    fn lends(&self, slot: StoreSlot) -> bool {
        self.lending(slot).is_some()
    }

    fn held(&self, step: &Step) -> Option<LeasedHits> {
        self.leasing(step)?.held(step)
    }

    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        self.member(step.store).shared()?.synced(step)
    }

    fn own_slot(&self) -> Option<StoreSlot> {
        match &self.0.default.store {
            Backend::Memory(_) => Some(StoreSlot::default()),
            Backend::Shared(_) => self.0.own.as_ref().map(|_| OWN),
        }
    }
}

impl Partitions for Stores {
    type Ticket = StoreReply;

    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<StoreReply> {
        match &self.member(partition.store).store {
            Backend::Memory(store) => Answer::Decided(store.decide_now(request)),
            Backend::Shared(store) => store.ask(partition.slot, request),
        }
    }

    fn away(&self, partition: Partition) -> Option<StoreError> {
        let store = self.member(partition.store).shared()?;
        store.away(partition.slot)
    }

    fn recall(&self, partition: Partition, request: &Request<'_>) -> Option<Verdicts> {
        let store = self.member(partition.store).shared()?;
        store.recall(partition.slot, request)
    }

    fn answers_last(&self) -> bool {
        let mut shared = self.members().filter_map(Member::shared);
        shared.any(SharedStore::answers_last)
    }

    fn late(reply: StoreReply) -> Option<StoreReply> {
        reply.late()
    }

    fn detach(&self, rest: Rest<Self>) {
        (self.0.spawn)(Box::pin(rest));
    }

    fn stranded(&self, partition: Partition, hits: u64) {
        if let Some(store) = self.member(partition.store).shared() {
            store.stranded(partition.slot, hits);
        }
    }
}
