//! The state of an export, for operators.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_quota::QuotaStatus;

/// The state of an export. Clones share it.
#[derive(Clone, Debug)]
pub struct ExportStatus(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    target: String,
    /// The state of the database, which knows the number of the last change.
    quotas: QuotaStatus,
    is_active: AtomicBool,
    position: AtomicU64,
    exported: AtomicU64,
    failures: AtomicU64,
    /// The reason why the last try failed, and the time since when all have.
    failing: Mutex<Option<(String, Instant)>>,
}

impl ExportStatus {
    pub(crate) fn new(target: String, quotas: QuotaStatus) -> Self {
        Self(Arc::new(Inner {
            target,
            quotas,
            is_active: AtomicBool::new(false),
            position: AtomicU64::new(0),
            exported: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            failing: Mutex::new(None),
        }))
    }

    /// Returns true if this node exports; otherwise another one does, or none can.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.0.is_active.load(Ordering::Relaxed)
    }

    /// The changes that this node knows of and the target does not have, as far as this node knows; 0 on nodes that
    /// do not export.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        if !self.is_active() && self.failing_for().is_none() {
            return 0;
        }
        let position = self.0.position.load(Ordering::Relaxed);
        self.0.quotas.version().saturating_sub(position)
    }

    /// The number of changes that this node has exported.
    #[must_use]
    pub fn exported(&self) -> u64 {
        self.0.exported.load(Ordering::Relaxed)
    }

    /// The number of tries that failed.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.0.failures.load(Ordering::Relaxed)
    }

    /// The time for which all tries have failed; [`None`] if the last one did not.
    #[must_use]
    pub fn failing_for(&self) -> Option<Duration> {
        let failing = self.0.failing.lock();
        failing.as_ref().map(|(_, since)| since.elapsed())
    }

    /// The current faults, in sentences for operators.
    #[must_use]
    pub fn faults(&self) -> Vec<String> {
        let failing = self.0.failing.lock().clone();
        let failing = failing.map(|(why, since)| {
            let (secs, waiting) = (since.elapsed().as_secs(), self.waiting());
            format!(
                "the audit trail has not been exported to {} for {secs} s ({why}): {waiting} changes wait in the \
                 database",
                self.0.target
            )
        });
        failing.into_iter().collect()
    }

    pub(crate) fn holds(&self, position: u64) {
        self.0.position.store(position, Ordering::Relaxed);
        self.0.is_active.store(true, Ordering::Relaxed);
    }

    /// Another node exports.
    pub(crate) fn is_elsewhere(&self) {
        self.0.is_active.store(false, Ordering::Relaxed);
        self.0.failing.lock().take();
    }

    pub(crate) fn exported_to(&self, position: u64, records: u64) {
        self.0.exported.fetch_add(records, Ordering::Relaxed);
        self.holds(position);
    }

    /// Returns the time for which tries had failed, if they had.
    pub(crate) fn answered(&self) -> Option<Duration> {
        let failing = self.0.failing.lock().take();
        failing.map(|(_, since)| since.elapsed())
    }

    /// Returns true if the try before did not fail.
    pub(crate) fn failed(&self, why: String) -> bool {
        self.0.failures.fetch_add(1, Ordering::Relaxed);
        self.0.is_active.store(false, Ordering::Relaxed);
        let mut failing = self.0.failing.lock();
        let since = failing
            .as_ref()
            .map_or_else(Instant::now, |(_, since)| *since);
        failing.replace((why, since)).is_none()
    }
}
