//! Leases: hits that Redis holds for this node, which it admits without asking.
//!
//! ```text
//!  request --> [ slots ] --- has credit ---> admitted: no call, no lock
//!                 |  ^
//!        no credit|  `---- held for us ----.
//!                 v                        |
//!              exact call to Redis      sender ---- a connection of its own ---> Redis
//!                                          ^
//!                         what was spent is reported, the rest is freed
//! ```
//!
//! A counter is leased once it has four hits within a lease's time. A lease is renewed before it is spent or over, so
//! that requests wait only at first contact, near the limit, and at the edges of windows; one that is not used is
//! closed. There is one call about a counter at a time. A failure here costs at most the hits that one lease holds, never
//! the limit: see [`ratekeeper_core::lease`].

mod book;
mod calls;
mod shared;
mod track;

use std::sync::Arc;

use ratekeeper_core::lease::Taken;
use ratekeeper_core::{Micros, Outcome};
use ratekeeper_store::Step;
use tokio::task::AbortHandle;

use crate::background::Background;
use crate::config::RedisConfig;
use crate::script_context::ScriptContext;
use crate::topology::Topology;
use shared::Shared;

/// The leases of this node on the counters of one store.
#[derive(Debug)]
pub(crate) struct Leases {
    shared: Arc<Shared>,
    keeper: AbortHandle,
}

impl Drop for Leases {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Leases {
    pub(crate) fn start(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        home: Background,
    ) -> Self {
        context.nodes.join();
        let shared = Shared::new(topology, config, context, &home);
        let checked = Arc::clone(&shared);
        let keeper = home.spawn("leases", move || Arc::clone(&checked).check_in_time());
        Self {
            shared,
            keeper: keeper.abort_handle(),
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

    /// Frees everything that is held, and waits until Redis has answered.
    pub(crate) async fn close(&self) {
        self.shared.close().await;
    }
}
