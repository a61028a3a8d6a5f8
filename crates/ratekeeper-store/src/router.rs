//! Several stores behind one, of which rules name the one that keeps their counters.
//!
//! Each has connections, a breaker and deadlines of its own, so that a slow one slows nobody
//! else's decisions. Limits of one request that lie in two of them are taken in both or in none,
//! and one that is away leaves its own undecided and no others. Where there is but one, it is
//! asked directly.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Timestamp;

use crate::across::{self, Partition, Partitions, Rest};
use crate::served::{Agreement, ServedStore, ServerGauges, StoreGauges};
use crate::{
    Answer, HashKey, LeaseGauges, LeasedHits, MemoryStore, Post, Request, Step, Store, StoreError,
    StoreSlot, SyncGauges, SyncedHits, Verdicts,
};

/// The default store and those that have names, `R` being those that nodes share. Clones are the
/// same router.
pub struct Router<R>(Arc<Stores<R>>);

/// One of a router's stores.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there are few, which are made once and stay where they are"
)]
pub enum Backend<R> {
    /// Counters in this process.
    Memory(MemoryStore),
    /// Counters that all nodes share.
    Shared(R),
}

/// Work that goes on though nobody waits for it any more.
pub type Background = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Stores<R> {
    default: Member<R>,
    /// Slot 1 and those after it.
    named: Vec<Member<R>>,
    /// The counters of rules that count on each node by itself, where the default store is shared; the last slot.
    own: Option<Member<R>>,
    spawn: Box<dyn Fn(Background) + Send + Sync>,
}

#[derive(Debug)]
struct Member<R> {
    /// Empty for the default store.
    name: Box<str>,
    store: Backend<R>,
    /// Hits that were taken there for nothing, or may have been, and were not given back.
    stranded: AtomicU64,
}

impl<R> Router<R> {
    /// The counters in `default`, but for those that rules put into one of `named`. What gives
    /// hits back after its caller has gone runs where `spawn` puts it.
    #[must_use]
    pub fn new(
        default: Backend<R>,
        named: Vec<(Box<str>, Backend<R>)>,
        spawn: impl Fn(Background) + Send + Sync + 'static,
    ) -> Self {
        let member = |(name, store)| Member {
            name,
            store,
            stranded: AtomicU64::new(0),
        };
        Self(Arc::new(Stores {
            default: member((Box::default(), default)),
            named: named.into_iter().map(member).collect(),
            own: None,
            spawn: Box::new(spawn),
        }))
    }

    /// The same router with a store for rules that count on each node by itself. To be called before it is cloned.
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
    #[must_use]
    pub fn shared(&self) -> Option<&R> {
        self.members().find_map(|member| match &member.store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => Some(store),
        })
    }

    fn members(&self) -> impl Iterator<Item = &Member<R>> {
        std::iter::once(&self.0.default)
            .chain(&self.0.named)
            .chain(&self.0.own)
    }

    fn member(&self, partition: Partition) -> &Member<R> {
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

impl<R> Clone for Router<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: fmt::Debug> fmt::Debug for Router<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.members()).finish()
    }
}

impl<R: Store> Backend<R> {
    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<R::Ticket> {
        match self {
            Self::Memory(store) => Answer::Decided(store.decide_now(request)),
            Self::Shared(store) => store.decide(request),
        }
    }
}

impl<R: Store> Store for Router<R> {
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
        match &self.member(partition_of(&post.step)).store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => store.post(post).map(across::Ticket::one),
        }
    }

    fn strand(&self, step: &Step) {
        self.stranded(partition_of(step), step.hits.unsigned_abs());
    }

    fn late(ticket: Self::Ticket) -> Option<Self::Ticket> {
        ticket.late()
    }

    /// All stores' counters are named by one key, which those that nodes share have in common.
    fn hash_key(&self) -> Option<HashKey> {
        self.shared().and_then(R::hash_key)
    }

    fn slot(&self, name: &str) -> StoreSlot {
        let found = self.0.named.iter().position(|named| &*named.name == name);
        let slot = found.and_then(|index| u8::try_from(index + 1).ok());
        slot.map(StoreSlot).unwrap_or_default()
    }

    fn leases(&self, slot: StoreSlot) -> bool {
        match &self.member(Partition(u32::from(slot.0))).store {
            Backend::Memory(_) => false,
            Backend::Shared(store) => store.leases(StoreSlot::default()),
        }
    }

    fn is_cluster(&self, slot: StoreSlot) -> bool {
        match &self.member(Partition(u32::from(slot.0))).store {
            Backend::Memory(_) => false,
            Backend::Shared(store) => store.is_cluster(StoreSlot::default()),
        }
    }

    fn held(&self, step: &Step) -> Option<LeasedHits> {
        match &self.member(partition_of(step)).store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => store.held(step),
        }
    }

    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        match &self.member(partition_of(step)).store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => store.synced(step),
        }
    }

    fn own_slot(&self) -> Option<StoreSlot> {
        match &self.0.default.store {
            Backend::Memory(_) => Some(StoreSlot::default()),
            Backend::Shared(_) => self.0.own.as_ref().map(|_| StoreSlot(u8::MAX)),
        }
    }
}

impl<R> Router<R> {
    /// Returns true if steps of `request` are counted on this node by itself.
    #[inline]
    fn is_of_several(&self, request: &Request<'_>) -> bool {
        self.0.own.is_some() && request.steps.iter().any(|step| partition_of(step) == OWN)
    }
}

fn partition_of(step: &Step) -> Partition {
    Partition(u32::from(step.store.0))
}

impl<R: Store> Partitions for Router<R> {
    type Ticket = R::Ticket;

    fn ask(&self, partition: Partition, request: &Request<'_>) -> Answer<R::Ticket> {
        self.member(partition).store.decide(request)
    }

    fn away(&self, partition: Partition) -> Option<StoreError> {
        match &self.member(partition).store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => store.away(),
        }
    }

    fn recall(&self, partition: Partition, request: &Request<'_>) -> Option<Verdicts> {
        match &self.member(partition).store {
            Backend::Memory(_) => None,
            Backend::Shared(store) => store.recall(request),
        }
    }

    fn late(ticket: R::Ticket) -> Option<R::Ticket> {
        R::late(ticket)
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

impl<R: ServedStore> ServedStore for Router<R> {
    fn maintain(&self, now: Timestamp) {
        for member in self.members() {
            match &member.store {
                Backend::Memory(store) => store.maintain(now),
                Backend::Shared(store) => store.maintain(now),
            }
        }
    }

    fn prepare(&self) {
        for member in self.members() {
            if let Backend::Shared(store) = &member.store {
                store.prepare();
            }
        }
    }

    fn gauges(&self) -> StoreGauges {
        match &self.0.default.store {
            Backend::Memory(store) => store.gauges(),
            Backend::Shared(store) => store.gauges(),
        }
    }

    async fn hash_key_other_than(&self, known: HashKey) -> HashKey {
        match self.shared() {
            Some(store) => store.hash_key_other_than(known).await,
            None => std::future::pending().await,
        }
    }

    fn agreement(&self) -> Option<Agreement> {
        self.shared().and_then(R::agreement)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for Member { name, store, .. } in self.members() {
            let Backend::Shared(store) = store else {
                continue;
            };
            faults.extend(store.faults().into_iter().map(|fault| match &**name {
                "" => fault,
                name => format!("store {name}: {fault}"),
            }));
        }
        faults
    }

    fn lease_gauges(&self) -> Vec<LeaseGauges> {
        let mut all = Vec::new();
        for Member { name, store, .. } in self.members() {
            if let Backend::Shared(store) = store {
                let gauges = store.lease_gauges().into_iter();
                all.extend(gauges.map(|it| LeaseGauges {
                    store: name.clone(),
                    ..it
                }));
            }
        }
        all
    }

    fn sync_gauges(&self) -> Vec<SyncGauges> {
        let mut all = Vec::new();
        for Member { name, store, .. } in self.members() {
            if let Backend::Shared(store) = store {
                let gauges = store.sync_gauges().into_iter();
                all.extend(gauges.map(|it| SyncGauges {
                    store: name.clone(),
                    ..it
                }));
            }
        }
        all
    }

    async fn close(&self) {
        for member in self.members() {
            if let Backend::Shared(store) = &member.store {
                store.close().await;
            }
        }
    }

    fn servers(&self) -> Vec<ServerGauges> {
        let mut all = Vec::new();
        for member in self.members() {
            let Backend::Shared(store) = &member.store else {
                continue;
            };
            let mut servers = store.servers();
            add_stranded(&mut servers, member.stranded.load(Ordering::Relaxed));
            if !member.name.is_empty() {
                for server in &mut servers {
                    server.shard = format!("{}/{}", member.name, server.shard).into();
                }
            }
            all.append(&mut servers);
        }
        all
    }
}

/// Adds `hits` to the first server's count: which of a store's servers they are in is not known.
#[allow(clippy::cast_precision_loss, reason = "counts in metrics are doubles")]
fn add_stranded(servers: &mut [ServerGauges], hits: u64) {
    let mut counts = servers.iter_mut().flat_map(|server| &mut server.counts);
    if let Some((.., count)) = counts.find(|(name, ..)| *name == "stranded_hits") {
        *count += hits as f64;
    }
}
