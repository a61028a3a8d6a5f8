//! The state of a node's copy of the quotas, for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::FleetRecord;

/// The state of a node's copy of the quotas. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct QuotaStatus(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    version: watch::Sender<u64>,
    fleet: watch::Sender<Option<Arc<FleetRecord>>>,
    tenants: AtomicU64,
    unknown: AtomicU64,
    failures: AtomicU64,
    changes: AtomicU64,
    /// The reason why the database does not answer, and since when.
    failing: Mutex<Option<(String, Instant)>>,
    source: Mutex<Source>,
}

/// The origin of the quotas in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Source {
    /// None: neither the database nor a saved copy was there.
    #[default]
    Nothing,
    Saved,
    Database,
}

impl QuotaStatus {
    /// The number of the last change that is in force here.
    #[must_use]
    pub fn version(&self) -> u64 {
        *self.0.version.borrow()
    }

    /// Waits until change number `version` is in force here.
    pub async fn reached(&self, version: u64) {
        let mut versions = self.0.version.subscribe();
        // The sender is ours, so it does not end first.
        let _ = versions.wait_for(|reached| *reached >= version).await;
    }

    /// The tokens and switches of all nodes; [`None`] as long as neither the database nor a saved copy was there.
    #[must_use]
    pub fn fleet(&self) -> Option<Arc<FleetRecord>> {
        self.0.fleet.borrow().clone()
    }

    /// The same, to wait for changes of it.
    #[must_use]
    pub fn fleet_changes(&self) -> watch::Receiver<Option<Arc<FleetRecord>>> {
        self.0.fleet.subscribe()
    }

    /// The number of tenants that are known here.
    #[must_use]
    pub fn tenants(&self) -> u64 {
        self.0.tenants.load(Ordering::Relaxed)
    }

    /// The number of domains, plans and limits of tenants that mean nothing under the rules in force.
    #[must_use]
    pub fn unknown(&self) -> u64 {
        self.0.unknown.load(Ordering::Relaxed)
    }

    /// Records that other rules are in force, under which so many of them mean nothing.
    pub fn set_unknown(&self, unknown: usize) {
        self.0.unknown.store(unknown as u64, Ordering::Relaxed);
    }

    /// The number of times that the database could not be read.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// The number of times that changes were put in force.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// The time for which the database has not answered; [`None`] if it does.
    #[must_use]
    pub fn away(&self) -> Option<Duration> {
        self.0
            .failing
            .lock()
            .as_ref()
            .map(|(_, since)| since.elapsed())
    }

    /// Returns true if tenants have their quotas: from the database, or a saved copy of it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        *self.0.source.lock() != Source::Nothing
    }

    /// The current faults, in sentences for operators.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let failing = self.0.failing.lock().clone();
        let failing = failing.map(|(why, since)| {
            let secs = since.elapsed().as_secs();
            let used = match *self.0.source.lock() {
                Source::Nothing => "tenants are without their plans and overrides",
                Source::Saved => "the saved plans and overrides are in force",
                Source::Database => "plans and overrides stay as they are",
            };
            format!("the quota database has not answered for {secs} s ({why}): {used}")
        });
        let unknown = self.unknown();
        let unknown = (unknown > 0).then(|| {
            format!(
                "{unknown} domains, plans or overrides in the quota database mean nothing under the rules, and are \
                 ignored"
            )
        });
        failing.into_iter().chain(unknown).collect()
    }

    pub(crate) fn fleet_in_force(&self, state: FleetRecord) {
        self.0.fleet.send_replace(Some(Arc::new(state)));
    }

    pub(crate) fn failed(&self, why: String) -> bool {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
        let mut failing = self.0.failing.lock();
        let since = failing
            .as_ref()
            .map_or_else(Instant::now, |(_, since)| *since);
        failing.replace((why, since)).is_none()
    }

    /// Records that the database answers; returns for how long it did not.
    pub(crate) fn answered(&self) -> Option<Duration> {
        self.0
            .failing
            .lock()
            .take()
            .map(|(_, since)| since.elapsed())
    }

    pub(crate) fn in_force(&self, source: Source, version: u64, tenants: usize, unknown: usize) {
        *self.0.source.lock() = source;
        self.0.tenants.store(tenants as u64, Ordering::Relaxed);
        self.0.unknown.store(unknown as u64, Ordering::Relaxed);
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        // Last: who waits for it may read the others then.
        self.0.version.send_replace(version);
    }
}
