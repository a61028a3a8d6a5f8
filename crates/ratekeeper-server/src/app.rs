//! What every edge needs to answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ratekeeper_limiter::{Check, Decision, Limiter};
use tokio::sync::watch;

use crate::chores::Chores;
use crate::config::{Bounds, RlsConfig};
use crate::drain::Drain;
use crate::durations::Durations;
use crate::reload::ReloadStatus;
use crate::store::ServedStore;

/// The limiter, and what else edges look at.
#[derive(Debug)]
pub(crate) struct App<S> {
    pub(crate) limiter: Arc<Limiter<S>>,
    pub(crate) rls: RlsConfig,
    pub(crate) bounds: Bounds,
    pub(crate) drain: Arc<Drain>,
    pub(crate) reloads: watch::Receiver<ReloadStatus>,
    pub(crate) durations: Durations,
    pub(crate) chores: Chores,
    /// What the last [`ReloadStatus`] says, but cheap to look at for each check.
    is_loaded: AtomicBool,
    /// Whether the shutdown has begun, which is before the drain does.
    is_leaving: AtomicBool,
}

impl<S: ServedStore> App<S> {
    pub(crate) fn new(
        limiter: Arc<Limiter<S>>,
        rls: RlsConfig,
        bounds: Bounds,
        reloads: watch::Receiver<ReloadStatus>,
    ) -> Self {
        let is_loaded = AtomicBool::new(reloads.borrow().is_loaded());
        Self {
            limiter,
            rls,
            bounds,
            drain: Arc::new(Drain::new()),
            reloads,
            durations: Durations::default(),
            chores: Chores::default(),
            is_loaded,
            is_leaving: AtomicBool::new(false),
        }
    }

    /// Asks the limiter, and notes how long it took.
    pub(crate) async fn check(&self, check: &Check<'_>) -> Decision {
        let start = Instant::now();
        let decision = self.limiter.check(check).await;
        self.durations.record(start.elapsed());
        decision
    }

    /// Whether any rules are in force; without, nothing is decided.
    pub(crate) fn is_loaded(&self) -> bool {
        // Acquire, with the release below: who sees the flag sees the rules.
        self.is_loaded.load(Ordering::Acquire)
    }

    /// Rules are in force from now on.
    pub(crate) fn set_loaded(&self) {
        self.is_loaded.store(true, Ordering::Release);
    }

    /// Whether requests should be sent here.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_loaded() && !self.is_leaving()
    }

    /// Whether the server is about to go, though it may still accept connections.
    pub(crate) fn is_leaving(&self) -> bool {
        // Relaxed: nothing else is published by it.
        self.is_leaving.load(Ordering::Relaxed)
    }

    /// Not ready any more, from now on.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
    }
}
