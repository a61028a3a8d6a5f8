//! Warns that the counters of a rule are about to fill with denials.
//!
//! Such counters never make room for new ones: once they fill the share that their rule may hold,
//! its new callers are answered by its failure mode, uncounted. Somebody may bring that about on
//! purpose.

use std::sync::atomic::{AtomicBool, Ordering};

use ratekeeper_limiter::{Limiter, Snapshot};
use ratekeeper_stores::Stores;
use tracing::{info, warn};

/// The share, in thousandths, from which the warning is logged.
const SAID_FROM: u16 = 900;

/// The share, in thousandths, below which the warning ends.
const OVER_BELOW: u16 = 800;

/// True while the warning is in force.
#[derive(Debug, Default)]
pub(crate) struct ShareAlarm(AtomicBool);

impl ShareAlarm {
    /// Looks at the store, and logs what has begun or ended since the last look.
    pub(crate) fn look(&self, limiter: &Limiter<Stores>) {
        let refusing = limiter.store().gauges().refusing;
        let permille = refusing.map_or(0, |refusing| refusing.permille);
        // Relaxed: one task looks.
        let is_said = self.0.load(Ordering::Relaxed);
        if !is_said && permille >= SAID_FROM {
            self.0.store(true, Ordering::Relaxed);
            if let Some(fault) = fault(limiter) {
                warn!("{fault}");
            }
        } else if is_said && permille < OVER_BELOW {
            self.0.store(false, Ordering::Relaxed);
            info!("the counters in memory have room again for new callers of every rule");
        }
    }

    /// The fault that `/readyz` reports, if any.
    pub(crate) fn fault(&self, limiter: &Limiter<Stores>) -> Option<String> {
        self.0
            .load(Ordering::Relaxed)
            .then(|| fault(limiter))
            .flatten()
    }
}

fn fault(limiter: &Limiter<Stores>) -> Option<String> {
    let refusing = limiter.store().gauges().refusing?;
    let snapshot = limiter.snapshot();
    let rule = match snapshot.rule_of(refusing.rule) {
        Some(rule) => &*rule.id,
        None if Snapshot::is_of_requests(refusing.rule) => "(limits in requests)",
        None => {
            return Some(format!(
                "callers denied by a rule that has since been removed still take {} % of the counters in memory that one rule may \
                 have, until their windows end; see memory_limit and max_share",
                refusing.permille / 10
            ));
        }
    };
    Some(format!(
        "callers that the rule `{rule}` denies take {} % of the counters in memory that it may have: when they take all, new \
         callers of the rule are answered by its on_store_failure, uncounted; see memory_limit and max_share",
        refusing.permille / 10
    ))
}
