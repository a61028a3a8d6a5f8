//! The leases of this node, by store.

use std::collections::BTreeMap;
use std::fmt;

use ratekeeper_store::{LeaseGauges, SyncGauges};

use crate::figures::families::{Families, by};

pub(super) fn encode(
    leases: &[LeaseGauges],
    synced: &[SyncGauges],
    families: &mut Families<'_>,
) -> fmt::Result {
    over_admission_bound(leases, synced, families)?;
    if leases.is_empty() {
        return Ok(());
    }
    let by_store = |read: fn(&LeaseGauges) -> u64| {
        by(
            "store",
            leases.iter().map(move |it| (named(&it.store), read(it))),
        )
    };
    families.gauges(
        "ratelimit_leases_held",
        "Leases that this node holds",
        by_store(|it| it.leases),
    )?;
    families.gauges(
        "ratelimit_lease_hits_held",
        "Hits that the store holds for the leases of this node",
        by_store(|it| it.held),
    )?;
    families.gauges(
        "ratelimit_lease_nodes",
        "Known nodes that lease counters in the store",
        by_store(|it| it.nodes),
    )?;
    families.counters(
        "ratelimit_lease_grants",
        "Calls about leases that the store answered",
        by_store(|it| it.grants),
    )?;
    let hits = leases.iter().flat_map(|it| {
        let fates = [
            ("granted", it.granted),
            ("spent", it.spent),
            ("returned", it.returned),
            ("burned", it.burned),
        ];
        fates.map(|(fate, hits)| ([("store", named(&it.store)), ("fate", fate)], hits))
    });
    let help = "Hits of leases by fate: granted, spent (admitted; counted when they are reported), returned unspent, \
                burned (charged, never admitted)";
    families.counters("ratelimit_lease_hits", help, hits)
}

/// Both kinds of hits of which other nodes may admit as many once more, by store.
fn over_admission_bound(
    leases: &[LeaseGauges],
    synced: &[SyncGauges],
    families: &mut Families<'_>,
) -> fmt::Result {
    let mut hits: BTreeMap<&str, u64> = BTreeMap::new();
    let held = leases.iter().map(|it| (&it.store, it.held));
    for (store, held) in held.chain(synced.iter().map(|it| (&it.store, it.pending))) {
        *hits.entry(named(store)).or_default() += held;
    }
    if hits.is_empty() {
        // Nothing is leased or synced: nothing can pass beyond a limit for that.
        hits.insert(named(""), 0);
    }
    let help = "Most hits by which this node may exceed limits: hits held in leases, if the store loses its latest \
                leases, and hits of synced counters that other nodes do not know of yet";
    families.gauges("ratelimit_over_admission_bound", help, by("store", hits))
}

/// The label of a store's name.
pub(super) const fn named(store: &str) -> &str {
    match store.is_empty() {
        true => "default",
        false => store,
    }
}
