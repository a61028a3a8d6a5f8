//! A log of unusual growth: when it begins and when it ends.

use ratekeeper_limiter::{Growth, GrowthChange, Limiter};
use ratekeeper_stores::Stores;
use tracing::{info, warn};

use crate::admin_json::keys::shown;

/// The most lines of one look, which is every ten seconds.
const LINES_MAX: usize = 20;

/// Ends the second of the watch, and logs what began and what ended.
pub(crate) fn look(limiter: &Limiter<Stores>) {
    let Some(watch) = limiter.growth() else {
        return;
    };
    let changes = watch.roll(limiter.clock().now());
    for change in changes.iter().take(LINES_MAX) {
        match change {
            GrowthChange::Began(growth) => began(growth),
            GrowthChange::Ended(growth) => ended(growth),
        }
    }
    if changes.len() > LINES_MAX {
        let left_out = changes.len() - LINES_MAX;
        info!(
            left_out,
            "more growth began or ended: see /admin/v1/anomalies"
        );
    }
}

fn began(growth: &Growth) {
    let key = growth.subject.as_deref();
    warn!(
        domain = &*growth.domain,
        rule = &*growth.rule,
        tenant = key.map(shown),
        key,
        per_minute = growth.per_minute,
        usual_per_minute = growth.usual_per_minute,
        since = %ratekeeper_rules::time::rfc3339(growth.since),
        "unusual growth: far more requests than in the hour before; nothing is limited because of it"
    );
}

fn ended(growth: &Growth) {
    let key = growth.subject.as_deref();
    info!(
        domain = &*growth.domain,
        rule = &*growth.rule,
        tenant = key.map(shown),
        key,
        per_minute = growth.per_minute,
        peak_per_minute = growth.peak_per_minute,
        since = %ratekeeper_rules::time::rfc3339(growth.since),
        "unusual growth has ended, or has lasted an hour and is usual now"
    );
}
