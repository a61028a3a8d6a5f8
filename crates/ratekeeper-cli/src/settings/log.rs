//! The settings of the log, of metrics, and of statsd.

use super::table::Values;
use super::value_error::ValueError;
use ratekeeper_server::{DenialLogConfig, StatsdConfig};

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Values {
    /// The log of denied requests.
    pub(crate) fn denial_log_config(&self) -> DenialLogConfig {
        DenialLogConfig {
            lines_per_second: *self.denial_log,
            node: self.node_name.clone(),
        }
    }

    /// The statsd agent, if there is one.
    pub(crate) fn statsd_config(&self) -> Option<StatsdConfig> {
        Some(StatsdConfig {
            address: self.statsd.clone()?,
            format: *self.statsd_format,
            interval: *self.statsd_interval,
        })
    }
}

/// The host and port of a statsd agent. Its name is looked up each time that counts are sent.
pub(super) fn statsd_address(text: &str) -> Result<Box<str>, ValueError> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', ' ']);
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if is_host(host) && is_port(port) => Ok(text.into()),
        _ => Err(ValueError::StatsdAddress(text.into())),
    }
}

/// The name of a node, which stands in logs and labels; if none is given, the host's.
pub(super) fn node_name(text: &str) -> Result<Box<str>, ValueError> {
    if text.is_empty() {
        // Where there is no such file, the name is left out.
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
        return Ok(host.unwrap_or_default().trim().into());
    }
    let is_fit = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match text.len() <= 64 && text.chars().all(is_fit) {
        true => Ok(text.into()),
        false => Err(ValueError::NodeName(text.into())),
    }
}

/// The filter that a setting asks for. A bare level is about this program: the libraries below it are
/// heard from `error` on, because a peer can make some of them warn at every frame it sends. Whoever
/// wants more names them, as in `info,h2=debug`.
pub(super) fn log_filter(text: &str) -> Result<String, ValueError> {
    // envoyproxy/ratelimit's words for two levels.
    let text = match text.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "fatal" | "panic" => "error".to_owned(),
        _ => text.to_owned(),
    };
    if !text.contains(['=', ',']) && !is_level(&text) {
        return Err(ValueError::LogLevel {
            text: text.into(),
            known: LEVELS.join(", ").into(),
        });
    }
    let text = text
        .split(',')
        .map(about_ourselves)
        .collect::<Vec<_>>()
        .join(",");
    match tracing_subscriber::EnvFilter::builder().parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(ValueError::LogFilter {
            text: text.into(),
            error,
        }),
    }
}

const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];

fn is_level(text: &str) -> bool {
    LEVELS.contains(&text.to_ascii_lowercase().as_str())
}

/// A directive of a filter, where a bare level is one for our own targets alone.
fn about_ourselves(directive: &str) -> String {
    let level = directive.trim().to_ascii_lowercase();
    match level.as_str() {
        "off" | "error" => level,
        _ if is_level(&level) => format!("error,ratekeeper={level}"),
        _ => directive.to_owned(),
    }
}
