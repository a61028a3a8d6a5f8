//! The counters of the memory store.

use ratekeeper_stores::StoreGauges;
use std::fmt;

use crate::figures::families::Families;

pub(super) fn encode(store: &StoreGauges, families: &mut Families<'_>) -> fmt::Result {
    families.gauge(
        "ratelimit_store_counters",
        "Counters in the store",
        store.counters,
    )?;
    families.gauge(
        "ratelimit_store_capacity",
        "Capacity of the store, in counters",
        store.capacity,
    )?;
    families.gauge(
        "ratelimit_store_bytes",
        "Bytes reserved for counters",
        store.bytes,
    )?;
    let refusing = store.refusing.map_or(0, |refusing| refusing.permille);
    families.gauge(
        "ratelimit_store_denying_ratio",
        "Largest share of a rule's part of the store that denying counters take, 0 to 1",
        f64::from(refusing) / 1_000.0,
    )?;
    families.counter(
        "ratelimit_store_expired",
        "Expired counters removed",
        store.expired,
    )?;
    families.counter(
        "ratelimit_store_evicted",
        "Live counters evicted to make room",
        store.evicted,
    )?;
    families.counter(
        "ratelimit_store_refused",
        "Steps refused because the store had no room",
        store.refused,
    )
}
