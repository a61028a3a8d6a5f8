//! The lanes that serve a store's slots, for each runtime.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ratekeeper_store::across::{Place, Places, Rest};
use ratekeeper_store::{Answer, Post, Request, StoreError, Verdicts};
use tokio::runtime::Handle;

use crate::config::RedisConfig;
use crate::lane::{Asking, Lane};
use crate::lanes::Lanes;
use crate::lease::Leases;
use crate::script::Clock;
use crate::ticket::Reply;
use crate::topology::{SlotMap, Topology};

/// A store's slots, each served by a lane of the calling runtime. A single server counts as one slot.
#[derive(Clone, Debug)]
pub(crate) struct Slots(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    asking: Arc<Asking>,
    /// The runtime that serves callers outside of any runtime.
    home: Handle,
    number: u64,
    lanes: Mutex<Vec<Arc<Lanes>>>,
}

/// The number of stores whose lanes a thread remembers: a service has at most as many.
const REMEMBERED_MAX: usize = 33;

/// The lanes of this thread's runtime, found without waiting for other threads.
struct Remembered {
    store: u64,
    lanes: Arc<Lanes>,
    map: Arc<SlotMap>,
    /// In the order of the map's shards.
    by_shard: Vec<Arc<Lane>>,
}

thread_local! {
    /// At most one of each store.
    static REMEMBERED: RefCell<Vec<Remembered>> = const { RefCell::new(Vec::new()) };
}

impl Slots {
    pub(crate) fn new(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        asking: Arc<Asking>,
        home: Handle,
    ) -> Self {
        static STORES: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(Inner {
            topology,
            config,
            asking,
            home,
            number: STORES.fetch_add(1, Ordering::Relaxed),
            lanes: Mutex::default(),
        }))
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.0.topology
    }

    /// Begins to lease counters of these servers.
    pub(crate) fn lease(&self) -> Leases {
        Leases::start(
            Arc::clone(&self.0.topology),
            Arc::clone(&self.0.config),
            Arc::clone(&self.0.asking),
            self.0.home.clone(),
        )
    }

    /// Returns true if the server's own clock counts, which leases go by.
    pub(crate) fn has_own_clock(&self) -> bool {
        self.0.asking.clock == Clock::Server
    }

    /// The number of requests denied from memory, without asking.
    pub(crate) fn denied_from_memory(&self) -> u64 {
        self.0.asking.denied.answered()
    }

    /// Calls `ask` with the lane of this runtime to the shard of `slot`, if any. It returns
    /// [`None`] if the lane has ended, and is then called with its successor.
    fn live_lane<T>(&self, slot: u16, ask: impl Fn(Option<&Lane>) -> Option<T>) -> Option<T> {
        for _ in 0..2 {
            if let Some(answer) = self.with_lane(slot, &ask) {
                return Some(answer);
            }
            // The runtime of that lane has ended, or its shard is gone: others take its place.
            self.0.lanes.lock().retain(|lanes| !lanes.is_closed());
            REMEMBERED.with_borrow_mut(|all| all.retain(|it| it.store != self.0.number));
        }
        None
    }

    fn with_lane<T>(&self, slot: u16, ask: impl FnOnce(Option<&Lane>) -> T) -> T {
        let runtime = Handle::try_current();
        let runtime = runtime.as_ref().unwrap_or(&self.0.home);
        let (id, version) = (runtime.id(), self.0.topology.version());
        REMEMBERED.with_borrow_mut(|all| {
            let is_known = |it: &Remembered| {
                it.store == self.0.number && it.lanes.runtime() == id && it.map.version == version
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
            let lane = known.map.owner(slot).and_then(|it| known.by_shard.get(it));
            if lane.is_none() {
                self.0.topology.doubt();
            }
            ask(lane.map(|lane| &**lane))
        })
    }

    #[cold]
    fn remember(&self, runtime: &Handle) -> Remembered {
        let map = self.0.topology.map();
        let lanes = self.lanes(runtime);
        Remembered {
            store: self.0.number,
            by_shard: map.shards().iter().map(|shard| lanes.to(shard)).collect(),
            lanes,
            map,
        }
    }

    pub(crate) fn lanes(&self, runtime: &Handle) -> Arc<Lanes> {
        let id = runtime.id();
        let mut all = self.0.lanes.lock();
        if let Some(lanes) = all.iter().find(|lanes| lanes.runtime() == id) {
            return Arc::clone(lanes);
        }
        let lanes = Lanes::new(
            Arc::clone(&self.0.topology),
            Arc::clone(&self.0.config),
            Arc::clone(&self.0.asking),
            runtime.clone(),
        );
        all.push(Arc::clone(&lanes));
        lanes
    }

    /// Sends a post to the server of its slot.
    pub(crate) fn post(&self, place: Place, post: &Post) -> Reply {
        let unavailable = || Reply::failed(StoreError::Unavailable);
        let asked = self.live_lane(Self::slot_of(place), |lane| match lane {
            Some(lane) if lane.shard.breaker.is_closed() => lane.push_post(post, Instant::now()),
            Some(lane) => (!lane.queue.is_closed()).then(unavailable),
            None => Some(unavailable()),
        });
        asked.unwrap_or_else(unavailable)
    }

    fn slot_of(place: Place) -> u16 {
        u16::try_from(place.0).unwrap_or(u16::MAX)
    }
}

impl Places for Slots {
    type Ticket = Reply;

    fn ask(&self, place: Place, request: &Request<'_>) -> Answer<Reply> {
        let now = Instant::now();
        if let Some(denial) = self.0.asking.denied.answer(request, now) {
            return Answer::Decided(denial);
        }
        let unavailable = || Reply::failed(StoreError::Unavailable);
        let asked = self.live_lane(Self::slot_of(place), |lane| match lane {
            Some(lane) if lane.shard.breaker.is_closed() => lane.push(request, now),
            // A lane that is alive probes the server; that of a runtime that has ended does not.
            Some(lane) => (!lane.queue.is_closed()).then(unavailable),
            None => {
                self.0.topology.unplaced();
                Some(unavailable())
            }
        });
        Answer::Pending(asked.unwrap_or_else(unavailable))
    }

    fn away(&self, place: Place) -> Option<StoreError> {
        let is_there = self.live_lane(Self::slot_of(place), |lane| {
            let Some(lane) = lane else {
                return Some(false);
            };
            let is_there = lane.shard.breaker.is_closed() && !lane.is_missing();
            (!lane.queue.is_closed()).then_some(is_there)
        });
        (is_there != Some(true)).then_some(StoreError::Unavailable)
    }

    fn recall(&self, _: Place, request: &Request<'_>) -> Option<Verdicts> {
        self.0.asking.denied.answer(request, Instant::now())
    }

    fn answers_last(&self) -> bool {
        self.0.asking.clock == Clock::Told
    }

    fn late(reply: Reply) -> Option<Reply> {
        reply.is_late().then_some(reply)
    }

    fn detach(&self, rest: Rest<Self>) {
        Handle::try_current()
            .unwrap_or_else(|_| self.0.home.clone())
            .spawn(rest);
    }

    fn stranded(&self, place: Place, hits: u64) {
        if let Some(shard) = self.0.topology.map().shard(Self::slot_of(place)) {
            shard.metrics.stranded(hits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endpoint, RedisStore};

    /// Looking up lanes anew takes a lock that all threads share.
    #[tokio::test]
    async fn a_thread_remembers_the_lanes_of_each_store() {
        let stores = [0; 2].map(|_| {
            let endpoint = Endpoint::parse("redis://127.0.0.1:1/").expect("a good URL");
            RedisStore::new(endpoint, RedisConfig::default(), Handle::current())
        });
        let slots = stores.each_ref().map(|store| &store.slots);
        let lane_of = |slots: &Slots| slots.with_lane(0, |lane| lane.is_some());
        assert!(slots.into_iter().all(lane_of));
        let remembered =
            REMEMBERED.with_borrow(|all| all.iter().map(|it| it.store).collect::<Vec<_>>());
        assert_eq!(remembered, slots.map(|it| it.0.number));
    }
}
