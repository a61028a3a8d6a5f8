//! Families of series, and their labels.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

pub(super) type Label<'a> = (&'a str, &'a str);

/// A counter; the format appends `_total` to its name.
pub(super) fn counter<'e>(
    encoder: &'e mut DescriptorEncoder,
    name: &'e str,
    help: &str,
) -> Result<MetricEncoder<'e>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

pub(super) fn count_of<const N: usize>(
    metric: &mut MetricEncoder<'_>,
    labels: [Label<'_>; N],
    count: u64,
) -> fmt::Result {
    let none: Option<&Exemplar<[Label<'_>; 0], u64>> = None;
    metric.encode_family(&labels)?.encode_counter(&count, none)
}

/// `buckets`: upper bound, and the count between it and the bound before.
pub(super) fn histogram(
    metric: &mut MetricEncoder<'_>,
    sum: f64,
    buckets: &[(f64, u64)],
) -> fmt::Result {
    let count = buckets.iter().map(|(_, count)| count).sum();
    metric.encode_histogram::<[Label<'_>; 0]>(sum, count, buckets, None)
}

/// The label of a store's name.
pub(super) const fn named(store: &str) -> &str {
    match store.is_empty() {
        true => "default",
        false => store,
    }
}
