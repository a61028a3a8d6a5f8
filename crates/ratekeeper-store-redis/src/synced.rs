//! Synced counters of a store: decided in memory, and added to Redis at each rule's interval.
//!
//! ```text
//!  request --> [ counters ] --> answer: no call
//!                 |     ^
//!     those that  |     | sums of all nodes
//!     are due     v     |
//!                sender ---- a connection of its own to each server ---> Redis
//! ```
//!
//! While Redis is away nodes go on counting. What they have counted by then is added once it is back, if its window has
//! not passed. See [`ratekeeper_core::synced`].

mod additions;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_store::synced::SyncedCounters;
use ratekeeper_store::{Charge, Extra, Request, Step, SyncGauges, SyncedHits, Verdicts, boot_time};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::background::Background;
use crate::config::RedisConfig;
use crate::script::Script;
use crate::script_context::ScriptContext;
use crate::side_sender::{SideSender, SideWork};
use crate::topology::Topology;

/// Counters taken at once.
const TAKEN_MAX: usize = 1_024;

/// The longest time between two looks for counters to forget.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The longest wait for answers when the node stops.
const FAREWELL: Duration = Duration::from_millis(500);

/// The synced counters of this node in one store.
#[derive(Debug)]
pub(crate) struct Synced {
    shared: Arc<Shared>,
    task: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    counters: SyncedCounters,
    context: Arc<ScriptContext>,
    script: Script,
    /// The name of this node, random.
    node: String,
    sender: SideSender<Self>,
    /// Notified when a counter is due before all others.
    sooner: Notify,
}

impl Drop for Synced {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns true if `step` of a request with `extra` is decided by synced counters.
pub(crate) fn is_synced(step: &Step, extra: Option<&Extra>) -> bool {
    let is_recorded = |extra: &Extra| extra.once.is_some() || extra.forgets.is_some();
    // Of requests that were denied, nodes tell each other nothing but what they owe.
    let is_told = step.charge == Charge::IfAllowed || step.limit.is_post_paid();
    !step.sync.is_zero() && is_told && !extra.is_some_and(is_recorded)
}

impl Synced {
    pub(crate) fn start(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        home: Background,
    ) -> Self {
        let [high, low] = [0, 1].map(|half: u8| RandomState::new().hash_one(half));
        let shared = Arc::new_cyclic(|this| Shared {
            counters: SyncedCounters::new(high),
            context,
            script: Script::synced(),
            node: format!("{high:016x}{low:016x}"),
            sender: SideSender::new(topology, config, home.clone(), this.clone()),
            sooner: Notify::new(),
        });
        let turns = Arc::clone(&shared);
        let task = home.spawn("synced counters", move || Arc::clone(&turns).take_turns());
        Self {
            shared,
            task: task.abort_handle(),
        }
    }

    /// Decides `request` in memory.
    pub(crate) fn decide(&self, request: &Request<'_>) -> Verdicts {
        let decided = self.shared.counters.decide(request, boot_time());
        if decided.wakes {
            self.shared.sooner.notify_one();
        }
        decided.verdicts
    }

    /// The hits of the step's counter.
    pub(crate) fn known(&self, step: &Step) -> SyncedHits {
        self.shared.counters.known(step, boot_time())
    }

    pub(crate) fn gauges(&self) -> SyncGauges {
        self.shared.counters.gauges()
    }

    /// Adds what is not in Redis yet, and waits a moment for that.
    pub(crate) async fn close(&self) {
        self.shared.counters.close();
        self.shared.sooner.notify_one();
        let all = async {
            while self.gauges().pending > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = timeout(FAREWELL, all).await;
    }
}

impl Shared {
    /// Sends each counter when it is due, for ever.
    async fn take_turns(self: Arc<Self>) {
        for look in 0.. {
            let now = boot_time();
            loop {
                let due = self.counters.take_due(now, TAKEN_MAX);
                if due.is_empty() {
                    break;
                }
                let left = self.sender.send(due);
                left.into_iter().for_each(|key| self.given_up(key));
            }
            self.counters.sweep(look, now);
            let wait = self.counters.next_due().map(|due| {
                let wait = due.get().saturating_sub(boot_time().get());
                Duration::from_micros(wait).min(LOOK_EVERY)
            });
            tokio::select! {
                () = sleep(wait.unwrap_or(LOOK_EVERY)) => {}
                () = self.sooner.notified() => {}
            }
        }
    }
}
