//! Several stores behind one, of which rules name the one that keeps their counters.
//!
//! Each has connections, a breaker and deadlines of its own, so that a slow one slows nobody
//! else's decisions. Limits of one request that lie in two of them are taken in both or in none,
//! and one that is away leaves its own undecided and no others. Where there is but one, it is
//! asked directly.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_store::across::{self, Partition, Partitions, Rest};
use ratekeeper_store::{
    Answer, HashKey, LeasedHits, MemoryStore, Post, Request, Step, Store, StoreError, StoreSlot,
    SyncedHits, Verdicts,
};

use crate::{BoxFuture, SharedStore, StoreReply};

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
    /// Hits that were taken there for nothing, or may have been, and were not given back.
    pub(crate) stranded: AtomicU64,
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
        let member = |(name, store)| Member {
            name,
            store,
            stranded: AtomicU64::new(0),
        };
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
                stranded: AtomicU64::new(0),
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

    fn member(&self, partition: Partition) -> &Member {
        if partition == OWN
            && let Some(own) = &self.0.own
        {
            return own;
        }
        let index = usize::try_from(partition.0).unwrap_or(0).checked_sub(1);
        let named = index.and_then(|index| self.0.named.get(index));
        named.unwrap_or(&self.0.default)
    }
}

/// The partition of the counters that are a node's own.
const OWN: Partition = Partition(u8::MAX as u32);

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members()).finish()
    }
}

impl Backend {
    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<StoreReply> {
        match self {
            Self::Memory(store) => Answer::Decided(store.decide_now(request)),
            Self::Shared(store) => store.decide(request),
        }
    }
}

impl Store for Stores {
    type Ticket = across::Ticket<Self>;

    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        if self.0.named.is_empty() && !self.is_of_several(request) {
            let answer = self.0.default.store.decide(request);
            return answer.map_pending(across::Ticket::one);
        }
        across::decide(self, request, partition_of)
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        match &self.0.default.store {
            // A store of several partitions may have taken part of a request.
            Backend::Shared(store) if self.0.named.is_empty() && !self.is_of_several(request) => {
                store.give_back(request, taken);
            }
            _ => across::give_back(self, request, taken, partition_of),
        }
    }

    fn post(&self, post: &Post) -> Option<Self::Ticket> {
        let store = self.member(partition_of(&post.step)).shared()?;
        store.post(post).map(across::Ticket::one)
    }

    fn strand(&self, step: &Step) {
        self.stranded(partition_of(step), step.hits.unsigned_abs());
    }

    fn late(ticket: Self::Ticket) -> Option<Self::Ticket> {
        ticket.late()
    }

    /// All stores' counters are named by one key, which those that nodes share have in common.
    fn hash_key(&self) -> Option<HashKey> {
        self.shared().and_then(Store::hash_key)
    }

    fn slot(&self, name: &str) -> StoreSlot {
        let found = self.0.named.iter().position(|named| &*named.name == name);
        let slot = found.and_then(|index| u8::try_from(index + 1).ok());
        slot.map(StoreSlot).unwrap_or_default()
    }

    fn leases(&self, slot: StoreSlot) -> bool {
        let store = self.member(Partition(u32::from(slot.0))).shared();
        store.is_some_and(|it| it.leases(StoreSlot::default()))
    }

    fn is_cluster(&self, slot: StoreSlot) -> bool {
        let store = self.member(Partition(u32::from(slot.0))).shared();
        store.is_some_and(|it| it.is_cluster(StoreSlot::default()))
    }

    fn held(&self, step: &Step) -> Option<LeasedHits> {
        self.member(partition_of(step)).shared()?.held(step)
    }

    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        self.member(partition_of(step)).shared()?.synced(step)
    }

    fn own_slot(&self) -> Option<StoreSlot> {
        match &self.0.default.store {
            Backend::Memory(_) => Some(StoreSlot::default()),
            Backend::Shared(_) => self.0.own.as_ref().map(|_| StoreSlot(u8::MAX)),
        }
    }
}

impl Stores {
    /// Returns true if steps of `request` are counted on this node by itself.
    #[inline]
    fn is_of_several(&self, request: &Request<'_>) -> bool {
        self.0.own.is_some() && request.steps.iter().any(|step| partition_of(step) == OWN)
    }
}

fn partition_of(step: &Step) -> Partition {
    Partition(u32::from(step.store.0))
}

impl Partitions for Stores {
    type Ticket = StoreReply;

    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<StoreReply> {
        self.member(partition).store.decide(request)
    }

    fn away(&self, partition: Partition) -> Option<StoreError> {
        self.member(partition).shared()?.away()
    }

    fn recall(&self, partition: Partition, request: &Request<'_>) -> Option<Verdicts> {
        self.member(partition).shared()?.recall(request)
    }

    fn late(ticket: StoreReply) -> Option<StoreReply> {
        ticket.late()
    }

    fn detach(&self, rest: Rest<Self>) {
        (self.0.spawn)(Box::pin(rest));
    }

    fn stranded(&self, partition: Partition, hits: u64) {
        let stranded = &self.member(partition).stranded;
        // Relaxed: a count that nothing else goes by.
        stranded.fetch_add(hits, Ordering::Relaxed);
    }
}
