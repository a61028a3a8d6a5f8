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
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::config::RedisConfig;
use crate::greeting::Greeting;
use crate::link::{Link, said};
use crate::rights;
use crate::shard::Shard;

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

/// Looks after one server.
#[derive(Debug)]
pub(crate) struct Keeper {
    kept: Arc<Kept>,
    greeted: watch::Receiver<bool>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Kept {
    status: Mutex<ServerStatus>,
    seed: Mutex<[u8; 16]>,
    /// Whether the seed is a setting, and not shared by way of the server.
    is_set: bool,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Keeper {
    pub(crate) fn start(
        shard: Arc<Shard>,
        config: Arc<RedisConfig>,
        prefix: &str,
        runtime: &Handle,
    ) -> Self {
        let kept = Arc::new(Kept {
            status: Mutex::default(),
            seed: Mutex::new(config.seed.unwrap_or_else(random)),
            is_set: config.seed.is_some(),
        });
        let (told, greeted) = watch::channel(false);
        let chore = Chore {
            shard,
            config,
            prefix: prefix.to_owned(),
            key: format!("{prefix}seed"),
            kept: Arc::clone(&kept),
        };
        let task = runtime.spawn(chore.keep(told)).abort_handle();
        Self {
            kept,
            greeted,
            task,
        }
    }

    pub(crate) fn status(&self) -> ServerStatus {
        self.kept.status.lock().clone()
    }

    pub(crate) fn seed(&self) -> [u8; 16] {
        *self.kept.seed.lock()
    }

    pub(crate) async fn greeted(&self) {
        // An error means that the runtime has ended: nobody will be greeted any more.
        let _ = self.greeted.clone().wait_for(|greeted| *greeted).await;
    }
}

struct Chore {
    shard: Arc<Shard>,
    config: Arc<RedisConfig>,
    /// What all keys begin with.
    prefix: String,
    /// Where the seed lies.
    key: String,
    kept: Arc<Kept>,
}

impl Chore {
    async fn keep(self, told: watch::Sender<bool>) {
        loop {
            if let Err(why) = self.look_after(&told).await {
                let mut status = self.kept.status.lock();
                if status.error.as_deref() != Some(&*why) {
                    warn!(shard = %self.shard.name, why, "Redis cannot be asked");
                }
                status.error = Some(why);
            }
            told.send_replace(true);
            sleep(EVERY).await;
        }
    }

    /// Connects, and looks after the server until that fails: why.
    async fn look_after(&self, told: &watch::Sender<bool>) -> Result<(), String> {
        let link = Link::open(&self.shard.node, self.config.connect_timeout).await;
        let Link {
            mut connection,
            driver,
        } = link.map_err(|error| error.to_string())?;
        let keep = async {
            self.greet(&mut connection).await?;
            loop {
                self.compare(&mut connection).await?;
                told.send_replace(true);
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
        let mut status = self.kept.status.lock();
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
        let question = rights::question(&self.prefix);
        let login = &self.shard.node.login;
        match self
            .ask(question.query_async::<Vec<String>>(connection))
            .await
        {
            Ok(lacking) if lacking.is_empty() => Ok(None),
            Ok(lacking) => Ok(Some(rights::refusal(&lacking, login, &self.prefix))),
            Err(why) if why.starts_with("NOPERM") => {
                let grant = rights::grant(login, &self.prefix);
                Ok(Some(format!("{why}; grant what is needed: {grant}")))
            }
            Err(why) => Err(why),
        }
    }

    /// Puts the seed back if it is gone, and adopts the one that is there.
    async fn compare(&self, connection: &mut MultiplexedConnection) -> Result<(), String> {
        if self.kept.is_set {
            let ping = redis::cmd("PING");
            return self
                .ask(ping.query_async::<Value>(connection))
                .await
                .map(drop);
        }
        let ours = *self.kept.seed.lock();
        let mut both = redis::pipe();
        both.cmd("SET")
            .arg(&self.key)
            .arg(&ours[..])
            .arg("NX")
            .ignore();
        both.cmd("GET").arg(&self.key);
        let (there,): (Vec<u8>,) = self.ask(both.query_async(connection)).await?;
        let Ok(there) = <[u8; 16]>::try_from(there) else {
            return Err(format!("what lies at {} is no seed of 16 bytes", self.key));
        };
        if there != ours {
            *self.kept.seed.lock() = there;
        }
        self.kept.status.lock().error = None;
        Ok(())
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
