//! The time since which rules do not enforce their limits.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::{RuleMode, Snapshot};

/// The rules in shadow, or enforced for a share, each with the time since which it is, to the second: the start of this
/// node, if it was so then.
#[derive(Debug, Default)]
pub(crate) struct UnenforcedRules(Mutex<HashMap<Arc<str>, Timestamp>>);

impl UnenforcedRules {
    /// Records the rules of a second.
    pub(crate) fn look(&self, snapshot: &Snapshot, now: Timestamp) {
        let mut known = self.0.lock();
        let unenforced = snapshot
            .listed()
            .filter(|it| it.mode == RuleMode::Shadow || !it.rule.enforce.is_all());
        let since = unenforced.map(|it| {
            let id = &it.rule.id;
            (Arc::clone(id), known.get(id).copied().unwrap_or(now))
        });
        *known = since.collect();
    }

    /// The time since which the rule does not enforce its limit; [`None`] if it does.
    pub(crate) fn since(&self, rule: &str) -> Option<Timestamp> {
        self.0.lock().get(rule).copied()
    }
}
