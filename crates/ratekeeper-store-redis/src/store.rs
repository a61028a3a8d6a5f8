//! The Redis store, as limiters see it.

mod status;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use ratekeeper_store::across::{self, Partition, Partitions};
use ratekeeper_store::{
    Answer, Execution, HashKey, LeaseGauges, LeasedHits, Post, Request, Step, Store, StoreError,
    StoreSlot, SyncGauges, SyncedHits, Verdicts,
};
use ratekeeper_stores::StoreReply;
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::asking::Asking;
use crate::config::RedisConfig;
use crate::denied::Denied;
use crate::endpoint::Endpoint;
use crate::fleet::FleetBoard;
use crate::hash_key::{Share, SharedHashKey};
use crate::lease::{Leased, Leases};
use crate::metrics::Fault;
use crate::monitor::Monitor;
use crate::node_board::NodeBoard;
use crate::nodes::Nodes;
use crate::script::{Clock, Group, KeyName, Script, slot};
use crate::slots::Slots;
use crate::synced::{SYNCED, is_step_synced, is_synced};
use crate::topology::Topology;

/// Counters in Redis or Valkey, in one server or a cluster, shared by all nodes.
///
/// Each runtime has connections of its own, and batches the requests that are waiting at the same
/// time. Callers outside of any runtime use that of the store.
#[derive(Debug)]
pub struct RedisStore {
    pub(crate) slots: Slots,
    monitor: Monitor,
    /// Made by the first request that has leased counters.
    leases: OnceLock<Leases>,
    fleet: Arc<FleetBoard>,
    top: Arc<NodeBoard>,
    quotas: Arc<NodeBoard>,
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
        let share = Share {
            hash_key,
            is_first: true,
        };
        Self::start(topology, &endpoint, config, share, clock, home)
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
            let share = Share {
                hash_key: Arc::clone(&hash_key),
                is_first: std::mem::replace(&mut is_first, false),
            };
            Self::start(
                topology,
                &endpoint,
                config,
                share,
                Clock::Server,
                home.clone(),
            )
        });
        stores.collect()
    }

    fn start(
        topology: Arc<Topology>,
        endpoint: &Endpoint,
        mut config: RedisConfig,
        share: Share,
        clock: Clock,
        home: Handle,
    ) -> Self {
        let prefix = format!("{}rk:", endpoint.prefix());
        if clock == Clock::Told {
            // A call is given one time, that of one request.
            config.merges = false;
            config.groups_max = 1;
            config.deny_cache_max = std::time::Duration::ZERO;
        }
        let asking = Asking {
            script: Script::new(clock),
            clock,
            names: KeyName::new(&prefix),
            denied: Denied::new(config.deny_cache_max),
            nodes: Nodes::new(),
            told: AtomicU64::new(0),
        };
        let (config, asking) = (Arc::new(config), Arc::new(asking));
        let monitor = Monitor::start(
            Arc::clone(&topology),
            Arc::clone(&config),
            Arc::clone(&asking),
            &prefix,
            share,
            &home,
        );
        let fleet = FleetBoard::new(Arc::clone(&topology), config.connect_timeout, &prefix);
        let board = |tag| {
            let board = NodeBoard::new(Arc::clone(&topology), config.connect_timeout, &prefix, tag);
            Arc::new(board)
        };
        let (top, quotas) = (board("top"), board("quotas"));
        let slots = Slots::new(topology, config, asking, home);
        Self {
            slots,
            monitor,
            leases: OnceLock::new(),
            fleet: Arc::new(fleet),
            top,
            quotas,
        }
    }

    /// The board on which the nodes that share this store report their requests in flight.
    #[must_use]
    pub fn fleet(&self) -> Arc<FleetBoard> {
        Arc::clone(&self.fleet)
    }

    /// The board with the keys that are denied most on each node.
    #[must_use]
    pub fn top(&self) -> Arc<NodeBoard> {
        Arc::clone(&self.top)
    }

    /// The board on which nodes say in which database they find tenants' quotas.
    #[must_use]
    pub fn quota_databases(&self) -> Arc<NodeBoard> {
        Arc::clone(&self.quotas)
    }

    /// This node's leases; [`None`] before it was asked for a counter that is leased.
    #[must_use]
    pub fn leased(&self) -> Option<LeaseGauges> {
        self.leases.get().map(|leases| leases.shared().counts())
    }

    /// Gives back what this node holds in leases, and waits a moment for that. Nothing is leased from then on.
    pub async fn give_leases_back(&self) {
        if let Some(leases) = self.leases.get() {
            leases.close().await;
        }
    }

    /// The part of `request` that is taken from leases; [`None`] if nothing was.
    fn take_leased(&self, request: &Request<'_>) -> Option<Leased> {
        if !self.slots.has_own_clock() {
            return None;
        }
        let leases = self.leases.get_or_init(|| self.slots.lease());
        leases.take(request).filter(|leased| !leased.is_empty())
    }

    /// Asks Redis.
    fn ask(&self, request: &Request<'_>) -> Answer<StoreReply> {
        let shared = self.sharing(request);
        match shared.is_divided() {
            true => across::decide(&self.slots, request, |step| shared.partition_of(step))
                .map_pending(|ticket| ticket.into_one(StoreReply::joined)),
            // All counters lie together: one call decides them.
            false => self.slots.ask(Partition(0), request),
        }
    }

    fn sharing(&self, request: &Request<'_>) -> Sharing {
        Sharing {
            is_cluster: self.slots.topology().is_cluster(),
            syncs: is_synced(request) && self.slots.has_own_clock(),
        }
    }

    /// This node's synced counters: what is there, and counts since the start.
    #[must_use]
    pub fn sync_counts(&self) -> SyncGauges {
        let synced = self.slots.synced();
        synced.map(|synced| synced.gauges()).unwrap_or_default()
    }

    /// Adds what this node has counted of synced counters, and waits a moment for that.
    pub async fn add_pending(&self) {
        if let Some(synced) = self.slots.synced() {
            synced.close().await;
        }
    }
}

impl Store for RedisStore {
    type Ticket = StoreReply;

    fn hash_key(&self) -> Option<HashKey> {
        self.hash_key()
    }

    fn decide(&self, request: &Request<'_>) -> Answer<StoreReply> {
        let topology = self.slots.topology();
        if request.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: SmallVec::new(),
                at: request.now,
                execution: Execution::Now,
            });
        }
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
        if request.steps.iter().any(|step| !step.lease.is_zero())
            && let Some(leased) = self.take_leased(request)
        {
            let answer = leased.decide(request, |rest| self.ask(rest));
            return answer.map_pending(StoreReply::joined);
        }
        self.ask(request)
    }

    fn held(&self, step: &Step) -> Option<LeasedHits> {
        if step.lease.is_zero() {
            return None;
        }
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

    fn leases(&self, _: StoreSlot) -> bool {
        self.slots.has_own_clock()
    }

    fn is_cluster(&self, _: StoreSlot) -> bool {
        self.slots.topology().is_cluster()
    }

    /// The error while a single server's breaker is open. In a cluster each slot is asked by itself.
    fn away(&self) -> Option<StoreError> {
        match self.slots.topology().is_cluster() {
            true => None,
            false => self.slots.away(Partition(0)),
        }
    }

    fn recall(&self, request: &Request<'_>) -> Option<Verdicts> {
        self.slots.recall(Partition(0), request)
    }

    fn late(reply: StoreReply) -> Option<StoreReply> {
        reply.late()
    }

    fn post(&self, post: &Post) -> Option<StoreReply> {
        let partition = match self.slots.topology().is_cluster() {
            true => partition_of(&post.step),
            false => Partition(0),
        };
        if !self.monitor.hash_key().admits(post.named_by) {
            return Some(StoreReply::failed(StoreError::Unavailable));
        }
        Some(self.slots.post(partition, post))
    }

    fn strand(&self, step: &Step) {
        let partition = match self.slots.topology().is_cluster() {
            true => partition_of(step),
            false => Partition(0),
        };
        self.slots.stranded(partition, step.hits.unsigned_abs());
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        // A single server answers all steps, or none.
        let shared = self.sharing(request);
        if shared.is_divided() {
            let partition_of = |step: &Step| shared.partition_of(step);
            across::give_back(&self.slots, request, taken, partition_of);
        }
    }
}

/// The way in which the counters of a request are shared.
#[derive(Clone, Copy, Debug)]
struct Sharing {
    is_cluster: bool,
    /// Some are decided in memory.
    syncs: bool,
}

impl Sharing {
    const fn is_divided(self) -> bool {
        self.is_cluster || self.syncs
    }

    fn partition_of(self, step: &Step) -> Partition {
        if self.syncs && is_step_synced(step) {
            SYNCED
        } else if self.is_cluster {
            partition_of(step)
        } else {
            Partition(0)
        }
    }
}

/// The slot of the counter of `step` in a cluster.
fn partition_of(step: &Step) -> Partition {
    Partition(u32::from(slot(step.key.subject)))
}
