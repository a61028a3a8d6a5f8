//! Rules whose counters are leased although they do not say so.

use ratekeeper_limiter::Snapshot;
use tracing::info;

/// The most rules that the log line names.
const NAMED: usize = 10;

/// Logs them.
pub(super) fn tell_defaults(snapshot: &Snapshot) {
    let mut rules = snapshot.leased_by_default().map(|rule| &*rule.id);
    let named: Vec<&str> = rules.by_ref().take(NAMED).collect();
    if named.is_empty() {
        return;
    }
    let (named, more) = (named.join(", "), rules.count());
    info!(
        rules = named,
        more,
        "leased by default, because all requests share one counter of the Redis Cluster; \
         `consistency: exact` has each of them decided there"
    );
}
