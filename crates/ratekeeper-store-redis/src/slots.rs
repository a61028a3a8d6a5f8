//! The connections that serve a store's slots, for each runtime.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;
use ratekeeper_store::{Answer, Post, Request, StoreError, Verdicts};
use ratekeeper_stores::{NAMED_STORES_MAX, StoreReply};
use tokio::runtime::Handle;

use crate::background::Background;
use crate::config::RedisConfig;
use crate::connections::ShardConnections;
use crate::lease::Leases;
use crate::loans::Loans;
use crate::script::Clock;
use crate::script_context::ScriptContext;
use crate::shard_connection::ShardConnection;
use crate::synced::Synced;
use crate::topology::{SlotMap, Topology};

/// A store's slots, each served by a connection of the calling runtime. A single server counts as one slot.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    context: Arc<ScriptContext>,
    /// Its runtime also serves callers outside of any runtime.
    home: Background,
    number: u64,
    connections: Mutex<Vec<Arc<ShardConnections>>>,
    /// Made by the first request that has synced counters.
    synced: OnceLock<Synced>,
}

/// The number of stores whose connections a thread remembers: a service has at most as many, the default store and those with
/// names.
const REMEMBERED_MAX: usize = NAMED_STORES_MAX + 1;

/// The connections of this thread's runtime, found without waiting for other threads.
struct Remembered {
    store: u64,
    connections: Arc<ShardConnections>,
    map: Arc<SlotMap>,
    /// In the order of the map's shards.
    by_shard: Vec<Arc<ShardConnection>>,
}

thread_local! {
    /// At most one of each store.
    static REMEMBERED: RefCell<Vec<Remembered>> = const { RefCell::new(Vec::new()) };
}

impl Slots {
    pub(crate) fn new(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        home: Background,
    ) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            topology,
            config,
            context,
            home,
            number: STORES.fetch_add(1, Ordering::Relaxed),
            connections: Mutex::default(),
            synced: OnceLock::new(),
        }))
    }

    pub(crate) fn background(&self) -> &Background {
        &self.0.home
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// Begins to lease counters of these servers.
    pub(crate) fn lease(&self) -> Leases {
        Leases::start(
            Arc::clone(&self.0.topology),
            Arc::clone(&self.0.config),
            Arc::clone(&self.0.context),
            self.0.home.clone(),
        )
    }

    /// Begins to keep loans between regions on these servers.
    pub(crate) fn loans(&self) -> Loans {
        Loans::start(
            Arc::clone(&self.0.topology),
            Arc::clone(&self.0.config),
            Arc::clone(&self.0.context),
            self.0.home.clone(),
        )
    }

    /// The synced counters; [`None`] before there was a request for some.
    pub(crate) fn synced(&self) -> Option<&Synced> {
        self.0.synced.get()
    }

    /// The synced counters, begun if there are none yet.
    pub(crate) fn sync(&self) -> &Synced {
        self.0.synced.get_or_init(|| {
            Synced::start(
                Arc::clone(&self.0.topology),
                Arc::clone(&self.0.config),
                Arc::clone(&self.0.context),
                self.0.home.clone(),
            )
        })
    }

    /// The state that all connections share.
    pub(crate) fn context(&self) -> &ScriptContext {
        &self.0.context
    }

    /// Returns true if the server's own clock counts, which leases go by.
    pub(crate) fn has_own_clock(&self) -> bool {
        self.0.context.clock == Clock::Server
    }

    /// The number of requests denied from memory, without asking.
    pub(crate) fn denied_from_memory(&self) -> u64 {
        self.0.context.denied.answered()
    }

    /// Calls `ask` with the connection of this runtime to the shard of `slot`, if any. It returns
    /// [`None`] if the connection has ended, and is then called with its successor.
    fn live_connection<T>(
        &self,
        slot: u16,
        ask: impl Fn(Option<&ShardConnection>) -> Option<T>,
    ) -> Option<T> {
        for _ in 0..2 {
            if let Some(answer) = self.with_connection(slot, &ask) {
                return Some(answer);
            }
            // The runtime of that connection has ended, or its shard is gone: others take its place.
            self.0
                .connections
                .lock()
                .retain(|connections| !connections.is_closed());
            REMEMBERED.with_borrow_mut(|all| all.retain(|it| it.store != self.0.number));
        }
        None
    }

    fn with_connection<T>(&self, slot: u16, ask: impl FnOnce(Option<&ShardConnection>) -> T) -> T {
        let runtime = Handle::try_current();
        let runtime = runtime.as_ref().unwrap_or(self.0.home.runtime());
        let (id, version) = (runtime.id(), self.0.topology.version());
        REMEMBERED.with_borrow_mut(|all| {
            let is_known = |it: &Remembered| {
                it.store == self.0.number
                    && it.connections.runtime() == id
                    && it.map.version == version
            };
            let place = all.iter().position(is_known).unwrap_or_else(|| {
                all.retain(|it| it.store != self.0.number);
                if all.len() == REMEMBERED_MAX {
                    all.remove(0);
                }
                all.push(self.remember(runtime));
                all.len() - 1
            });
            let known = &all[place];
            let conn = known.map.owner(slot).and_then(|it| known.by_shard.get(it));
            if conn.is_none() {
                self.0.topology.doubt();
            }
            ask(conn.map(|conn| &**conn))
        })
    }

    #[cold]
    fn remember(&self, runtime: &Handle) -> Remembered {
        let map = self.0.topology.map();
        let connections = self.connections(runtime);
        Remembered {
            store: self.0.number,
            by_shard: map
                .shards()
                .iter()
                .map(|shard| connections.to(shard))
                .collect(),
            connections,
            map,
        }
    }

    pub(crate) fn connections(&self, runtime: &Handle) -> Arc<ShardConnections> {
        let id = runtime.id();
        let mut all = self.0.connections.lock();
        if let Some(connections) = all.iter().find(|connections| connections.runtime() == id) {
            return Arc::clone(connections);
        }
        let connections = ShardConnections::new(
            Arc::clone(&self.0.topology),
            Arc::clone(&self.0.config),
            Arc::clone(&self.0.context),
            runtime.clone(),
        );
        all.push(Arc::clone(&connections));
        connections
    }

    /// Sends a post to the server of `slot`.
    pub(crate) fn post(&self, slot: u16, post: &Post) -> StoreReply {
        let now = Instant::now();
        let reply = self.push(slot, |connection| connection.push_post(post, now));
        reply.unwrap_or_else(unavailable)
    }

    /// Asks the server of `slot`, unless its answer is known.
    pub(crate) fn ask(&self, slot: u16, request: &Request<'_>) -> Answer<StoreReply> {
        let now = Instant::now();
        if let Some(denial) = self.0.context.denied.answer(request, now) {
            return Answer::Decided(denial);
        }
        let reply = self.push(slot, |connection| connection.push(request, now));
        Answer::Pending(reply.unwrap_or_else(|| {
            self.0.topology.unplaced();
            unavailable()
        }))
    }

    /// Has `push` queue something for the server of `slot`, unless its breaker is open; [`None`] if no server is known to
    /// serve it.
    fn push(
        &self,
        slot: u16,
        push: impl Fn(&ShardConnection) -> Option<StoreReply>,
    ) -> Option<StoreReply> {
        let pushed = self.live_connection(slot, |connection| match connection {
            Some(connection) if connection.shard.breaker.is_closed() => push(connection).map(Some),
            // A connection that is alive probes the server; that of a runtime that has ended does not.
            Some(connection) => (!connection.queue.is_closed()).then(|| Some(unavailable())),
            None => Some(None),
        });
        pushed.unwrap_or_else(|| Some(unavailable()))
    }

    /// The error while the server of `slot` is not to be asked.
    pub(crate) fn away(&self, slot: u16) -> Option<StoreError> {
        let is_there = self.live_connection(slot, |conn| {
            let Some(conn) = conn else {
                return Some(false);
            };
            let is_there = conn.shard.breaker.is_closed() && !conn.is_missing();
            (!conn.queue.is_closed()).then_some(is_there)
        });
        (is_there != Some(true)).then_some(StoreError::Unavailable)
    }

    /// The denial of `request`, if it is known.
    pub(crate) fn recall(&self, request: &Request<'_>) -> Option<Verdicts> {
        self.0.context.denied.answer(request, Instant::now())
    }

    /// Counts hits that were, or may have been, taken for nothing.
    pub(crate) fn stranded(&self, slot: u16, hits: u64) {
        if let Some(shard) = self.0.topology.map().shard(slot) {
            shard.metrics.stranded(hits);
        }
    }
}

const fn unavailable() -> StoreReply {
    StoreReply::failed(StoreError::Unavailable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, RedisStore};

    /// Looking up connections each time takes a lock that all threads share.
    #[tokio::test]
    async fn a_thread_remembers_the_connections_of_each_store() {
        let stores = [0; 2].map(|_| {
            let endpoint = Endpoint::parse("redis://127.0.0.1:1/").expect("a good URL");
            RedisStore::new(endpoint, RedisConfig::default(), Handle::current())
        });
        let slots = stores.each_ref().map(|store| &store.slots);
        let connection_of = |slots: &Slots| slots.with_connection(0, |conn| conn.is_some());
        assert!(slots.into_iter().all(connection_of));
        let remembered =
            REMEMBERED.with_borrow(|all| all.iter().map(|it| it.store).collect::<Vec<_>>());
        assert_eq!(remembered, slots.map(|it| it.0.number));
    }
}
