//! Facts about leases for callers and operators.

use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::lease::Facts;
use ratekeeper_core::{Micros, Outcome, Verdict};
use ratekeeper_store::LeaseGauges;

/// The store's answer to each lease. Read without a lock while another lease may take the slot: a caller may then be told
/// the answer to the other one.
#[derive(Debug)]
pub(super) struct Book(Box<[Entry]>);

/// The store's answer when it granted a lease; times by the boot clock.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Hits that remained in the store.
    remaining: AtomicU64,
    reset_at: AtomicU64,
    full_at: AtomicU64,
    /// The next lease is asked for when fewer hits than these are left.
    low: AtomicU64,
    /// The time at which the next lease is asked for; [`u64::MAX`] once it was.
    renew_at: AtomicU64,
}

impl Book {
    pub(super) fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| Entry::default()).collect())
    }

    pub(super) fn entry(&self, slot: usize) -> &Entry {
        &self.0[slot]
    }

    pub(super) fn put(&self, slot: usize, entry: Entry) {
        let there = &self.0[slot];
        let fields = |entry: &Entry| {
            [
                entry.remaining.load(Ordering::Relaxed),
                entry.reset_at.load(Ordering::Relaxed),
                entry.full_at.load(Ordering::Relaxed),
                entry.low.load(Ordering::Relaxed),
                entry.renew_at.load(Ordering::Relaxed),
            ]
        };
        let [remaining, reset_at, full_at, low, renew_at] = fields(&entry);
        there.remaining.store(remaining, Ordering::Relaxed);
        there.reset_at.store(reset_at, Ordering::Relaxed);
        there.full_at.store(full_at, Ordering::Relaxed);
        there.low.store(low, Ordering::Relaxed);
        there.renew_at.store(renew_at, Ordering::Relaxed);
    }
}

impl Entry {
    /// The entry of a lease for which `want` hits were asked. `trip` is how long an answer takes, and `is_cut` says that
    /// the lease ends with its window: there is nothing to renew then.
    pub(super) fn new(
        facts: &Facts,
        told: &Outcome,
        want: u64,
        (trip, is_cut, ttl): (u64, bool, Micros),
    ) -> Self {
        let ttl = ttl.get().max(1);
        // Spent while the answer is on its way.
        let spent = u128::from(want) * u128::from(trip) / u128::from(ttl) + 1;
        let low = u64::try_from(spent).unwrap_or(u64::MAX);
        let early = (2 * trip).max(2_000).min(ttl / 4);
        let after = |wait: Micros| AtomicU64::new(facts.from.get().saturating_add(wait.get()));
        Self {
            remaining: AtomicU64::new(told.remaining),
            reset_at: after(told.reset_after),
            full_at: after(told.full_after),
            low: AtomicU64::new(low.min(facts.granted / 2)),
            renew_at: AtomicU64::new(match is_cut {
                true => u64::MAX,
                false => facts.deadline.get().saturating_sub(early),
            }),
        }
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
        }
    }

    /// Returns true once for each reason to ask for the next lease: few hits are left, or little time.
    #[inline]
    pub(super) fn is_to_renew(&self, left: u64, hits: u64, now: Micros) -> bool {
        let low = self.low.load(Ordering::Relaxed);
        if left < low && left.saturating_add(hits) >= low {
            return true;
        }
        let renew_at = self.renew_at.load(Ordering::Relaxed);
        let (done, not) = (Ordering::Relaxed, Ordering::Relaxed);
        now.get() >= renew_at
            && self
                .renew_at
                .compare_exchange(renew_at, u64::MAX, done, not)
                .is_ok()
    }
}

/// Counts since the start.
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
    pub(super) fn granted(&self, hits: u64) {
        self.grants.fetch_add(1, Ordering::Relaxed);
        self.granted.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn opened(&self, hits: u64) {
        self.leases.fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn closed(&self, granted: u64, left: u64) {
        self.leases.fetch_sub(1, Ordering::Relaxed);
        self.held.fetch_sub(granted, Ordering::Relaxed);
        self.spent.fetch_add(granted - left, Ordering::Relaxed);
    }

    pub(super) fn returned(&self, hits: u64) {
        self.returned.fetch_add(hits, Ordering::Relaxed);
    }

    pub(super) fn burned(&self, hits: u64) {
        self.burned.fetch_add(hits, Ordering::Relaxed);
    }

    /// Hits that were taken when their lease was closed, and so counted as spent, and were not admitted.
    pub(super) fn burned_late(&self, hits: u64) {
        self.spent.fetch_sub(hits, Ordering::Relaxed);
        self.burned(hits);
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
