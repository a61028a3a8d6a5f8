//! A single store: memory or a Redis.

use anyhow::{Result, bail};
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Seed;
use ratekeeper_server::{Agreement, ServedStore, ServerGauges, StoreGauges};
use ratekeeper_store::{Answer, HashKey, MemoryStore, Request, Store, StoreError, Verdicts};
use ratekeeper_store_redis::{RedisStore, ShardCounts, Ticket};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::settings::RedisSettings;

/// How long a service waits at its start for Redis to say what it is. It serves in either case.
/// Longer than a new Redis waits for the hash key of nodes that were there before.
const GREETING: Duration = Duration::from_secs(4);

/// Where counters live.
#[derive(Debug)]
pub(crate) enum OneStore {
    /// In this process.
    Memory(Box<MemoryStore>),
    /// In Redis or Valkey, for all nodes.
    Redis(Box<RedisStore>),
}

impl OneStore {
    /// Connects to all of a service's Redis, as far as they are there.
    ///
    /// # Errors
    /// They are required, and one of them is not there or does not let us in.
    pub(crate) async fn connect(
        settings: &[&RedisSettings],
        is_required: bool,
    ) -> Result<Vec<Self>> {
        let endpoints = settings
            .iter()
            .map(|it| (it.endpoint.clone(), it.config.clone()));
        let stores = RedisStore::several(endpoints.collect(), &Handle::current());
        // Late is as good as not at all: the stores go on trying.
        let all_greeted = async {
            for store in &stores {
                store.greeted().await;
            }
        };
        let _ = timeout(GREETING, all_greeted).await;
        for (store, settings) in stores.iter().zip(settings) {
            tell(store, settings, is_required)?;
        }
        Ok(stores.into_iter().map(Box::new).map(Self::Redis).collect())
    }

    /// Why it is no use to ask it now, if that is known.
    pub(crate) fn away(&self) -> Option<StoreError> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => store.away(),
        }
    }

    /// Its denial of `request`, if that is known without asking.
    pub(crate) fn recall(&self, request: &Request<'_>) -> Option<Verdicts> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => store.recall(request),
        }
    }

    /// The counters in memory, if that is where they are.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::Memory(store) => Some(store),
            Self::Redis(_) => None,
        }
    }
}

impl Store for OneStore {
    type Ticket = Ticket;

    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<Ticket> {
        match self {
            Self::Memory(store) => Answer::Decided(store.decide_now(request)),
            Self::Redis(store) => store.decide(request),
        }
    }

    fn hash_key(&self) -> Option<HashKey> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => store.hash_key(),
        }
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        match self {
            Self::Memory(store) => store.give_back(request, taken),
            Self::Redis(store) => store.give_back(request, taken),
        }
    }
}

impl ServedStore for OneStore {
    fn tend(&self, now: Timestamp) {
        if let Self::Memory(store) = self {
            store.tend(now);
        }
    }

    fn prepare(&self, runtime: &Handle) {
        if let Self::Redis(store) = self {
            store.prepare(runtime);
        }
    }

    fn gauges(&self) -> StoreGauges {
        match self {
            Self::Memory(store) => store.gauges(),
            Self::Redis(_) => StoreGauges::default(),
        }
    }

    async fn seed_other_than(&self, known: Seed) -> Seed {
        match self {
            Self::Memory(_) => std::future::pending().await,
            Self::Redis(store) => Seed::from_bytes(store.seed_other_than(known.to_bytes()).await),
        }
    }

    fn agreement(&self) -> Option<Agreement> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(store) => Some(Agreement {
                is_agreed: store.is_seed_agreed(),
                conflicts: store.seed_conflicts(),
            }),
        }
    }

    fn faults(&self) -> Vec<String> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(store) => store.faults(),
        }
    }

    fn servers(&self) -> Vec<ServerGauges> {
        match self {
            Self::Memory(_) => Vec::new(),
            Self::Redis(store) => {
                let former = store.former_shards().into_iter().map(|shard| ServerGauges {
                    circuit: None,
                    ..gauges(shard)
                });
                store
                    .shards()
                    .into_iter()
                    .map(gauges)
                    .chain(former)
                    .collect()
            }
        }
    }
}

/// Says whether `store` can be asked.
///
/// # Errors
/// It cannot, and is required.
fn tell(store: &RedisStore, settings: &RedisSettings, is_required: bool) -> Result<()> {
    let status = store.status();
    let shown = &settings.shown;
    let why = match (status.error, &status.server) {
        (Some(why), _) => Some(file_at_fault(settings).unwrap_or(why)),
        (None, None) => Some(format!("no answer within {GREETING:?}")),
        (None, Some(server)) => {
            info!(server, "counters are in Redis ({shown})");
            None
        }
    };
    match why {
        Some(why) if is_required => {
            bail!("{shown}: {why}; nothing is served without it, as --require-store says")
        }
        Some(why) => {
            warn!("{shown}: {why}; serving by the rules' failure modes until it is there");
        }
        None => {}
    }
    Ok(())
}

/// What is wrong with a file that it takes to connect, and by which setting it was named.
fn file_at_fault(settings: &RedisSettings) -> Option<String> {
    let error = settings.endpoint.check_tls().err()?;
    Some(settings.files.blame(&error))
}

#[allow(clippy::cast_precision_loss, reason = "counts in metrics are doubles")]
fn gauges(shard: ShardCounts) -> ServerGauges {
    let counts = [
        ("pipelines", "Calls sent", shard.pipelines as f64),
        ("decisions", "Decisions sent", shard.decisions as f64),
        (
            "groups",
            "Groups of decisions sent; decisions on the same counters form one group",
            shard.calls as f64,
        ),
        (
            "merged_decisions",
            "Decisions merged with others on the same counters",
            (shard.decisions - shard.calls.min(shard.decisions)) as f64,
        ),
        (
            "queue_seconds",
            "Total time that decisions waited to be sent",
            shard.queued_seconds,
        ),
        (
            "script_reloads",
            "Times that the script was loaded again",
            shard.reloads as f64,
        ),
        (
            "circuit_opened",
            "Times that the circuit breaker opened",
            shard.opened as f64,
        ),
        (
            "denied_from_memory",
            "Denials repeated from memory",
            shard.denied_from_memory as f64,
        ),
        (
            "redirects",
            "Calls retried elsewhere or later because they were not executed",
            shard.redirects as f64,
        ),
        (
            "stranded_hits",
            "Hits of denied requests that may still be charged, an upper bound",
            shard.stranded_hits as f64,
        ),
        (
            "moved_counters",
            "Counters moved back to the server's clock after it went back by more than their window",
            shard.moved_counters as f64,
        ),
        (
            "clock_steps_back",
            "How often the server's clock went back by more than a second",
            shard.clock_steps_back as f64,
        ),
    ];
    ServerGauges {
        shard: shard.shard,
        circuit: Some(shard.circuit.number()),
        errors: shard.faults.to_vec(),
        durations: shard.duration_buckets,
        duration_seconds: shard.duration_seconds,
        counts: counts.to_vec(),
    }
}
