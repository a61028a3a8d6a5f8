//! Facts about leases for callers and operators.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Micros, Outcome, Verdict};
use ratekeeper_store::LeaseGauges;

/// The store's last answer about each lease, by the number of its slot. Read without a lock while another lease may take
/// the slot: a caller may then be told the answer to the other one.
#[derive(Debug)]
pub(super) struct Book(Box<[Entry]>);

/// The store's answer about a lease; times by the boot clock.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Hits that remained in the store.
    remaining: AtomicU64,
    reset_at: AtomicU64,
    full_at: AtomicU64,
    /// The lease is renewed when fewer hits than these are left.
    low: AtomicU64,
}

impl Book {
    pub(super) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Entry::default()).collect())
    }

    pub(super) fn entry(&self, slot: usize) -> &Entry {
        &self.0[slot]
    }
}

impl Entry {
    /// Takes in what the store `told` at `now`. The lease is renewed below `low`.
    pub(super) fn put(&self, told: &Outcome, low: u64, now: Micros) {
        let after = |wait: Micros| now.get().saturating_add(wait.get());
        self.remaining.store(told.remaining, Ordering::Relaxed);
        self.reset_at
            .store(after(told.reset_after), Ordering::Relaxed);
        self.full_at
            .store(after(told.full_after), Ordering::Relaxed);
        self.low.store(low, Ordering::Relaxed);
    }

    /// The answer to hits that left so many in the lease.
    #[inline]
    pub(super) fn outcome(&self, left: u64, now: Micros) -> Outcome {
        let until =
            |at: &AtomicU64| Micros::new(at.load(Ordering::Relaxed).saturating_sub(now.get()));
        let remaining = self.remaining.load(Ordering::Relaxed);
        Outcome {
            verdict: Verdict::Fits,
            remaining: remaining.saturating_add(left),
            reset_after: until(&self.reset_at),
            full_after: until(&self.full_at),
            retry_after: Micros::ZERO,
            delay: Micros::ZERO,
            cut: 0,
        }
    }

    /// Returns true if `hits` that left so many have brought the lease below the mark.
    #[inline]
    pub(super) fn is_to_renew(&self, left: u64, hits: u64) -> bool {
        let low = self.low.load(Ordering::Relaxed);
        left < low && left.saturating_add(hits) >= low
    }
}

/// Counts since the start, and what is held.
#[derive(Debug, Default)]
pub(super) struct Counts {
    grants: AtomicU64,
    granted: AtomicU64,
    spent: AtomicU64,
    returned: AtomicU64,
    burned: AtomicU64,
    leases: AtomicU64,
    held: AtomicU64,
}

impl Counts {
    /// A call for a lease was answered.
    pub(super) fn answered(&self) {
        self.grants.fetch_add(1, Ordering::Relaxed);
    }

    /// The credit of a lease went from `before` to `after`.
    pub(super) fn refilled(&self, before: u64, after: u64) {
        self.granted
            .fetch_add(after.saturating_sub(before), Ordering::Relaxed);
        self.burned(before.saturating_sub(after));
    }

    pub(super) fn opened(&self) {
        self.leases.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.leases.fetch_sub(1, Ordering::Relaxed);
    }

    /// The hits that a lease holds went from `before` to `after`.
    pub(super) fn held(&self, before: u64, after: u64) {
        self.held.fetch_add(after, Ordering::Relaxed);
        self.held.fetch_sub(before, Ordering::Relaxed);
    }

    pub(super) fn spent(&self, hits: u64) {
        self.spent.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn returned(&self, hits: u64) {
        self.returned.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn burned(&self, hits: u64) {
        self.burned.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn read(&self, nodes: u64) -> LeaseGauges {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        LeaseGauges {
            store: Box::default(),
            grants: load(&self.grants),
            granted: load(&self.granted),
            spent: load(&self.spent),
            returned: load(&self.returned),
            burned: load(&self.burned),
            leases: load(&self.leases),
            held: load(&self.held),
            nodes,
        }
    }
}
