//! The retry budget: a bucket that every call fills a little and every retry empties by one.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::RetryBudget;

/// The cost of a retry. A call adds as much as the configured percentage.
const RETRY: u64 = 100;

#[derive(Debug)]
pub(crate) struct Budget {
    left: AtomicU64,
    most: u64,
    each_call: u64,
}

impl Budget {
    pub(crate) fn new(config: RetryBudget) -> Self {
        let most = u64::from(config.burst.min(1_000_000)) * RETRY;
        Self {
            left: AtomicU64::new(most),
            most,
            each_call: u64::from(config.percent.min(100)),
        }
    }

    /// Credits the budget for a call.
    pub(crate) fn earn(&self) {
        let more = |left: u64| Some((left + self.each_call).min(self.most));
        // Relaxed: an independent count, here and below.
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }

    /// Pays for a retry; returns false if the budget does not cover it.
    pub(crate) fn spend(&self) -> bool {
        let less = |left: u64| left.checked_sub(RETRY);
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_the_calls() {
        let budget = Budget::new(RetryBudget {
            percent: 10,
            burst: 2,
        });
        assert!(budget.spend() && budget.spend() && !budget.spend());
        (0..9).for_each(|_| budget.earn());
        assert!(!budget.spend());
        budget.earn();
        assert!(budget.spend() && !budget.spend());
        (0..1_000).for_each(|_| budget.earn());
        assert!(
            budget.spend() && budget.spend() && !budget.spend(),
            "no more than the burst"
        );
        let none = Budget::new(RetryBudget {
            percent: 100,
            burst: 0,
        });
        none.earn();
        assert!(!none.spend());
    }
}
