//! Families of metrics: one call writes a family with all of its series.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;

/// A label's name and its value.
pub type Label<'a> = (&'a str, &'a str);

/// The series of a family that has one, without labels.
pub(crate) const NO_LABELS: [Label<'static>; 0] = [];

/// Writes families of metrics in OpenMetrics' text format.
#[derive(Debug)]
pub struct Families<'e>(DescriptorEncoder<'e>);

impl<'e> Families<'e> {
    pub(crate) const fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    /// Writes a counter; the format appends `_total` to its name.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn counter(
        &mut self,
        name: &str,
        help: &str,
        count: impl EncodeCounterValue,
    ) -> fmt::Result {
        self.counters(name, help, [(NO_LABELS, count)])
    }

    /// Writes a counter for each set of labels.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn counters<'a, C: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (impl AsRef<[Label<'a>]>, C)>,
    ) -> fmt::Result {
        self.family(MetricType::Counter, name, help, series, |metric, count| {
            let none: Option<&Exemplar<[Label<'_>; 0], u64>> = None;
            metric.encode_counter(&count, none)
        })
    }

    /// Writes a gauge.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.gauges(name, help, [(NO_LABELS, value)])
    }

    /// Writes a gauge for each set of labels.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn gauges<'a, G: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (impl AsRef<[Label<'a>]>, G)>,
    ) -> fmt::Result {
        self.family(MetricType::Gauge, name, help, series, |metric, value| {
            metric.encode_gauge(&value)
        })
    }

    /// Writes values under a name that means no type here.
    pub(crate) fn untyped<'a>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (impl AsRef<[Label<'a>]>, u64)>,
    ) -> fmt::Result {
        self.family(MetricType::Unknown, name, help, series, |metric, value| {
            metric.encode_gauge(&value)
        })
    }

    /// Writes a histogram for each set of labels: the sum of its values, and its buckets. A bucket has its upper bound,
    /// and the count between that and the bound before.
    ///
    /// # Errors
    /// The text cannot be written.
    pub fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (impl AsRef<[Label<'a>]>, (f64, Vec<(f64, u64)>))>,
    ) -> fmt::Result {
        let kind = MetricType::Histogram;
        self.family(kind, name, help, series, |metric, (sum, buckets)| {
            let count = buckets.iter().map(|(_, count)| count).sum();
            metric.encode_histogram::<[Label<'_>; 0]>(sum, count, &buckets, None)
        })
    }

    fn family<'a, V>(
        &mut self,
        kind: MetricType,
        name: &str,
        help: &str,
        series: impl IntoIterator<Item = (impl AsRef<[Label<'a>]>, V)>,
        write: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in series {
            match labels.as_ref() {
                // An empty set of labels would be written as `{}`.
                [] => write(&mut metric, value)?,
                labels => write(&mut metric.encode_family(&labels)?, value)?,
            }
        }
        Ok(())
    }
}

/// Series that differ in one label.
pub fn by<'a, V>(
    label: &'a str,
    values: impl IntoIterator<Item = (&'a str, V)>,
) -> impl Iterator<Item = ([Label<'a>; 1], V)> {
    let values = values.into_iter();
    values.map(move |(of, value)| ([(label, of)], value))
}
