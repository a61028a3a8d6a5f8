//! The store: what a limiter asks.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ratekeeper_store::{Answer, Execution, Request, Store, StoreError, Verdicts};
use smallvec::SmallVec;
use tokio::runtime::{Handle, Id};

use crate::config::RedisConfig;
use crate::denied::Denied;
use crate::endpoint::Endpoint;
use crate::keeper::{Keeper, ServerStatus};
use crate::lane::{Asking, Lane, LaneTask};
use crate::metrics::{Fault, ShardCounts};
use crate::script::{Clock, Group, KeyName, Script};
use crate::shard::Shard;
use crate::ticket::Ticket;

/// Counters in one Redis or Valkey server, shared by all nodes that ask it.
///
/// Each runtime that asks has a connection of its own, and decides nothing alone: what it asks
/// together is decided together. Who asks from outside of any runtime uses that of the store.
#[derive(Debug)]
pub struct RedisStore {
    shard: Arc<Shard>,
    config: Arc<RedisConfig>,
    asking: Arc<Asking>,
    /// Where who has no runtime is served.
    home: Handle,
    number: u64,
    lanes: Mutex<Vec<KeptLane>>,
    keeper: Keeper,
}

#[derive(Debug)]
struct KeptLane {
    runtime: Id,
    lane: Arc<Lane>,
    _task: LaneTask,
}

/// The lane of this thread's runtime, so that nobody else is waited for to find it.
struct Remembered {
    store: u64,
    runtime: Id,
    lane: Arc<Lane>,
}

thread_local! {
    static REMEMBERED: RefCell<Option<Remembered>> = const { RefCell::new(None) };
}

impl RedisStore {
    /// A store of the counters at `endpoint`, whose chores are done by `home`. It connects by
    /// and by: nothing is waited for here, and nothing fails.
    #[must_use]
    pub fn new(endpoint: Endpoint, config: RedisConfig, home: Handle) -> Self {
        Self::with_clock(endpoint, config, Clock::Server, home)
    }

    /// As [`Self::new`], by the clock of whoever asks: for tests.
    #[must_use]
    pub fn with_clock(
        endpoint: Endpoint,
        mut config: RedisConfig,
        clock: Clock,
        home: Handle,
    ) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        let prefix = format!("{}rk:", endpoint.prefix());
        if clock == Clock::Told {
            // A call is told one time, which is that of one request.
            config.merges = false;
            config.groups_max = 1;
            config.deny_cache_max = std::time::Duration::ZERO;
        }
        let shard = Arc::new(Shard::new(endpoint.first()));
        let asking = Asking {
            script: Script::new(clock),
            clock,
            names: KeyName::new(&prefix),
            denied: Denied::new(config.deny_cache_max),
            told: AtomicU64::new(0),
        };
        let config = Arc::new(config);
        let keeper = Keeper::start(Arc::clone(&shard), Arc::clone(&config), &prefix, &home);
        Self {
            shard,
            config,
            asking: Arc::new(asking),
            home,
            number: STORES.fetch_add(1, Ordering::Relaxed),
            lanes: Mutex::default(),
            keeper,
        }
    }

    /// Connects from `runtime`, so that its first decision need not wait for that.
    pub fn prepare(&self, runtime: &Handle) {
        self.lane(runtime.id(), runtime);
    }

    /// What is known of the server.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        self.keeper.status()
    }

    /// Waits until the server has been asked what it is, whatever came of it.
    pub async fn greeted(&self) {
        self.keeper.greeted().await;
    }

    /// The secret that all nodes name counters by. Until the server has been reached it is this
    /// node's own proposal.
    #[must_use]
    pub fn seed(&self) -> [u8; 16] {
        self.keeper.seed()
    }

    /// What was counted, by shard.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardCounts> {
        vec![self.shard.counts()]
    }

    /// Requests that were denied from memory, without asking.
    #[must_use]
    pub fn denied_from_memory(&self) -> u64 {
        self.asking.denied.answered()
    }

    /// What is in the way of serving, or will be.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let trouble = self.shard.trouble();
        if let Some(why) = trouble.filter(|_| !self.shard.breaker.is_closed()) {
            faults.push(format!(
                "Redis at {} does not serve, and failure modes decide: {why}",
                self.shard.name
            ));
        } else if !self.shard.was_reached() {
            faults.push(format!("Redis at {} was not reached yet", self.shard.name));
        }
        faults.extend(self.keeper.status().warnings);
        faults
    }

    fn pending(&self, request: &Request<'_>, now: Instant) -> Ticket {
        self.live_lane(|lane| lane.push(request, now))
            .unwrap_or_else(|| Ticket::failed(StoreError::Unavailable))
    }

    /// Sees to it that there is a lane, which probes: that of a runtime that has ended does not.
    fn keep_probing(&self) {
        self.live_lane(|lane| (!lane.queue.is_closed()).then_some(()));
    }

    /// Asks the lane of this runtime, which says [`None`] if it has ended, and then its successor.
    fn live_lane<T>(&self, ask: impl Fn(&Lane) -> Option<T>) -> Option<T> {
        for _ in 0..2 {
            if let Some(answer) = self.with_lane(&ask) {
                return Some(answer);
            }
            // The runtime of that lane has ended: another one takes its place.
            self.lanes
                .lock()
                .retain(|kept| !kept.lane.queue.is_closed());
            REMEMBERED.with_borrow_mut(|remembered| *remembered = None);
        }
        None
    }

    fn with_lane<T>(&self, ask: impl FnOnce(&Lane) -> T) -> T {
        let runtime = Handle::try_current();
        let runtime = runtime.as_ref().unwrap_or(&self.home);
        let id = runtime.id();
        REMEMBERED.with_borrow_mut(|remembered| {
            let known = remembered
                .as_ref()
                .filter(|it| it.store == self.number && it.runtime == id);
            if let Some(known) = known {
                return ask(&known.lane);
            }
            let lane = self.lane(id, runtime);
            let answer = ask(&lane);
            *remembered = Some(Remembered {
                store: self.number,
                runtime: id,
                lane,
            });
            answer
        })
    }

    fn lane(&self, runtime: Id, handle: &Handle) -> Arc<Lane> {
        let mut lanes = self.lanes.lock();
        if let Some(kept) = lanes.iter().find(|kept| kept.runtime == runtime) {
            return Arc::clone(&kept.lane);
        }
        let (lane, task) = Lane::start(
            Arc::clone(&self.shard),
            Arc::clone(&self.config),
            Arc::clone(&self.asking),
            handle,
        );
        lanes.push(KeptLane {
            runtime,
            lane: Arc::clone(&lane),
            _task: task,
        });
        lane
    }
}

impl Store for RedisStore {
    type Ticket = Ticket;

    fn decide(&self, request: &Request<'_>) -> Answer<Ticket> {
        if request.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: SmallVec::new(),
                at: request.now,
                execution: Execution::Now,
            });
        }
        if !Group::is_sendable(request) {
            self.shard.metrics.fault(Fault::Overloaded, 1);
            return Answer::Pending(Ticket::failed(StoreError::Overloaded));
        }
        let now = Instant::now();
        if let Some(verdicts) = self.asking.denied.answer(request, now) {
            return Answer::Decided(verdicts);
        }
        if !self.shard.breaker.is_closed() {
            self.keep_probing();
            return Answer::Pending(Ticket::failed(StoreError::Unavailable));
        }
        Answer::Pending(self.pending(request, now))
    }
}
