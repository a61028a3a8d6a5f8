//! Counts by upstream.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_server::{Families, by};

/// Upper bounds of the latency buckets, in microseconds.
const BOUNDS_US: [u64; 16] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_000_000, 5_000_000, 30_000_000,
];

/// Status classes of answers by their first digit; the last is for statuses outside of HTTP.
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];

/// Counts of one upstream, or of requests answered without one.
#[derive(Debug, Default)]
pub(crate) struct UpstreamCounts {
    answers: [AtomicU64; CLASSES.len()],
    latency: [AtomicU64; BOUNDS_US.len() + 1],
    latency_sum_us: AtomicU64,
    /// Connections that are open now.
    connections: AtomicI64,
    /// Connections that were opened.
    pub(crate) connects: AtomicU64,
    /// Connections that could not be opened.
    pub(crate) connect_failures: AtomicU64,
    /// Requests that were sent again on another connection.
    pub(crate) retries: AtomicU64,
}

// Relaxed everywhere: the counts are independent of each other.
impl UpstreamCounts {
    pub(crate) fn record_answer(&self, status: u16) {
        let class = usize::from(status / 100);
        let index = class.wrapping_sub(1).min(CLASSES.len() - 1);
        self.answers[index].fetch_add(1, Ordering::Relaxed);
    }

    /// Records the time the upstream took to begin its answer.
    pub(crate) fn record_latency(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let index = BOUNDS_US.partition_point(|bound| *bound < us);
        self.latency[index].fetch_add(1, Ordering::Relaxed);
        self.latency_sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn record_connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn record_connect_failure(&self) {
        self.connect_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn record_retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    /// The sum of the latencies in seconds, and their buckets.
    #[expect(clippy::cast_precision_loss, reason = "figures of metrics are doubles")]
    fn latency(&self) -> (f64, Vec<(f64, u64)>) {
        let count = |bucket: &AtomicU64| bucket.load(Ordering::Relaxed);
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6);
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets = bounds.zip(self.latency.iter().map(count)).collect();
        (count(&self.latency_sum_us) as f64 / 1e6, buckets)
    }
}

/// Encodes the counts of all upstreams, each with its name; `""` is for requests that no upstream answered. `abandoned` are the
/// exchanges of each whose clients are gone.
pub(crate) fn encode<'a>(
    all: impl Iterator<Item = (&'a str, &'a UpstreamCounts)> + Clone,
    abandoned: impl Iterator<Item = (&'a str, u64)>,
    families: &mut Families<'_>,
) -> fmt::Result {
    let answers = all.clone().flat_map(|(upstream, counts)| {
        let classes = CLASSES.iter().zip(&counts.answers);
        classes.map(move |(class, count)| {
            let labels = [("upstream", upstream), ("status", *class)];
            (labels, count.load(Ordering::Relaxed))
        })
    });
    let help = "Responses by upstream (empty: the gateway's own) and status class";
    families.counters("ratelimit_gateway_requests", help, answers)?;
    let upstreams = all.filter(|(name, _)| !name.is_empty());
    let latencies = upstreams
        .clone()
        .map(|(name, counts)| (name, counts.latency()));
    let help = "Time until an upstream's response begins";
    let name = "ratelimit_gateway_upstream_duration_seconds";
    families.histograms(name, help, by("upstream", latencies))?;
    let open = upstreams.clone();
    let open = open.map(|(name, counts)| (name, counts.connections.load(Ordering::Relaxed)));
    let help = "Open connections to an upstream";
    let name = "ratelimit_gateway_upstream_connections";
    families.gauges(name, help, by("upstream", open))?;
    let help = "Requests whose client is gone and that still hold their place at an upstream";
    let name = "ratelimit_gateway_upstream_abandoned";
    families.gauges(name, help, by("upstream", abandoned))?;
    let counted = |of: fn(&UpstreamCounts) -> &AtomicU64| {
        let upstreams = upstreams.clone();
        let counts = upstreams.map(move |(name, it)| (name, of(it).load(Ordering::Relaxed)));
        by("upstream", counts)
    };
    families.counters(
        "ratelimit_gateway_upstream_connects",
        "Connections opened to an upstream",
        counted(|it| &it.connects),
    )?;
    families.counters(
        "ratelimit_gateway_upstream_connect_failures",
        "Failed connection attempts to an upstream",
        counted(|it| &it.connect_failures),
    )?;
    families.counters(
        "ratelimit_gateway_upstream_retries",
        "Requests retried on another connection",
        counted(|it| &it.retries),
    )
}
