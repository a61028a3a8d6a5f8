//! The chores beside deciding: checking what each server is, and sharing the secret among nodes (`seed`).

mod chore;
mod compare;
mod round_trip;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::config::RedisConfig;
use crate::lane::Asking;
use crate::seed::{Seed, Share};
use crate::sentinel::follow;
use crate::shard::Shard;
use crate::survey::survey;
use crate::topology::Topology;
use chore::Chore;

/// The last known status of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerStatus {
    /// The server's name and version, such as `Redis 7.0.15`; [`None`] before it was reached.
    pub server: Option<String>,
    /// The reason it cannot be asked, or could not the last time; [`None`] if it can.
    pub error: Option<String>,
    /// Warnings about settings that will cause trouble later.
    pub warnings: Vec<String>,
}

/// Looks after the servers.
#[derive(Debug)]
pub(crate) struct Keeper {
    kept: Arc<Kept>,
    tasks: [AbortHandle; 2],
}

#[derive(Debug)]
struct Kept {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    asking: Arc<Asking>,
    /// The prefix of all keys.
    prefix: String,
    share: Share,
    /// Wakes those waiting for servers to say what they are.
    greeted: watch::Sender<u64>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Keeper {
    pub(crate) fn start(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        asking: Arc<Asking>,
        prefix: &str,
        share: Share,
        runtime: &Handle,
    ) -> Self {
        let kept = Arc::new(Kept {
            share,
            asking,
            prefix: prefix.to_owned(),
            topology: Arc::clone(&topology),
            config: Arc::clone(&config),
            greeted: watch::Sender::new(0),
        });
        let surveyed = runtime.spawn(async move {
            match topology.sentinels.clone() {
                Some(set) => follow(topology, set, config).await,
                None if topology.is_cluster() => survey(topology, config).await,
                None => {}
            }
        });
        let looked_after = runtime.spawn(keep_all(Arc::clone(&kept)));
        Self {
            kept,
            tasks: [surveyed.abort_handle(), looked_after.abort_handle()],
        }
    }

    /// The combined status of all servers. If only some fail, their shards report it.
    pub(crate) fn status(&self) -> ServerStatus {
        let map = self.kept.topology.map();
        let mut whole = ServerStatus::default();
        let mut errors = Vec::new();
        for shard in map.shards() {
            let ServerStatus {
                server,
                error,
                warnings,
            } = shard.status.lock().clone();
            whole.server = whole.server.or(server);
            whole.warnings.extend(warnings);
            errors.extend(error);
        }
        let is_lost = errors.len() == map.shards().len();
        let trouble = self.kept.topology.trouble.lock();
        whole.error = errors.into_iter().next().filter(|_| is_lost);
        whole.error = whole
            .error
            .or_else(|| trouble.as_ref().map(ToString::to_string));
        whole
    }

    pub(crate) fn seed(&self) -> &Seed {
        &self.kept.share.seed
    }

    /// The fault of the secret that the stores share, if any; only the first store reports it.
    pub(crate) fn seed_fault(&self) -> Option<String> {
        let Share { seed, is_first } = &self.kept.share;
        if !is_first {
            return None;
        }
        if !seed.is_adopted() {
            let fault = "no Redis that was reached has told the key that counters are named by: nothing is counted \
                         there, and failure modes decide";
            return Some(fault.to_owned());
        }
        let differing = seed.differing();
        (!differing.is_empty()).then(|| {
            format!(
                "the key that counters are named by is not the same in all of Redis: that of {} is another one, so \
                 nodes may count apart until the first store tells which of them counts",
                differing.join(", ")
            )
        })
    }

    pub(crate) async fn greeted(&self) {
        let mut greeted = self.kept.greeted.subscribe();
        let all = || {
            let map = self.kept.topology.map();
            let is_surveyed = *self.kept.topology.surveyed.borrow();
            is_surveyed && map.shards().iter().all(|shard| shard.is_greeted())
        };
        while !all() {
            let mut surveyed = self.kept.topology.surveyed.subscribe();
            tokio::select! {
                changed = greeted.changed() => if changed.is_err() { return },
                _ = surveyed.changed() => {}
            }
        }
    }
}

/// Looks after every server that serves slots, for as long as it does.
async fn keep_all(kept: Arc<Kept>) {
    let mut chores: Vec<(Arc<Shard>, JoinSet<()>)> = Vec::new();
    loop {
        let map = kept.topology.map();
        chores.retain(|(shard, _)| map.shards().iter().any(|it| Arc::ptr_eq(it, shard)));
        for shard in map.shards() {
            if chores.iter().any(|(it, _)| Arc::ptr_eq(it, shard)) {
                continue;
            }
            let chore = Chore::new(Arc::clone(shard), Arc::clone(&kept));
            // Ends with the set it is in.
            let mut task = JoinSet::new();
            task.spawn(chore.keep());
            chores.push((Arc::clone(shard), task));
        }
        kept.topology.changed(map.version).await;
    }
}
