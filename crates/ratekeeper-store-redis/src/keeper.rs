//! What is looked after beside deciding: what server that is, and the secret that nodes share
//! (`seed`).

use std::sync::Arc;
use std::time::{Duration, Instant};

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
use crate::rights::Rights;
use crate::seed::{Secret, Seed, SeedKey, Share};
use crate::sentinel::follow;
use crate::shard::Shard;
use crate::survey::survey;
use crate::topology::Topology;

/// How often the secret is compared.
const EVERY: Duration = Duration::from_secs(1);

/// How often it is looked for while nobody knows of one.
const SOON: Duration = Duration::from_millis(50);

/// How long it has to be missing before another one is proposed while some servers cannot say
/// whether there is one: two rounds, in which those who know it put it back.
const MISSING: Duration = Duration::from_secs(2);

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
    share: Share,
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
        share: Share,
        runtime: &Handle,
    ) -> Self {
        let kept = Arc::new(Kept {
            share,
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

    pub(crate) fn seed(&self) -> &Seed {
        &self.kept.share.seed
    }

    /// What is wrong with the secret that the stores share, which the first of them tells.
    pub(crate) fn seed_fault(&self) -> Option<String> {
        let Share { seed, is_first } = &self.kept.share;
        if !is_first {
            return None;
        }
        if !seed.is_adopted() {
            let fault = "no Redis that was reached has told the key that counters are named by";
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
            let mut missing_since = None;
            loop {
                if self.compare(&mut connection, &mut missing_since).await? {
                    missing_since = None;
                    self.greeted();
                    sleep(EVERY).await;
                } else {
                    sleep(SOON).await;
                }
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
        let rights = Rights {
            login: &self.shard.node.login,
            prefix: &self.kept.prefix,
            is_cluster: self.kept.topology.is_cluster(),
        };
        let question = rights.question();
        match self
            .ask(question.query_async::<Vec<String>>(connection))
            .await
        {
            Ok(lacking) if lacking.is_empty() => Ok(None),
            Ok(lacking) => Ok(Some(rights.refusal(&lacking))),
            Err(why) if why.starts_with("NOPERM") => {
                let grant = rights.grant();
                Ok(Some(format!("{why}; grant what is needed: {grant}")))
            }
            Err(why) => Err(why),
        }
    }

    /// Puts the seed back if it is gone, and adopts the one that is there. False if there is
    /// none, and none may be proposed yet.
    async fn compare(
        &self,
        connection: &mut MultiplexedConnection,
        missing_since: &mut Option<Instant>,
    ) -> Result<bool, String> {
        let (kept, Share { seed, is_first }) = (&self.kept, &self.kept.share);
        let key = match seed.is_setting {
            true => None,
            false => {
                let map = kept.topology.map();
                SeedKey::of(&kept.prefix, &self.shard, &map, *is_first)
            }
        };
        let Some(key) = key else {
            let ping = redis::cmd("PING");
            self.ask(ping.query_async::<Value>(connection)).await?;
            self.shard.status.lock().error = None;
            return Ok(true);
        };
        let may_propose = seed.were_all_asked(&self.shard)
            || missing_since.is_some_and(|since| since.elapsed() >= MISSING);
        let mut both = redis::pipe();
        if let Some(ours) = seed.offer(&key, may_propose) {
            let put = both.cmd("SET").arg(key.name()).arg(&ours[..]);
            put.arg("NX").ignore();
        }
        both.cmd("GET").arg(key.name());
        let there = match self.ask(both.query_async(connection)).await {
            Err(why) if is_moving(&why) => {
                kept.topology.doubt();
                return Ok(true);
            }
            there => there?,
        };
        let (there,): (Option<Vec<u8>>,) = there;
        self.shard.status.lock().error = None;
        let Some(there) = there else {
            missing_since.get_or_insert_with(Instant::now);
            return Ok(matches!(key, SeedKey::Copy(_)));
        };
        let there = Secret::try_from(there);
        let there = there.map_err(|_| {
            let key = key.name();
            format!("what lies at {key} is no seed of 16 bytes")
        })?;
        if let Some(instead) = seed.hear(&key, &self.shard.name, there) {
            let mut put = redis::cmd("SET");
            put.arg(key.name()).arg(&instead[..]);
            self.ask(put.query_async::<Value>(connection)).await?;
        }
        Ok(true)
    }

    async fn ask<T>(&self, asked: impl Future<Output = RedisResult<T>>) -> Result<T, String> {
        match timeout(PATIENCE, asked).await {
            Ok(answered) => answered.map_err(|error| said(&error)),
            Err(_) => Err(format!("no answer within {PATIENCE:?}")),
        }
    }
}

/// Whether a server says that a key lies, or is about to lie, elsewhere.
fn is_moving(why: &str) -> bool {
    ["MOVED", "ASK", "TRYAGAIN"]
        .iter()
        .any(|code| why.starts_with(code))
}
