//! The callers: an open loop, which asks at its own pace no matter how slow the answers are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{interval, sleep, timeout};

use crate::ask::{Answer, Asker, Key, Taken};
use crate::ledger::{Entry, Ledger};
use crate::rules::{Rule, TENANTS};

/// The most requests that callers of one node have under way, for each second that they wait for an answer. A node that
/// answers within that time never reaches it.
const UNDER_WAY_MAX: u64 = 512;

/// The hits that a reservation takes, and those that it turns out to have cost.
const RESERVED: u64 = 3;
const COST: u64 = 1;

/// The time for which a permit is held.
const HELD: Duration = Duration::from_millis(150);

/// The number of attempts to settle, and the time between them: while Redis is away, settling is refused as retryable.
const SETTLE_TRIES: u32 = 100;
const SETTLE_EVERY: Duration = Duration::from_millis(200);

/// A kind of request, which callers of each node make at a rate of its own.
#[derive(Clone, Copy)]
enum Lane {
    Envoy(Rule),
    Grpc(Rule),
    Http(Rule),
    Batch,
    Reserve,
    Permit,
}

/// The lanes, each with its requests per second and node.
const LANES: [(Lane, u32); 15] = [
    (Lane::Envoy(Rule::Hard), 10),
    (Lane::Http(Rule::Hard), 10),
    (Lane::Envoy(Rule::Soft), 10),
    (Lane::Grpc(Rule::Soft), 10),
    (Lane::Http(Rule::Spend), 10),
    (Lane::Grpc(Rule::Spend), 10),
    (Lane::Grpc(Rule::Shut), 20),
    // So often that nodes take hits in advance: four in 100 ms are.
    (Lane::Grpc(Rule::Leased), 60),
    (Lane::Grpc(Rule::Synced), 20),
    (Lane::Grpc(Rule::FixedFlow), 15),
    (Lane::Http(Rule::SlidingFlow), 15),
    (Lane::Envoy(Rule::Tenant), 12),
    (Lane::Batch, 5),
    (Lane::Reserve, 3),
    (Lane::Permit, 3),
];

/// A request that ends a permit or a reservation.
enum Settlement {
    Commit(String),
    Release(String),
}

/// Callers at work.
pub(crate) struct Load {
    is_over: Arc<AtomicBool>,
    lanes: JoinSet<()>,
}

/// The callers of one node.
#[derive(Clone)]
struct Callers {
    node: usize,
    asker: Asker,
    ledger: Arc<Ledger>,
    /// True while the node is not there to be asked.
    is_muted: Arc<AtomicBool>,
    is_over: Arc<AtomicBool>,
    room: Arc<Semaphore>,
    turn: Arc<AtomicU64>,
}

/// A node to ask.
pub(crate) struct Asked {
    pub(crate) asker: Asker,
    pub(crate) is_muted: Arc<AtomicBool>,
}

impl Load {
    /// Starts callers that wait up to `patience` for an answer.
    pub(crate) fn start(
        runtime: &Handle,
        nodes: Vec<Asked>,
        ledger: &Arc<Ledger>,
        patience: Duration,
    ) -> Self {
        let under_way_max = UNDER_WAY_MAX.saturating_mul(patience.as_secs().max(1));
        let under_way_max = usize::try_from(under_way_max).unwrap_or(Semaphore::MAX_PERMITS);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut lanes = JoinSet::new();
        for (node, Asked { asker, is_muted }) in nodes.into_iter().enumerate() {
            let callers = Callers {
                node,
                asker,
                ledger: Arc::clone(ledger),
                is_muted,
                is_over: Arc::clone(&is_over),
                room: Arc::new(Semaphore::new(under_way_max)),
                turn: Arc::default(),
            };
            for (lane, rate) in LANES {
                lanes.spawn_on(callers.clone().follow(lane, rate), runtime);
            }
        }
        Self { is_over, lanes }
    }

    /// Stops asking, and waits for requests under way, up to `patience`: none may be without an answer then.
    pub(crate) fn stop(self, runtime: &Handle, ledger: &Ledger, patience: Duration) {
        self.is_over.store(true, Ordering::Relaxed);
        let all = runtime.block_on(async { timeout(patience, self.lanes.join_all()).await });
        if all.is_err() {
            ledger.fail(format!("requests have no answer after {patience:?}"));
        }
    }
}

impl Callers {
    async fn follow(self, lane: Lane, rate: u32) {
        let mut ticks = interval(Duration::from_secs(1) / rate);
        let mut under_way = JoinSet::new();
        while !self.is_over.load(Ordering::Relaxed) {
            ticks.tick().await;
            while under_way.try_join_next().is_some() {}
            if self.is_muted.load(Ordering::Relaxed) {
                continue;
            }
            let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
                self.ledger
                    .fail("too many requests are under way".to_owned());
                continue;
            };
            let callers = self.clone();
            under_way.spawn(async move {
                if let Err(error) = callers.ask(lane).await {
                    callers
                        .ledger
                        .fail(format!("node {}: {error:#}", callers.node));
                }
                drop(room);
            });
        }
        under_way.join_all().await;
    }

    async fn ask(&self, lane: Lane) -> Result<()> {
        let asker = &self.asker;
        match lane {
            Lane::Envoy(rule) | Lane::Grpc(rule) | Lane::Http(rule) => {
                let (key, sent) = (self.key(rule), self.ledger.now());
                let answer = match lane {
                    Lane::Envoy(_) => asker.envoy(&key).await?,
                    Lane::Grpc(_) => asker.grpc(&key).await?,
                    _ => asker.http(&key).await?,
                };
                self.record(&key, sent, answer);
                Ok(())
            }
            Lane::Batch => self.batch().await,
            Lane::Reserve => self.reserve().await,
            Lane::Permit => self.permit().await,
        }
    }

    /// The key that is asked for now.
    fn key(&self, rule: Rule) -> Key {
        let value = match rule {
            _ if rule.rotates() => self.ledger.period(),
            Rule::Tenant => self.turn.fetch_add(1, Ordering::Relaxed) % TENANTS,
            _ => 0,
        };
        Key { rule, value }
    }

    fn record(&self, key: &Key, sent: Duration, answer: Answer) {
        self.ledger.record(Entry {
            node: self.node,
            key: key.clone(),
            sent,
            done: self.ledger.now(),
            answer,
        });
    }

    /// Sends several checks in one request. A damaged counter stands between some that are not.
    async fn batch(&self) -> Result<()> {
        let rules = [
            Rule::Spend,
            Rule::Tenant,
            Rule::Victim,
            Rule::Soft,
            Rule::Spend,
        ];
        let keys = rules.map(|rule| self.key(rule));
        let sent = self.ledger.now();
        for (key, answer) in keys.iter().zip(self.asker.batch(&keys).await?) {
            self.record(key, sent, answer);
        }
        Ok(())
    }

    async fn reserve(&self) -> Result<()> {
        let key = self.key(Rule::Tokens);
        let sent = self.ledger.now();
        let Taken { answer, token } = self.asker.reserve(&key, RESERVED).await?;
        self.record(&key, sent, answer);
        let Some(reservation) = token else {
            return Ok(());
        };
        let done = self.settle(Settlement::Commit(reservation)).await;
        let spent = match done {
            Ok(()) => COST,
            Err(_) => RESERVED,
        };
        self.ledger.settle(|settled| settled.spent += spent);
        done
    }

    async fn permit(&self) -> Result<()> {
        let key = self.key(Rule::Job);
        let sent = self.ledger.now();
        let Taken { answer, token } = self.asker.acquire(&key).await?;
        self.record(&key, sent, answer);
        let Some(permit) = token else {
            return Ok(());
        };
        self.ledger.settle(|settled| settled.held += 1);
        sleep(HELD).await;
        self.ledger.settle(|settled| settled.held -= 1);
        self.settle(Settlement::Release(permit)).await
    }

    /// Settles, and retries if the error allows it.
    async fn settle(&self, settlement: Settlement) -> Result<()> {
        let mut tries = 0;
        loop {
            let done = match &settlement {
                Settlement::Commit(reservation) => self.asker.commit(reservation, COST).await,
                Settlement::Release(permit) => self.asker.release(permit.clone()).await,
            };
            tries += 1;
            match done {
                Err(error) if is_temporary(&error) && tries < SETTLE_TRIES => {
                    sleep(SETTLE_EVERY).await;
                }
                done => return done,
            }
        }
    }
}

/// Returns true if the same request may be sent again: the documented answer while the store is away.
fn is_temporary(error: &anyhow::Error) -> bool {
    let status = error.downcast_ref::<tonic::Status>();
    let grpc = status.is_some_and(|status| status.code() == tonic::Code::Unavailable);
    grpc || error.to_string().contains("\"UNAVAILABLE\"")
}
