//! Counts of requests that no rule counts.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::Check;
use crate::stray::Strays;

/// The descriptors and limits that took no part, for the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Missed {
    /// True if a domain of the request has no rules.
    pub(crate) unknown_domain: bool,
    /// Descriptors of known domains that no limit matched.
    pub(crate) unmatched: u16,
    /// Concurrency limits left out because nothing would release the permit.
    pub(crate) concurrency_skipped: u16,
    /// The first descriptor without a limit.
    pub(crate) stray: Option<u16>,
}

/// Counts of requests, independent of their rules.
#[derive(Debug, Default)]
pub struct Totals {
    /// Requests for a domain without rules, which are allowed.
    pub unknown_domain: AtomicU64,
    /// Descriptors that no limit matched, which are allowed.
    pub unmatched: AtomicU64,
    /// Concurrency limits skipped because nothing would release the permit.
    pub concurrency_skipped: AtomicU64,
    /// A sample of the descriptors that no rule matched.
    pub strays: Strays,
}

impl Totals {
    /// Counts the parts of `check` that no limit matched.
    #[inline]
    pub(crate) fn count(&self, missed: &Missed, check: &Check<'_>) {
        let add = |count: &AtomicU64, more: u16| {
            if more > 0 {
                // Relaxed: nothing else depends on this count.
                count.fetch_add(u64::from(more), Ordering::Relaxed);
            }
        };
        add(&self.unknown_domain, u16::from(missed.unknown_domain));
        add(&self.unmatched, missed.unmatched);
        add(&self.concurrency_skipped, missed.concurrency_skipped);
        let stray = missed.stray.map(usize::from);
        if let Some(stray) = stray.and_then(|number| check.descriptors().nth(number)) {
            self.strays.observe(stray.domain, stray.entries);
        }
    }
}
