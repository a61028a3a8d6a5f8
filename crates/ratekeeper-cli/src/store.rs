//! The stores that a service can have.

mod one;
mod several;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Seed;
use ratekeeper_server::{Agreement, ServedStore, ServerGauges, StoreGauges};
use ratekeeper_store::across;
use ratekeeper_store::{
    Answer, HashKey, MemoryStore, Request, Store, StoreError, StoreSlot, Verdicts,
};
use ratekeeper_store_redis::Ticket;
use tokio::runtime::Handle;

pub(crate) use one::OneStore;
use several::Several;

/// Where the counters of a service live.
#[derive(Debug)]
pub(crate) enum NodeStore {
    /// All in one place.
    One(OneStore),
    /// Where rules say.
    Several(Several),
}

impl NodeStore {
    /// The counters in `default`, but for those that rules put into one of `named`. To be called
    /// from the runtime that does the stores' chores.
    pub(crate) fn new(default: OneStore, named: Vec<(Box<str>, OneStore)>) -> Self {
        if named.is_empty() {
            return Self::One(default);
        }
        Self::Several(Several::new(default, named, Handle::current()))
    }

    /// The counters in memory, if any are.
    pub(crate) fn memory(&self) -> Option<&MemoryStore> {
        match self {
            Self::One(store) => store.memory(),
            Self::Several(stores) => stores.default_store().memory(),
        }
    }
}

/// A decision that somebody else takes.
#[allow(missing_debug_implementations, reason = "its parts have none")]
pub(crate) enum NodeTicket {
    One(Ticket),
    Several(across::Ticket<Several>),
}

impl Future for NodeTicket {
    type Output = Result<Verdicts, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::One(ticket) => Pin::new(ticket).poll(cx),
            Self::Several(ticket) => Pin::new(ticket).poll(cx),
        }
    }
}

/// What either of the two does.
macro_rules! either {
    ($self:ident, $store:ident => $does:expr) => {
        match $self {
            NodeStore::One($store) => $does,
            NodeStore::Several($store) => $does,
        }
    };
}

impl Store for NodeStore {
    type Ticket = NodeTicket;

    #[inline]
    fn decide(&self, request: &Request<'_>) -> Answer<NodeTicket> {
        match self {
            Self::One(store) => match store.decide(request) {
                Answer::Decided(verdicts) => Answer::Decided(verdicts),
                Answer::Pending(ticket) => Answer::Pending(NodeTicket::One(ticket)),
            },
            Self::Several(stores) => match stores.decide(request) {
                Answer::Decided(verdicts) => Answer::Decided(verdicts),
                Answer::Pending(ticket) => Answer::Pending(NodeTicket::Several(ticket)),
            },
        }
    }

    fn give_back(&self, request: &Request<'_>, taken: &Verdicts) {
        either!(self, store => store.give_back(request, taken))
    }

    fn hash_key(&self) -> Option<HashKey> {
        either!(self, store => store.hash_key())
    }

    fn slot(&self, name: &str) -> StoreSlot {
        either!(self, store => store.slot(name))
    }
}

impl ServedStore for NodeStore {
    fn tend(&self, now: Timestamp) {
        either!(self, store => store.tend(now))
    }

    fn prepare(&self, runtime: &Handle) {
        either!(self, store => store.prepare(runtime))
    }

    fn gauges(&self) -> StoreGauges {
        either!(self, store => store.gauges())
    }

    async fn seed_other_than(&self, known: Seed) -> Seed {
        either!(self, store => store.seed_other_than(known).await)
    }

    fn agreement(&self) -> Option<Agreement> {
        either!(self, store => store.agreement())
    }

    fn faults(&self) -> Vec<String> {
        either!(self, store => store.faults())
    }

    fn servers(&self) -> Vec<ServerGauges> {
        either!(self, store => store.servers())
    }
}
