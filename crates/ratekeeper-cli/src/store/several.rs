//! Several stores, of which rules name the one that keeps their counters.
//!
//! Each has connections, a breaker and deadlines of its own, so that a slow one slows nobody
//! else's decisions. Limits of one request that lie in two of them are taken in both or in none,
//! and one that is away leaves its own undecided and no others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Seed;
use ratekeeper_server::{Agreement, ServedStore, ServerGauges, StoreGauges};
use ratekeeper_store::across::{self, Place, Places, Rest};
use ratekeeper_store::{Answer, HashKey, Request, Step, Store, StoreError, StoreSlot, Verdicts};
use ratekeeper_store_redis::Ticket;
use tokio::runtime::Handle;

use super::OneStore;

/// The default store, and those that have names.
#[derive(Clone, Debug)]
pub(crate) struct Several(Arc<Stores>);

#[derive(Debug)]
struct Stores {
    default: OneStore,
    /// Hits that were taken there for nothing, or may have been, and were not given back.
    stranded: AtomicU64,
    /// Slot 1 and those after it.
    named: Vec<Named>,
    /// Where is seen through what nobody waits for any more.
    home: Handle,
}

#[derive(Debug)]
struct Named {
    name: Box<str>,
    store: OneStore,
    /// As those of the default store.
    stranded: AtomicU64,
}

impl Several {
    pub(crate) fn new(default: OneStore, named: Vec<(Box<str>, OneStore)>, home: Handle) -> Self {
        let named = named.into_iter().map(|(name, store)| Named {
            name,
            store,
            stranded: AtomicU64::new(0),
        });
        Self(Arc::new(Stores {
            default,
            stranded: AtomicU64::new(0),
            named: named.collect(),
            home,
        }))
    }

    pub(crate) fn default_store(&self) -> &OneStore {
        &self.0.default
    }

    fn named(&self, place: Place) -> Option<&Named> {
        let index = usize::try_from(place.0).ok()?.checked_sub(1)?;
        self.0.named.get(index)
    }

    fn store(&self, place: Place) -> &OneStore {
        self.named(place)
            .map_or(&self.0.default, |named| &named.store)
    }

    /// Any of those that nodes share: each knows what all of them know of the secret.
    fn shared(&self) -> Option<&OneStore> {
        self.all().find(|store| store.memory().is_none())
    }

    fn all(&self) -> impl Iterator<Item = &OneStore> {
        let named = self.0.named.iter().map(|named| &named.store);
        std::iter::once(&self.0.default).chain(named)
    }
}

impl Store for Several {
    type Ticket = across::Ticket<Self>;

    fn decide(&self, request: &Request<'_>) -> Answer<Self::Ticket> {
        across::decide(self, request, place_of)
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        across::give_back(self, request, taken, place_of);
    }

    /// All stores' counters are named by one secret, which those that nodes share have in common.
    fn hash_key(&self) -> Option<HashKey> {
        self.shared().and_then(OneStore::hash_key)
    }

    fn slot(&self, name: &str) -> StoreSlot {
        let found = self.0.named.iter().position(|named| &*named.name == name);
        let slot = found.and_then(|index| u8::try_from(index + 1).ok());
        slot.map(StoreSlot).unwrap_or_default()
    }
}

fn place_of(step: &Step) -> Place {
    Place(u32::from(step.store.0))
}

impl Places for Several {
    type Ticket = Ticket;

    fn ask(&self, place: Place, request: &Request<'_>) -> Answer<Ticket> {
        self.store(place).decide(request)
    }

    fn away(&self, place: Place) -> Option<StoreError> {
        self.store(place).away()
    }

    fn recall(&self, place: Place, request: &Request<'_>) -> Option<Verdicts> {
        self.store(place).recall(request)
    }

    fn detach(&self, rest: Rest<Self>) {
        self.0.home.spawn(rest);
    }

    fn stranded(&self, place: Place, hits: u64) {
        let named = self.named(place);
        let stranded = named.map_or(&self.0.stranded, |named| &named.stranded);
        stranded.fetch_add(hits, Ordering::Relaxed);
    }
}

impl ServedStore for Several {
    fn tend(&self, now: Timestamp) {
        self.all().for_each(|store| store.tend(now));
    }

    fn prepare(&self, runtime: &Handle) {
        self.all().for_each(|store| store.prepare(runtime));
    }

    fn gauges(&self) -> StoreGauges {
        self.0.default.gauges()
    }

    async fn seed_other_than(&self, known: Seed) -> Seed {
        match self.shared() {
            Some(store) => store.seed_other_than(known).await,
            None => std::future::pending().await,
        }
    }

    fn agreement(&self) -> Option<Agreement> {
        self.shared().and_then(OneStore::agreement)
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.0.default.faults();
        for Named { name, store, .. } in &self.0.named {
            let said = store.faults().into_iter();
            faults.extend(said.map(|fault| format!("store {name}: {fault}")));
        }
        faults
    }

    #[allow(clippy::cast_precision_loss, reason = "counts in metrics are doubles")]
    fn servers(&self) -> Vec<ServerGauges> {
        // Which of a store's shards they are in is not known here.
        let strand = |servers: &mut [ServerGauges], stranded: &AtomicU64| {
            let mut counts = servers.iter_mut().flat_map(|server| &mut server.counts);
            if let Some((.., count)) = counts.find(|(name, ..)| *name == "stranded_hits") {
                *count += stranded.load(Ordering::Relaxed) as f64;
            }
        };
        let mut servers = self.0.default.servers();
        strand(&mut servers, &self.0.stranded);
        for named in &self.0.named {
            let mut its = named.store.servers();
            strand(&mut its, &named.stranded);
            for server in &mut its {
                server.shard = format!("{}/{}", named.name, server.shard).into();
            }
            servers.extend(its);
        }
        servers
    }
}
