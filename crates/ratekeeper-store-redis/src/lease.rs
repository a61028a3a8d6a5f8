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
mod ticket;
mod track;

use std::sync::Arc;

use ratekeeper_store::{Charge, Request, Step, boot_time};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::asking::Asking;
use crate::config::RedisConfig;
use crate::topology::Topology;
use shared::Shared;
pub(crate) use ticket::Leased;

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

/// Requests that may spend leases: plain ones, whose hits are charged if they are allowed.
fn is_spendable(request: &Request<'_>) -> bool {
    let is_plain = |(index, step): (usize, &Step)| {
        step.hits > 0
            && step.charge == Charge::IfAllowed
            && !step.quota_mode
            && request.steps[..index].iter().all(|it| it.key != step.key)
    };
    request.extra.is_none()
        && request.mode == ratekeeper_core::Mode::default()
        && request.steps.iter().enumerate().all(is_plain)
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

    /// Takes what it can of `request` from leases; [`None`] if nothing of it may be taken from one.
    pub(crate) fn take(&self, request: &Request<'_>) -> Option<Leased> {
        if !is_spendable(request) {
            return None;
        }
        // The time that dates what is admitted.
        let now = boot_time();
        let spent = request.steps.iter().map(|step| match step.lease.is_zero() {
            true => None,
            false => self.shared.spend(step, now),
        });
        Some(Leased::new(Arc::clone(&self.shared), spent.collect()))
    }

    /// Gives back everything that is held, and waits until Redis has answered.
    pub(crate) async fn close(&self) {
        self.shared.close().await;
    }
}
