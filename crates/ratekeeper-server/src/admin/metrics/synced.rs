//! The synced counters of this node, by store.

use std::fmt;

use ratekeeper_store::SyncGauges;

use super::leases::named;
use crate::figures::families::{Families, by};

pub(super) fn encode(stores: &[SyncGauges], families: &mut Families<'_>) -> fmt::Result {
    if stores.is_empty() {
        return Ok(());
    }
    let by_store = |read: fn(&SyncGauges) -> u64| {
        by(
            "store",
            stores.iter().map(move |it| (named(&it.store), read(it))),
        )
    };
    families.gauges(
        "ratelimit_synced_counters",
        "Synced counters on this node",
        by_store(|it| it.counters),
    )?;
    families.gauges(
        "ratelimit_synced_counters_due",
        "Synced counters due for their next sync",
        by_store(|it| it.due),
    )?;
    families.gauges(
        "ratelimit_synced_hits_pending",
        "Hits admitted by this node and not yet added to the store; other nodes do not know of them",
        by_store(|it| it.pending),
    )?;
    let syncs = stores.iter().flat_map(|it| {
        let results = [("answered", it.synced), ("failed", it.failed)];
        results.map(|(result, count)| ([("store", named(&it.store)), ("result", result)], count))
    });
    let help = "Syncs of counters with the store, by result";
    families.counters("ratelimit_syncs", help, syncs)?;
    let hits = stores.iter().flat_map(|it| {
        let fates = [("applied", it.applied), ("dropped", it.dropped)];
        fates.map(|(fate, hits)| ([("store", named(&it.store)), ("fate", fate)], hits))
    });
    let help = "Hits of synced counters by fate: applied (added to the store), dropped (their window ended before)";
    families.counters("ratelimit_synced_hits", help, hits)?;
    let help = "Steps decided by failure mode because there was no room for another synced counter";
    families.counters("ratelimit_synced_refused", help, by_store(|it| it.refused))
}
