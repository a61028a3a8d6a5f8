//! The leases of this node, by store.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use ratekeeper_store::LeaseGauges;

use super::{count_of, counter};

pub(super) fn encode(leases: &[LeaseGauges], encoder: &mut DescriptorEncoder) -> fmt::Result {
    if leases.is_empty() {
        return Ok(());
    }
    type Read = fn(&LeaseGauges) -> u64;
    let gauges: [(&str, &str, Read); 4] = [
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
            "ratelimit_over_admission_bound",
            "The most hits that this node can admit beyond limits, if the store loses its latest charges",
            |it| it.held,
        ),
        (
            "ratelimit_lease_nodes",
            "Nodes that lease counters of the store, as far as is known",
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
    let help = "Answers of the store to requests for leases";
    let mut metric = counter(encoder, "ratelimit_lease_grants", help)?;
    for store in leases {
        count_of(&mut metric, [("store", shown(store))], store.grants)?;
    }
    let help = "Hits of leases: granted, spent (admitted, once their lease is over), returned, and burned (charged, never admitted)";
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

fn shown(leases: &LeaseGauges) -> &str {
    match &*leases.store {
        "" => "default",
        name => name,
    }
}
