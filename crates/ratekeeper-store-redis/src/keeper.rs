//! What is looked after beside deciding: what server that is, and the secret that nodes share.
//!
//! Counters are named by a keyed hash, and all nodes must have the same key. It is made once and
//! kept in Redis; every node puts it back and compares it each second, and adopts what is there,
//! so that a FLUSHALL cannot split the nodes.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::config::RedisConfig;
use crate::greeting::Greeting;
use crate::link::{Link, said};
use crate::rights;
use crate::script::slot_of_key;
use crate::sentinel::follow;
use crate::shard::Shard;
use crate::survey::survey;
use crate::topology::Topology;

/// How often the secret is compared.
const EVERY: Duration = Duration::from_secs(1);

/// How long the server may take to say what it is, which nobody waits for.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is known of a server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ServerStatus {
    /// What it says it is, such as `Redis 7.0.15`; [`None`] before it was reached.
    pub server: Option<String>,
    /// Why it cannot be asked, or could not the last time; [`None`] if it can.
    pub error: Option<String>,
    /// What will go wrong one day.
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
    /// What all keys begin with.
    prefix: String,
    /// Where the seed lies.
    key: String,
    seed: Mutex<[u8; 16]>,
    /// Wakes who waits for servers to say what they are.
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
        prefix: &str,
        runtime: &Handle,
    ) -> Self {
        let kept = Arc::new(Kept {
            seed: Mutex::new(config.seed.unwrap_or_else(random)),
            prefix: prefix.to_owned(),
            key: format!("{prefix}seed"),
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

    /// What is known of all servers: of one that fails beside others, its shard tells.
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
            .or_else(|| trouble.as_deref().map(str::to_owned));
        whole
    }

    pub(crate) fn seed(&self) -> [u8; 16] {
        *self.kept.seed.lock()
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
            let chore = Chore {
                shard: Arc::clone(shard),
                kept: Arc::clone(&kept),
            };
            // Ends with the set it is in.
            let mut task = JoinSet::new();
            task.spawn(chore.keep());
            chores.push((Arc::clone(shard), task));
        }
        kept.topology.changed(map.version).await;
    }
}

struct Chore {
    shard: Arc<Shard>,
    kept: Arc<Kept>,
}

impl Chore {
    async fn keep(self) {
        loop {
            if let Err(why) = self.look_after().await {
                let mut status = self.shard.status.lock();
                if status.error.as_deref() != Some(&*why) {
                    warn!(shard = %self.shard.name, why, "Redis cannot be asked");
                }
                status.error = Some(why);
            }
            self.greeted();
            sleep(EVERY).await;
        }
    }

    /// The server was asked what it is and for the seed, whatever came of it.
    fn greeted(&self) {
        if self.shard.greeted() {
            self.kept.greeted.send_modify(|count| *count += 1);
        }
    }

    /// Connects, and looks after the server until that fails: why.
    async fn look_after(&self) -> Result<(), String> {
        let link = Link::open(&self.shard.node, self.kept.config.connect_timeout).await;
        let Link {
            mut connection,
            driver,
        } = link.map_err(|error| error.to_string())?;
        let keep = async {
            self.greet(&mut connection).await?;
            loop {
                self.compare(&mut connection).await?;
                self.greeted();
                sleep(EVERY).await;
            }
        };
        tokio::select! {
            ended = keep => ended,
            () = driver => Err("the connection was closed".to_owned()),
        }
    }

    /// Asks the server what it is and what we may do there.
    async fn greet(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        let mut warnings = Vec::new();
        let question = redis::cmd("INFO");
        let info = match self.ask(question.query_async::<String>(connection)).await {
            // Not all who let others use their server let them see so much.
            Err(why) if why.starts_with("NOPERM") => {
                warnings.push(format!(
                    "Redis at {} does not say what it is ({why}): neither its version nor its maxmemory-policy is \
                     checked",
                    self.shard.name
                ));
                String::new()
            }
            info => info?,
        };
        let greeting = Greeting::read(&info);
        let refusal = match greeting.refusal() {
            Some(why) => Some(why),
            None => self.lacks(connection).await?,
        };
        if let Some(why) = refusal {
            self.shard.refused(&why);
            return Err(why);
        }
        self.shard.accepted();
        warnings.extend(greeting.warnings(&self.shard.name));
        let mut status = self.shard.status.lock();
        for warning in warnings.iter().filter(|it| !status.warnings.contains(it)) {
            warn!(shard = %self.shard.name, "{warning}");
        }
        *status = ServerStatus {
            server: Some(greeting.name()),
            error: None,
            warnings,
        };
        Ok(())
    }

    /// What we may not do there and would have to.
    async fn lacks(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<String>, String> {
        let question = rights::question(&self.kept.prefix);
        let login = &self.shard.node.login;
        match self
            .ask(question.query_async::<Vec<String>>(connection))
            .await
        {
            Ok(lacking) if lacking.is_empty() => Ok(None),
            Ok(lacking) => Ok(Some(rights::refusal(&lacking, login, &self.kept.prefix))),
            Err(why) if why.starts_with("NOPERM") => {
                let grant = rights::grant(login, &self.kept.prefix);
                Ok(Some(format!("{why}; grant what is needed: {grant}")))
            }
            Err(why) => Err(why),
        }
    }

    /// Puts the seed back if it is gone, and adopts the one that is there.
    async fn compare(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        if !self.has_seed() {
            let ping = redis::cmd("PING");
            return self
                .ask(ping.query_async::<Value>(connection))
                .await
                .map(|_| self.shard.status.lock().error = None);
        }
        let ours = *self.kept.seed.lock();
        let mut both = redis::pipe();
        both.cmd("SET")
            .arg(&self.kept.key)
            .arg(&ours[..])
            .arg("NX")
            .ignore();
        both.cmd("GET").arg(&self.kept.key);
        let there = match self.ask(both.query_async(connection)).await {
            Err(why) if why.starts_with("MOVED") => {
                self.kept.topology.doubt();
                return Ok(());
            }
            there => there?,
        };
        let (there,): (Vec<u8>,) = there;
        let Ok(there) = <[u8; 16]>::try_from(there) else {
            return Err(format!(
                "what lies at {} is no seed of 16 bytes",
                self.kept.key
            ));
        };
        if there != ours {
            *self.kept.seed.lock() = there;
        }
        self.shard.status.lock().error = None;
        Ok(())
    }

    /// Whether the seed that all nodes share lies on this server, and is no setting.
    fn has_seed(&self) -> bool {
        let map = self.kept.topology.map();
        let owner = map.shard(slot_of_key(&self.kept.key));
        self.kept.config.seed.is_none() && owner.is_some_and(|it| Arc::ptr_eq(it, &self.shard))
    }

    async fn ask<T>(&self, asked: impl Future<Output = RedisResult<T>>) -> Result<T, String> {
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map_err(|error| said(&error)),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }
}

/// 128 bits that nobody knows.
fn random() -> [u8; 16] {
    let mut seed = [0; 16];
    if getrandom::fill(&mut seed).is_err() {
        // Without the system's generator a process still has the keys of its own hash tables.
        let word = || RandomState::new().build_hasher().finish().to_le_bytes();
        seed[..8].copy_from_slice(&word());
        seed[8..].copy_from_slice(&word());
    }
    seed
}
