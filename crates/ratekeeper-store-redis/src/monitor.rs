//! The tasks beside deciding: checking what each server is, and sharing the hash key among nodes.

mod compare;
mod round_trip;
mod server;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::background::Background;
use crate::config::RedisConfig;
use crate::hash_key::{HashKeyRole, SharedHashKey};
use crate::script_context::ScriptContext;
use crate::sentinel::follow;
use crate::server_status::ServerStatus;
use crate::shard::Shard;
use crate::survey::survey;
use crate::topology::Topology;
use server::ServerMonitor;

/// Looks after the servers.
#[derive(Debug)]
pub(crate) struct Monitor {
    monitored: Arc<Monitored>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct Monitored {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    context: Arc<ScriptContext>,
    /// The prefix of all keys.
    prefix: String,
    role: HashKeyRole,
    /// Wakes those waiting for servers to say what they are.
    greeted: watch::Sender<u64>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Monitor {
    pub(crate) fn start(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        prefix: &str,
        role: HashKeyRole,
        home: &Background,
    ) -> Self {
        let monitored = Arc::new(Monitored {
            role,
            context,
            prefix: prefix.to_owned(),
            topology: Arc::clone(&topology),
            config: Arc::clone(&config),
            greeted: watch::Sender::new(0),
        });
        let surveyed = home.spawn("survey of servers", move || {
            let (topology, config) = (Arc::clone(&topology), Arc::clone(&config));
            async move {
                match topology.sentinels.clone() {
                    Some(set) => follow(topology, set, config).await,
                    None if topology.is_cluster() => survey(topology, config).await,
                    None => {}
                }
            }
        });
        let (all, home_of_all) = (Arc::clone(&monitored), home.clone());
        let looked_after = home.spawn("monitors of servers", move || {
            monitor_all(Arc::clone(&all), home_of_all.clone())
        });
        Self {
            monitored,
            tasks: [surveyed.abort_handle(), looked_after.abort_handle()],
        }
    }

    /// The combined status of all servers. If only some fail, their shards report it.
    pub(crate) fn server_status(&self) -> ServerStatus {
        let map = self.monitored.topology.map();
        let mut whole = ServerStatus::default();
        let mut errors = Vec::new();
        for shard in map.shards() {
            let ServerStatus {
                server,
                error,
                is_refused,
                warnings,
            } = shard.status.lock().clone();
            whole.is_refused |= is_refused;
            whole.server = whole.server.or(server);
            whole.warnings.extend(warnings);
            errors.extend(error);
        }
        let is_lost = errors.len() == map.shards().len();
        let trouble = self.monitored.topology.trouble.lock();
        whole.error = errors.into_iter().next().filter(|_| is_lost);
        whole.error = whole
            .error
            .or_else(|| trouble.as_ref().map(ToString::to_string));
        whole
    }

    pub(crate) fn hash_key(&self) -> &SharedHashKey {
        &self.monitored.role.hash_key
    }

    /// The fault of the hash key that the stores share, if any; only the first store reports it.
    pub(crate) fn hash_key_fault(&self) -> Option<String> {
        let HashKeyRole { hash_key, is_first } = &self.monitored.role;
        if !is_first {
            return None;
        }
        if !hash_key.is_adopted() {
            let fault = "no Redis that was reached has told the key that counters are named by: nothing is counted \
                         there, and failure modes decide";
            return Some(fault.to_owned());
        }
        let differing = hash_key.differing();
        (!differing.is_empty()).then(|| {
            format!(
                "the key that counters are named by is not the same in all of Redis: that of {} is another one, so \
                 nodes may count apart until the first store tells which of them counts",
                differing.join(", ")
            )
        })
    }

    pub(crate) async fn greeted(&self) {
        let mut greeted = self.monitored.greeted.subscribe();
        let all = || {
            let map = self.monitored.topology.map();
            let is_surveyed = *self.monitored.topology.surveyed.borrow();
            is_surveyed && map.shards().iter().all(|shard| shard.is_greeted())
        };
        while !all() {
            let mut surveyed = self.monitored.topology.surveyed.subscribe();
            tokio::select! {
                changed = greeted.changed() => if changed.is_err() { return },
                _ = surveyed.changed() => {}
            }
        }
    }
}

/// Looks after every server that serves slots, for as long as it does.
async fn monitor_all(monitored: Arc<Monitored>, home: Background) {
    let mut tasks: Vec<(Arc<Shard>, JoinSet<()>)> = Vec::new();
    loop {
        let map = monitored.topology.map();
        tasks.retain(|(shard, _)| map.shards().iter().any(|it| Arc::ptr_eq(it, shard)));
        for shard in map.shards() {
            if tasks.iter().any(|(it, _)| Arc::ptr_eq(it, shard)) {
                continue;
            }
            let of = (Arc::clone(shard), Arc::clone(&monitored));
            let begin = move || ServerMonitor::new(Arc::clone(&of.0), Arc::clone(&of.1)).keep();
            // Ends with the set it is in.
            let mut task = JoinSet::new();
            task.spawn(home.clone().until_done("monitor of a server", begin));
            tasks.push((Arc::clone(shard), task));
        }
        monitored.topology.changed(map.version).await;
    }
}
