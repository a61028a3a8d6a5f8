//! A log of those whom rules in shadow would deny: each tenant and rule when it begins, and once a minute while it goes on.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_limiter::{Limiter, TopDecision};
use ratekeeper_stores::Stores;

use crate::admin_json::keys::shown;

/// The interval at which it looks, and at which one tenant and rule is told again.
const EVERY: Micros = Micros::from_secs(60);

/// The most lines of one look; the latest come first.
const LINES_MAX: usize = 20;

/// The denials that were told before.
#[derive(Debug, Default)]
pub(crate) struct ShadowLog {
    looked_at: Timestamp,
    /// The time of the last denial that was told, by rule and tenant: as many as there are cases.
    told: HashMap<(Arc<str>, Arc<str>), Timestamp>,
}

impl ShadowLog {
    /// Logs new denials, at most once a minute, and at once after a minute without any.
    pub(crate) fn look(&mut self, limiter: &Limiter<Stores>) {
        let now = limiter.clock().now();
        if !self.told.is_empty() && now.since(self.looked_at) < EVERY {
            return;
        }
        let cases = limiter
            .top()
            .cases(now, |case| case.kind == TopDecision::Shadowed);
        let mut told = HashMap::with_capacity(cases.len());
        let mut lines = 0;
        for case in cases {
            let name = (Arc::clone(&case.rule), Arc::clone(&case.subject));
            let is_new = self.told.get(&name).is_none_or(|last| case.last > *last);
            told.insert(name, case.last);
            lines += usize::from(is_new);
            if is_new && lines <= LINES_MAX {
                tracing::info!(
                    domain = &*case.domain,
                    rule = &*case.rule,
                    tenant = shown(&case.subject),
                    key = &*case.subject,
                    in_the_last_hour = case.count,
                    since = %ratekeeper_rules::time::rfc3339(case.since),
                    "requests would be denied, were the rule enforced"
                );
            }
        }
        if lines > LINES_MAX {
            let left_out = lines - LINES_MAX;
            tracing::info!(left_out, "more tenants would be denied by rules in shadow");
        }
        (self.told, self.looked_at) = (told, now);
    }
}
