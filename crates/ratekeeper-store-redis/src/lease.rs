//! Leases: hits that this node has charged in Redis in advance, and admits without asking.
//!
//! ```text
//!  request --> [ slots ] --- has credit ---> admitted: no call, no lock
//!                 |  ^
//!        no credit|  `------ grant ------.
//!                 v                      |
//!              exact call to Redis    sender ---- a connection of its own ---> Redis
//!                                        ^
//!                        what is left at the deadline is given back
//! ```
//!
//! A counter is leased once it was asked for twice within a lease's time. The next lease is asked for before the last
//! one is spent or over, so that requests wait only at first contact, near the limit, and at the edges of windows.
//! A failure here costs hits that were charged and are not admitted, never the limit: see
//! [`ratekeeper_core::lease`].

mod book;
mod sender;
mod shared;
mod track;

use std::sync::Arc;

use ratekeeper_core::lease::Taken;
use ratekeeper_core::{Micros, Outcome};
use ratekeeper_store::Step;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::asking::Asking;
use crate::config::RedisConfig;
use crate::topology::Topology;
use shared::Shared;

/// The leases of this node on the counters of one store.
#[derive(Debug)]
pub(crate) struct Leases {
    shared: Arc<Shared>,
    closer: AbortHandle,
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.closer.abort();
    }
}

impl Leases {
    pub(crate) fn start(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        asking: Arc<Asking>,
        home: Handle,
    ) -> Self {
        asking.nodes.join();
        let shared = Shared::new(topology, config, asking, &home);
        let closer = home.spawn(Arc::clone(&shared).close_in_time());
        Self {
            shared,
            closer: closer.abort_handle(),
        }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Takes the hits of `step`, with the answer to tell; [`None`] if no lease has them.
    #[inline]
    pub(crate) fn spend(&self, step: &Step, now: Micros) -> Option<(Taken, Outcome)> {
        self.shared.spend(step, now)
    }

    /// Puts hits back that were taken for a request that was not admitted.
    pub(crate) fn put_back(&self, taken: Taken) {
        self.shared.put_back(taken);
    }

    /// Gives back everything that is held, and waits until Redis has answered.
    pub(crate) async fn close(&self) {
        self.shared.close().await;
    }
}
