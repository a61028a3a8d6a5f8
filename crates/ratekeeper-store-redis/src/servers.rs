//! The servers with the counters of a store.

mod status;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ratekeeper_store::{LeaseGauges, Step, SyncGauges};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

use crate::background::Background;
use crate::config::RedisConfig;
use crate::denied::Denied;
use crate::endpoint::Endpoint;
use crate::fleet::FleetBoard;
use crate::generation::Generation;
use crate::hash_key::HashKeyRole;
use crate::lease::Leases;
use crate::loan_demands::LoanDemands;
use crate::loans::Loans;
use crate::monitor::Monitor;
use crate::node_board::NodeBoard;
use crate::nodes::Nodes;
use crate::script::{Clock, KeyName, Script, slot};
use crate::script_context::ScriptContext;
use crate::shard::Shard;
use crate::slots::Slots;
use crate::topology::Topology;

/// The longest wait for servers to have the hash key again, when the node stops.
const HASH_KEY_WITHIN: Duration = Duration::from_millis(500);

/// The servers of a [`RedisStore`](crate::RedisStore), as this node knows them.
#[derive(Debug)]
pub struct RedisServers {
    pub(crate) slots: Slots,
    pub(crate) monitor: Monitor,
    /// Made by the first request that has leased counters.
    pub(crate) leases: OnceLock<Leases>,
    /// Made for the first counter of which regions lend each other parts.
    pub(crate) loans: OnceLock<Loans>,
    fleet: Arc<FleetBoard>,
    top: Arc<NodeBoard>,
    quotas: Arc<NodeBoard>,
}

impl RedisServers {
    pub(crate) fn start(
        topology: Arc<Topology>,
        endpoint: &Endpoint,
        mut config: RedisConfig,
        role: HashKeyRole,
        clock: Clock,
        home: Handle,
    ) -> Self {
        let home = Background::new(home);
        let prefix = format!("{}rk:", endpoint.prefix());
        if clock == Clock::FromCaller {
            // A call is given one time, that of one request.
            config.merges = false;
            config.groups_max = 1;
            config.deny_cache_max = std::time::Duration::ZERO;
        }
        let names = KeyName::new(&prefix);
        let context = ScriptContext {
            script: Script::new(clock),
            clock,
            names: match topology.is_cluster() {
                true => names,
                false => names.on_one_server(),
            },
            denied: Denied::new(config.deny_cache_max),
            nodes: Nodes::new(),
            generation: Generation::default(),
            loan_demands: LoanDemands::default(),
            heard: OnceLock::new(),
            told: AtomicU64::new(0),
        };
        let (config, context) = (Arc::new(config), Arc::new(context));
        let monitor = Monitor::start(
            Arc::clone(&topology),
            Arc::clone(&config),
            Arc::clone(&context),
            &prefix,
            role,
            &home,
        );
        let fleet = FleetBoard::new(Arc::clone(&topology), config.connect_timeout, &prefix);
        let board = |tag| {
            let board = NodeBoard::new(Arc::clone(&topology), config.connect_timeout, &prefix, tag);
            Arc::new(board)
        };
        let (top, quotas) = (board("top"), board("quotas"));
        let slots = Slots::new(topology, config, context, home);
        Self {
            slots,
            monitor,
            leases: OnceLock::new(),
            loans: OnceLock::new(),
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

    /// Frees what this node holds in leases, and waits a moment for that. Nothing is leased from then on.
    pub async fn give_leases_back(&self) {
        if let Some(leases) = self.leases.get() {
            leases.close().await;
        }
    }

    /// Waits a moment for servers that have come back to have the hash key again. A node to come would make another one for
    /// those that came back empty, and find nothing of what was counted.
    pub(crate) async fn leave_hash_key(&self) {
        let topology = self.slots.topology();
        let lacks = |shard: &Arc<Shard>| shard.breaker.is_closed() && !shard.has_hash_key();
        let all = async {
            while topology.map().shards().iter().any(lacks) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(HASH_KEY_WITHIN, all).await;
    }

    /// The number of the slot of the counter of `step`, among those of its servers.
    pub(crate) fn server_slot(&self, step: &Step) -> u16 {
        match self.slots.topology().is_cluster() {
            true => slot(step.key.subject),
            false => 0,
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
