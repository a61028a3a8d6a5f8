//! Logs hits that are not charged, as the debt of their bucket is as large as it may be.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::time::{Duration, Instant};
use tracing::warn;

use crate::figures::rule_counts::CountsDelta;

/// The shortest time between two lines.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The hits that were not logged yet, by rule.
#[derive(Debug, Default)]
pub(crate) struct DebtLog {
    cut: BTreeMap<Arc<str>, u64>,
    /// The time of the last line.
    logged: Option<Instant>,
}

impl DebtLog {
    /// Logs what was cut since the last line. To be called with the answers of each second.
    pub(crate) fn look(&mut self, second: &CountsDelta<'_>) {
        for (rule, counts) in second.iter().filter(|(_, counts)| counts.debt_cut > 0) {
            *self.cut.entry(Arc::clone(&rule.id)).or_default() += counts.debt_cut;
        }
        let is_recent = self.logged.is_some_and(|at| at.elapsed() < LOGGED_EVERY);
        // The rule that lost most stands for the others.
        let Some((rule, hits)) = self.cut.iter().max_by_key(|(_, hits)| **hits) else {
            return;
        };
        if is_recent {
            return;
        }
        warn!(
            %rule,
            hits,
            rules = self.cut.len(),
            "hits beyond `max_debt` were not charged: callers owe more than their buckets can; raise `max_debt`, or have \
             them ask before they spend"
        );
        self.cut.clear();
        self.logged = Some(Instant::now());
    }
}
