//! The Redis store, as limiters see it.

use std::ops::Deref;
use std::sync::Arc;

use ratekeeper_store::across::CounterSlot;
use ratekeeper_store::{
    Answer, HashKey, LeasedHits, Post, Request, Step, Store, StoreError, StoreSlot, SyncedHits,
    Verdicts,
};
use ratekeeper_stores::{Backend, SharedStore, Stores, StoresTicket};
use tokio::runtime::Handle;

use crate::config::RedisConfig;
use crate::endpoint::Endpoint;
use crate::hash_key::{HashKeyRole, SharedHashKey};
use crate::script::Clock;
use crate::servers::RedisServers;
use crate::topology::Topology;

/// Counters in Redis or Valkey, in one server or a cluster, shared by all nodes.
///
/// Each runtime has connections of its own, and batches the requests that are waiting at the same
/// time. Callers outside of any runtime use that of the store. Clones are the same store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    servers: Arc<RedisServers>,
    /// These servers as the only store: what limiters of this store ask.
    alone: Stores,
}

impl RedisStore {
    /// Makes a store of the counters at `endpoint`, whose tasks run on `home`. It connects in the
    /// background: this neither waits nor fails.
    #[must_use]
    pub fn new(endpoint: Endpoint, config: RedisConfig, home: Handle) -> Self {
        Self::with_clock(endpoint, config, Clock::Server, home)
    }

    /// As [`Self::new`], by the caller's clock: for tests.
    #[must_use]
    pub fn with_clock(endpoint: Endpoint, config: RedisConfig, clock: Clock, home: Handle) -> Self {
        let topology = Arc::new(Topology::of(endpoint.deployment.clone()));
        let hash_key = Arc::new(SharedHashKey::new(
            config.hash_key,
            [Arc::clone(&topology)].into(),
        ));
        let role = HashKeyRole {
            hash_key,
            is_first: true,
        };
        Self::start(topology, &endpoint, config, role, clock, home)
    }

    /// Makes the stores of one service, whose counters are named by one hash key. Unless it is a
    /// setting (that of the first), the first store's hash key is authoritative, and all others have
    /// copies, so that a node that starts while the first is away finds it as well. Until the
    /// hash key is known nothing is counted in any of them.
    #[must_use]
    pub fn several(stores: Vec<(Endpoint, RedisConfig)>, home: &Handle) -> Vec<Self> {
        let setting = stores.first().and_then(|(_, config)| config.hash_key);
        let topology = |endpoint: &Endpoint| Topology::of(endpoint.deployment.clone());
        let topologies = stores
            .iter()
            .map(|(endpoint, _)| Arc::new(topology(endpoint)));
        let topologies: Box<[_]> = topologies.collect();
        let hash_key = Arc::new(SharedHashKey::new(setting, topologies.clone()));
        let mut is_first = true;
        let stores = stores.into_iter().zip(topologies);
        let stores = stores.map(|((endpoint, config), topology)| {
            let role = HashKeyRole {
                hash_key: Arc::clone(&hash_key),
                is_first: std::mem::replace(&mut is_first, false),
            };
            Self::start(
                topology,
                &endpoint,
                config,
                role,
                Clock::Server,
                home.clone(),
            )
        });
        stores.collect()
    }

    fn start(
        topology: Arc<Topology>,
        endpoint: &Endpoint,
        config: RedisConfig,
        role: HashKeyRole,
        clock: Clock,
        home: Handle,
    ) -> Self {
        let servers = RedisServers::start(topology, endpoint, config, role, clock, home.clone());
        let servers = Arc::new(servers);
        let shared = Backend::Shared(Arc::clone(&servers) as _);
        let alone = Stores::new(shared, Vec::new(), move |rest| {
            let here = Handle::try_current().unwrap_or_else(|_| home.clone());
            here.spawn(rest);
        });
        Self { servers, alone }
    }

    /// Its servers, to be joined with other stores.
    #[must_use]
    pub fn shared(&self) -> Arc<dyn SharedStore> {
        Arc::clone(&self.servers) as _
    }
}

impl Deref for RedisStore {
    type Target = RedisServers;

    fn deref(&self) -> &RedisServers {
        &self.servers
    }
}

impl Store for RedisStore {
    type Ticket = StoresTicket;

    fn decide(&self, request: &Request<'_>) -> Answer<StoresTicket> {
        self.alone.decide(request)
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        self.alone.give_back(request, taken);
    }

    fn post(&self, post: &Post) -> Option<StoresTicket> {
        self.alone.post(post)
    }

    fn strand(&self, step: &Step) {
        self.alone.strand(step);
    }

    fn late(ticket: StoresTicket) -> Option<StoresTicket> {
        Stores::late(ticket)
    }

    fn hash_key(&self) -> Option<HashKey> {
        self.servers.hash_key()
    }

    /// The error while a single server's breaker is open. In a cluster each slot is asked by itself.
    fn away(&self) -> Option<StoreError> {
        match self.servers.is_cluster() {
            true => None,
            false => self.servers.away(CounterSlot::ONLY),
        }
    }

    fn leases(&self, slot: StoreSlot) -> bool {
        self.alone.leases(slot)
    }

    fn is_cluster(&self, slot: StoreSlot) -> bool {
        self.alone.is_cluster(slot)
    }

    fn lends(&self, slot: StoreSlot) -> bool {
        self.alone.lends(slot)
    }

    fn held(&self, step: &Step) -> Option<LeasedHits> {
        self.alone.held(step)
    }

    fn synced(&self, step: &Step) -> Option<SyncedHits> {
        self.alone.synced(step)
    }
}
