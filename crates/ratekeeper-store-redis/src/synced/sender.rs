//! The way of additions to one server, and of its answers back: a connection of its own.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ratekeeper_store::synced::{AnsweredAt, SyncTurn};
use ratekeeper_store::{CounterKey, boot_time};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::Shared;
use crate::link::Link;
use crate::script::{Call, SyncCall, decode_sync, slot};
use crate::shard::Shard;
use crate::survey::told;
use crate::wire::{Refusal, Sent, ask, is_of_connection, item};

/// Calls in one pipeline.
const TOGETHER_MAX: usize = 512;

/// The time limit for an answer, after which the connection is replaced.
const PATIENCE: Duration = Duration::from_millis(500);

/// The pause before connecting again.
const PAUSE: Duration = Duration::from_millis(5);

/// The way to one server.
#[derive(Clone, Debug)]
pub(super) struct Route {
    shard: Arc<Shard>,
    /// A counter is here at most once at a time, so that the table of counters bounds it.
    due: UnboundedSender<Vec<CounterKey>>,
}

impl Route {
    pub(super) fn open(shard: Arc<Shard>, shared: Weak<Shared>, home: &Handle) -> Self {
        let (due, waiting) = unbounded_channel();
        let additions = Additions {
            shard: Arc::clone(&shard),
            shared,
            waiting,
            keys: Vec::new(),
            under_way: Vec::new(),
        };
        home.spawn(additions.run());
        Self { shard, due }
    }

    pub(super) fn leads_to(&self, shard: &Arc<Shard>) -> bool {
        Arc::ptr_eq(&self.shard, shard)
    }

    pub(super) const fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    pub(super) fn send(&self, keys: Vec<CounterKey>) {
        // Its task lasts for as long as anybody may send.
        let _ = self.due.send(keys);
    }
}

/// The additions to one server.
struct Additions {
    shard: Arc<Shard>,
    shared: Weak<Shared>,
    waiting: UnboundedReceiver<Vec<CounterKey>>,
    /// Counters that are due.
    keys: Vec<CounterKey>,
    /// Those that were sent and not answered.
    under_way: Vec<SyncTurn>,
}

impl Additions {
    /// Carries additions for as long as anybody may send some.
    async fn run(mut self) {
        loop {
            // A connection is made when there is something to send.
            if self.keys.is_empty() && !self.gather().await {
                return;
            }
            let Some(shared) = self.shared.upgrade() else {
                return;
            };
            let connect_timeout = shared.config.connect_timeout;
            drop(shared);
            match Link::open(&self.shard.node, connect_timeout).await {
                Ok(Link { connection, driver }) => tokio::select! {
                    ended = self.serve(connection) => if ended { return },
                    () = driver => {}
                },
                Err(why) => debug!(shard = %self.shard.name, %why, "syncing counters failed"),
            }
            // They are tried again in their next turns.
            self.give_up();
            sleep(PAUSE).await;
        }
    }

    /// Waits for counters. Returns false if nobody sends any more.
    async fn gather(&mut self) -> bool {
        match self.waiting.recv().await {
            Some(keys) => {
                self.keys = keys;
                true
            }
            None => false,
        }
    }

    /// Sends additions over `connection`, until that is of no more use (false) or nobody sends any more (true).
    async fn serve(&mut self, mut connection: MultiplexedConnection) -> bool {
        loop {
            if self.keys.is_empty() && !self.gather().await {
                return true;
            }
            let Some(shared) = self.shared.upgrade() else {
                return true;
            };
            let sent_at = boot_time();
            let rest = self.keys.split_off(self.keys.len().min(TOGETHER_MAX));
            let keys = std::mem::replace(&mut self.keys, rest);
            let turns = keys
                .iter()
                .filter_map(|key| shared.counters.begin(*key, sent_at));
            self.under_way = turns.filter(|turn| !turn.additions.is_empty()).collect();
            if self.under_way.is_empty() {
                continue;
            }
            let calls: Vec<Sent> = self
                .under_way
                .iter()
                .map(|turn| call(&shared, turn))
                .collect();
            let asked = ask(&mut connection, &calls, &shared.script, &self.shard.metrics);
            let Ok(Ok(replies)) = timeout(PATIENCE, asked).await else {
                return false;
            };
            let turns = std::mem::take(&mut self.under_way);
            let mut is_lost = false;
            for (turn, reply) in turns.iter().zip(replies) {
                is_lost |= self.hear(&shared, turn, reply, sent_at);
            }
            if is_lost {
                return false;
            }
        }
    }

    /// Takes in the answer to one turn. Returns true if the connection has ended.
    fn hear(
        &self,
        shared: &Shared,
        turn: &SyncTurn,
        reply: RedisResult<Value>,
        sent: ratekeeper_core::Micros,
    ) -> bool {
        let heard = boot_time();
        let error = match reply {
            Ok(Value::Array(items)) => {
                match decode_sync(turn.additions.len(), items.iter().map(item)) {
                    Ok(answer) => {
                        let store = answer.at;
                        let at = AnsweredAt { store, sent, heard };
                        shared.heard(turn, &answer.sums, at);
                    }
                    Err(why) => self.refuse(shared, turn, &why.to_string()),
                }
                return false;
            }
            Ok(_) => {
                self.refuse(shared, turn, "the script's answer is not an array");
                return false;
            }
            Err(error) => error,
        };
        shared.failed(turn, heard);
        if is_of_connection(&error) {
            return true;
        }
        match Refusal::of(&error) {
            Refusal::Script => self.shard.garbled(1, &error.to_string()),
            refusal => {
                let address = error.redirect_node().and_then(|(address, _)| {
                    let (host, port) = address.rsplit_once(':')?;
                    Some(told(&self.shard.node.address, host, port.parse().ok()?))
                });
                // The next turn goes to the server that has the slot by then.
                if let Some(address) = address.filter(|_| refusal == Refusal::Moved) {
                    shared.topology.moved(slot(turn.key.subject), &address);
                }
                shared.topology.doubt();
            }
        }
        false
    }

    /// Gives up a turn whose answer cannot be used.
    fn refuse(&self, shared: &Shared, turn: &SyncTurn, why: &str) {
        shared.failed(turn, boot_time());
        self.shard.garbled(1, why);
    }

    /// Gives up all turns: what is sent again is known to the server if it was carried out.
    fn give_up(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let now = boot_time();
        for turn in self.under_way.drain(..) {
            shared.failed(&turn, now);
        }
        while let Ok(more) = self.waiting.try_recv() {
            self.keys.extend(more);
        }
        for key in self.keys.drain(..) {
            shared.fail(key, now);
        }
    }
}

fn call(shared: &Shared, turn: &SyncTurn) -> Sent {
    let mut call = Call::new();
    let sync = SyncCall {
        key: turn.key,
        node: &shared.node,
        life: turn.life,
        additions: &turn.additions,
    };
    call.push_sync(&sync, &shared.asking.names);
    Sent {
        call,
        told: None,
        is_asking: false,
    }
}
