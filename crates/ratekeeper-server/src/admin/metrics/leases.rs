//! The leases of this node, by store.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use ratekeeper_store::{LeaseGauges, SyncGauges};

use super::family::{count_of, counter, named};

pub(super) fn encode(
    leases: &[LeaseGauges],
    synced: &[SyncGauges],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    over_admission_bound(leases, synced, encoder)?;
    if leases.is_empty() {
        return Ok(());
    }
    type Read = fn(&LeaseGauges) -> u64;
    let gauges: [(&str, &str, Read); 3] = [
        (
            "ratelimit_leases_held",
            "Leases that this node holds",
            |it| it.leases,
        ),
        (
            "ratelimit_lease_hits_held",
            "Hits granted to the leases that this node holds",
            |it| it.held,
        ),
        (
            "ratelimit_lease_nodes",
            "Known nodes that lease counters in the store",
            |it| it.nodes,
        ),
    ];
    for (name, help, read) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for store in leases {
            let labels = [("store", shown(store))];
            metric.encode_family(&labels)?.encode_gauge(&read(store))?;
        }
    }
    let help = "Lease requests that the store answered";
    let mut metric = counter(encoder, "ratelimit_lease_grants", help)?;
    for store in leases {
        count_of(&mut metric, [("store", shown(store))], store.grants)?;
    }
    let help = "Hits of leases by fate: granted, spent (admitted; counted when the lease ends), returned, burned (charged, never admitted)";
    let mut metric = counter(encoder, "ratelimit_lease_hits", help)?;
    for store in leases {
        for (fate, hits) in [
            ("granted", store.granted),
            ("spent", store.spent),
            ("returned", store.returned),
            ("burned", store.burned),
        ] {
            count_of(&mut metric, [("store", shown(store)), ("fate", fate)], hits)?;
        }
    }
    Ok(())
}

/// Both kinds of hits of which other nodes may admit as many once more, by store.
fn over_admission_bound(
    leases: &[LeaseGauges],
    synced: &[SyncGauges],
    encoder: &mut DescriptorEncoder,
) -> fmt::Result {
    let mut hits: BTreeMap<&str, u64> = BTreeMap::new();
    for store in leases {
        *hits.entry(&store.store).or_default() += store.held;
    }
    for store in synced {
        *hits.entry(&store.store).or_default() += store.pending;
    }
    if hits.is_empty() {
        // Nothing is leased or synced: nothing can pass beyond a limit for that.
        hits.insert("", 0);
    }
    let help = "Most hits by which this node may exceed limits: hits held in leases, if the store loses its latest \
                charges, and hits of synced counters that other nodes do not know of yet";
    let name = "ratelimit_over_admission_bound";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (store, hits) in hits {
        let labels = [("store", named(store))];
        metric.encode_family(&labels)?.encode_gauge(&hits)?;
    }
    Ok(())
}

fn shown(leases: &LeaseGauges) -> &str {
    named(&leases.store)
}
