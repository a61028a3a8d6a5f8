//! The counters of the memory store.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::family::{Label, counter};
use crate::store::StoreGauges;

pub(super) fn encode(store: &StoreGauges, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    for (name, help, value) in [
        (
            "ratelimit_store_counters",
            "Counters in the store",
            store.counters,
        ),
        (
            "ratelimit_store_capacity",
            "Capacity of the store, in counters",
            store.capacity,
        ),
        (
            "ratelimit_store_bytes",
            "Bytes reserved for counters",
            store.bytes,
        ),
    ] {
        let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&value)?;
    }
    let refusing = store.refusing.map_or(0, |refusing| refusing.permille);
    let name = "ratelimit_store_denying_ratio";
    let help = "Largest share of a rule's part of the store that denying counters take, 0 to 1";
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    metric.encode_gauge(&(f64::from(refusing) / 1_000.0))?;
    for (name, help, count) in [
        (
            "ratelimit_store_expired",
            "Expired counters removed",
            store.expired,
        ),
        (
            "ratelimit_store_evicted",
            "Live counters evicted to make room",
            store.evicted,
        ),
        (
            "ratelimit_store_refused",
            "Steps refused because the store had no room",
            store.refused,
        ),
    ] {
        counter(encoder, name, help)?.encode_counter::<[Label<'_>; 0], _, u64>(&count, None)?;
    }
    Ok(())
}
