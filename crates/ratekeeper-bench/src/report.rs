//! The report of a run, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::load::{Load, Pace};
use crate::tally::Tally;
use crate::windows::Windows;

/// The version of the JSON form; it increases when a field is removed or changes its meaning.
pub const SCHEMA: u32 = 1;

/// The share of denials above which a report says that it is more about them than is usual.
const DENIED_SHARE_USUAL: f64 = 0.1;

/// The results of a run. The serde form is the JSON of `ratekeeper bench --json`, described in
/// `docs/benchmarking.md`.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The kind of service: `grpc`, `http /v1/check`, …
    pub service: &'static str,
    /// The address.
    pub target: String,
    /// Connections.
    pub connections: u32,
    /// Requests in flight on each.
    pub streams: u32,
    /// `closed` or `open`.
    pub pace: &'static str,
    /// Requests per second that were due, in an open loop.
    pub offered_per_second: Option<f64>,
    /// The distribution of keys, as on the command line.
    pub keys: String,
    /// Seconds of load before the measurement.
    pub warm_up_seconds: f64,
    /// Seconds of the measurement.
    pub duration_seconds: f64,
    /// Requests answered with decisions.
    pub requests: u64,
    /// Decisions in these answers: one each, or the batch's size.
    pub decisions: u64,
    /// Decisions to allow.
    pub allowed: u64,
    /// Decisions to deny.
    pub denied: u64,
    /// The share of denials among the decisions, 0 to 1; 0 without decisions.
    pub denied_share: f64,
    /// Requests without a decision by kind, warm-up included; empty if there were none.
    pub errors: BTreeMap<String, u64>,
    /// Requests per second.
    pub requests_per_second: f64,
    /// Decisions per second.
    pub decisions_per_second: f64,
    /// From the due time of a request to its answer.
    pub latency: Latency,
    /// From the due time of a request to its sending, in an open loop: the part of the latency
    /// spent waiting for a free stream or for this program.
    pub lateness: Option<Latency>,
    /// Bytes of the shortest answer.
    pub answer_bytes_min: usize,
    /// Bytes of the longest answer.
    pub answer_bytes_max: usize,
    /// Admitted requests for each key in each window, if they were counted.
    pub windows: Option<Windows>,
    /// Resources used by the server, if its process was given.
    pub server: Option<ServerUse>,
}

/// Percentiles in microseconds, to three digits; all 0 without requests.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean_us: f64,
    /// The median.
    pub p50_us: f64,
    /// The 90th percentile.
    pub p90_us: f64,
    /// The 95th percentile.
    pub p95_us: f64,
    /// The 99th percentile.
    pub p99_us: f64,
    /// The 99.9th percentile.
    pub p999_us: f64,
    /// The maximum.
    pub max_us: f64,
}

impl Latency {
    fn new(histogram: &Histogram<u64>) -> Self {
        let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// Resources that the server's process used during the measurement.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ServerUse {
    /// The process id.
    pub pid: u32,
    /// Processor time per decision in microseconds; 0 without decisions.
    pub cpu_us_per_decision: f64,
    /// The average number of busy processors.
    pub processors: f64,
    /// Resident memory at the end, in bytes.
    pub resident_bytes: u64,
}

impl ServerUse {
    pub(crate) fn new(
        pid: u32,
        cpu: Duration,
        elapsed: Duration,
        decisions: u64,
        resident_bytes: u64,
    ) -> Self {
        Self {
            pid,
            cpu_us_per_decision: ratio(cpu.as_secs_f64() * 1e6, decisions as f64),
            processors: ratio(cpu.as_secs_f64(), elapsed.as_secs_f64()),
            resident_bytes,
        }
    }
}

fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}

impl Report {
    pub(crate) fn new(
        load: &Load,
        tally: &Tally,
        windows: Option<Windows>,
        server: Option<ServerUse>,
    ) -> Self {
        let seconds = load.duration.as_secs_f64();
        let decisions = tally.allowed + tally.denied;
        let (pace, offered_per_second) = match load.pace {
            Pace::Closed => ("closed", None),
            Pace::Open { per_second } => ("open", Some(per_second)),
        };
        let (answer_bytes_min, answer_bytes_max) = tally.answer_bytes.unwrap_or_default();
        let errors = tally.failures.iter();
        Self {
            schema: SCHEMA,
            service: load.service.name(),
            target: load.target.clone(),
            connections: load.connections,
            streams: load.streams,
            pace,
            offered_per_second,
            keys: load.keys.to_string(),
            warm_up_seconds: load.warm_up.as_secs_f64(),
            duration_seconds: seconds,
            requests: tally.requests,
            decisions,
            allowed: tally.allowed,
            denied: tally.denied,
            denied_share: ratio(tally.denied as f64, decisions as f64),
            errors: errors
                .map(|(failure, count)| (failure.to_string(), *count))
                .collect(),
            requests_per_second: ratio(tally.requests as f64, seconds),
            decisions_per_second: ratio(decisions as f64, seconds),
            latency: Latency::new(&tally.latency),
            lateness: offered_per_second.map(|_| Latency::new(&tally.lateness)),
            answer_bytes_min,
            answer_bytes_max,
            windows,
            server,
        }
    }

    /// The number of requests without a decision.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.errors.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            connections,
            streams,
            ..
        } = self;
        writeln!(
            f,
            "{} at {}: {connections} x {streams}, {} loop, keys {}, {} s",
            self.service, self.target, self.pace, self.keys, self.duration_seconds
        )?;
        if let Some(offered) = self.offered_per_second {
            writeln!(f, "  offered    {offered:>12.0} requests/s")?;
        }
        writeln!(
            f,
            "  decisions  {:>12.0} /s   ({} allowed, {} denied in {} requests: {:.1} % denied)",
            self.decisions_per_second,
            self.allowed,
            self.denied,
            self.requests,
            self.denied_share * 100.0
        )?;
        if self.denied_share > DENIED_SHARE_USUAL {
            writeln!(
                f,
                "  note       many of these are denials, which cost something else than what passes: spread the requests over \
                 more keys, or raise the limit"
            )?;
        }
        row(f, "latency", &self.latency)?;
        if let Some(lateness) = &self.lateness {
            row(f, "sent late", lateness)?;
        }
        if let Some(windows) = &self.windows {
            let Windows {
                window_seconds,
                windows,
                asked_min,
                passed_min,
                passed_max,
                ..
            } = windows;
            writeln!(
                f,
                "  windows    {windows:>12} of {window_seconds} s: of each key {passed_min} to {passed_max} passed, at least \
                 {asked_min} asked"
            )?;
        }
        if let Some(server) = &self.server {
            writeln!(
                f,
                "  server     {:>12.2} us of processor time a decision, {:.2} processors, {:.1} MiB resident",
                server.cpu_us_per_decision,
                server.processors,
                server.resident_bytes as f64 / f64::from(1 << 20)
            )?;
        }
        for (kind, count) in &self.errors {
            writeln!(f, "  failed     {count:>12} {kind}")?;
        }
        if self.errors.is_empty() {
            writeln!(f, "  failed                none")?;
        }
        Ok(())
    }
}

fn row(f: &mut fmt::Formatter<'_>, name: &str, latency: &Latency) -> fmt::Result {
    writeln!(
        f,
        "  {name:<10} {:>12.0} us p50, {:.0} p90, {:.0} p99, {:.0} p99.9, {:.0} max",
        latency.p50_us, latency.p90_us, latency.p99_us, latency.p999_us, latency.max_us
    )
}
