//! The settings of the log, of metrics, and of statsd.

use super::meaning::log_filter;
use super::typed::Typed;
use super::value_error::ValueError;
use super::values;
use ratekeeper_server::{DenialLogConfig, StatsdConfig, StatsdFormat};
use std::time::Duration;

/// The filter and the format of the log.
#[derive(Debug)]
pub(crate) struct LogSettings {
    /// A level or a filter, as tracing understands it.
    pub(crate) filter: String,
    pub(crate) format: LogFormat,
    pub(crate) denials: DenialLogConfig,
    /// True if top keys may be labels of a metric.
    pub(crate) top_denied: bool,
    /// True if metrics have envoyproxy/ratelimit's names too.
    pub(crate) envoy_metrics: bool,
    /// The statsd agent, if there is one.
    pub(crate) statsd: Option<StatsdConfig>,
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Typed<'_> {
    pub(super) fn log(&mut self) -> LogSettings {
        let formats = [("text", LogFormat::Text), ("json", LogFormat::Json)];
        LogSettings {
            filter: self.get("log_level", log_filter),
            format: self.get("log_format", |text| values::one_of(text, &formats)),
            denials: DenialLogConfig {
                lines_per_second: self.get("denial_log", |text| values::number(text, 0..=1_000)),
                node: self.node_name(),
            },
            top_denied: self.get("top_denied_metric", values::switch),
            envoy_metrics: self.get("envoy_metrics", values::switch),
            statsd: self.statsd(),
        }
    }

    fn statsd(&mut self) -> Option<StatsdConfig> {
        let formats = [
            ("statsd", StatsdFormat::Statsd),
            ("dogstatsd", StatsdFormat::DogStatsd),
        ];
        let format = self.get("statsd_format", |text| values::one_of(text, &formats));
        let interval = self.get("statsd_interval", |text| {
            values::duration_within(text, Duration::from_secs(1)..=Duration::from_hours(1))
        });
        let address = self.get("statsd", |text| values::maybe(text, statsd_address))?;
        Some(StatsdConfig {
            address,
            format,
            interval,
        })
    }

    fn node_name(&mut self) -> Box<str> {
        let told = self.get("node_name", |text| values::maybe(text, node_name));
        told.unwrap_or_else(|| {
            // Where there is no such file, the name is left out.
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
            host.unwrap_or_default().trim().into()
        })
    }
}

/// The host and port of a statsd agent. Its name is looked up each time that counts are sent.
fn statsd_address(text: &str) -> Result<Box<str>, ValueError> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', ' ']);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && is_port(port) => Ok(text.into()),
        _ => Err(ValueError::StatsdAddress(text.into())),
    }
}

/// The name of a node: it stands in logs and labels.
fn node_name(text: &str) -> Result<Box<str>, ValueError> {
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match text.len() <= 64 && text.chars().all(is_fit) {
        true => Ok(text.into()),
        false => Err(ValueError::NodeName(text.into())),
    }
}
