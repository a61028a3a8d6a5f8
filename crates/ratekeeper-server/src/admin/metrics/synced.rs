//! The synced counters of this node, by store.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use ratekeeper_store::SyncGauges;

use super::family::{count_of, counter, named};

pub(super) fn encode(stores: &[SyncGauges], encoder: &mut DescriptorEncoder) -> fmt::Result {
    if stores.is_empty() {
        return Ok(());
    }
    type Read = fn(&SyncGauges) -> u64;
    let gauges: [(&str, &str, Read); 3] = [
        (
            "ratelimit_synced_counters",
            "Synced counters on this node",
            |it| it.counters,
        ),
        (
            "ratelimit_synced_counters_due",
            "Synced counters due for their next sync",
            |it| it.due,
        ),
        (
            "ratelimit_synced_hits_pending",
            "Hits admitted by this node and not yet added to the store; other nodes do not know of them",
            |it| it.pending,
        ),
    ];
    for (name, help, read) in gauges {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for store in stores {
            let labels = [("store", shown(store))];
            metric.encode_family(&labels)?.encode_gauge(&read(store))?;
        }
    }
    let help = "Syncs of counters with the store, by result";
    let mut metric = counter(encoder, "ratelimit_syncs", help)?;
    for store in stores {
        for (result, count) in [("answered", store.synced), ("failed", store.failed)] {
            let labels = [("store", shown(store)), ("result", result)];
            count_of(&mut metric, labels, count)?;
        }
    }
    let help = "Hits of synced counters by fate: applied (added to the store), dropped (their window ended before)";
    let mut metric = counter(encoder, "ratelimit_synced_hits", help)?;
    for store in stores {
        for (fate, hits) in [("applied", store.applied), ("dropped", store.dropped)] {
            count_of(&mut metric, [("store", shown(store)), ("fate", fate)], hits)?;
        }
    }
    let help = "Steps decided by failure mode because there was no room for another synced counter";
    let mut metric = counter(encoder, "ratelimit_synced_refused", help)?;
    for store in stores {
        count_of(&mut metric, [("store", shown(store))], store.refused)?;
    }
    Ok(())
}

fn shown(store: &SyncGauges) -> &str {
    named(&store.store)
}
