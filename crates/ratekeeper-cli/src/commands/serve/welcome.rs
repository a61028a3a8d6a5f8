//! What is printed once everything listens: where, and three commands to try.

use super::sample::Sample;
use crate::output::{self, bytes, count};
use ratekeeper_rules::RuleSet;
use ratekeeper_server::Addresses;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// What the text tells about.
pub(crate) struct Welcome<'a> {
    pub(crate) rules: &'a RuleSet,
    pub(crate) path: &'a Path,
    /// In bytes.
    pub(crate) memory_limit: u64,
    pub(crate) addresses: Addresses,
    /// How this program was called, so that the commands to try can be pasted.
    pub(crate) program: &'a str,
}

impl Welcome<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "ratekeeper {}: {} in {} from {}, counters in memory ({} at most)\n\n",
            env!("CARGO_PKG_VERSION"),
            count(self.rules.rules().len(), "rule"),
            count(self.rules.domains().len(), "domain"),
            self.path.display(),
            bytes(self.memory_limit),
        );
        text.push_str(&self.places());
        text.push_str("\nTry:\n");
        for command in self.commands() {
            let _ = writeln!(text, "  {command}");
        }
        text
    }

    /// One line for each listener: `http listening on http://127.0.0.1:8080`.
    fn places(&self) -> String {
        let row = |what: &str, address: String, why: &str| {
            vec![
                what.to_owned(),
                "listening on".to_owned(),
                address,
                why.to_owned(),
            ]
        };
        let mut rows = vec![
            row(
                "gRPC",
                self.addresses.grpc.to_string(),
                "envoy.service.ratelimit.v3.RateLimitService",
            ),
            row(
                "HTTP",
                format!("http://{}", self.addresses.http),
                "/v1/check, /json, /healthcheck",
            ),
            row(
                "admin",
                format!("http://{}", self.addresses.admin),
                "/metrics, /rlconfig, /admin/v1",
            ),
        ];
        if let Some(metrics) = self.addresses.metrics {
            rows.push(row("metrics", format!("http://{metrics}"), "/metrics"));
        }
        output::table(&rows, 2)
    }

    fn commands(&self) -> [String; 3] {
        let (http, admin) = (
            reachable(self.addresses.http),
            reachable(self.addresses.admin),
        );
        let metrics = format!("curl -s http://{admin}/metrics | grep ratelimit_decisions_total");
        let Some(sample) = Sample::of(self.rules) else {
            return [
                format!("curl -s http://{http}/readyz"),
                metrics,
                format!("curl -s http://{admin}/rlconfig"),
            ];
        };
        let entry =
            |(key, value): &(String, String)| serde_json::json!({ "key": key, "value": value });
        let entries: serde_json::Value = sample.entries.iter().map(entry).collect();
        // Written out, because a map would put the domain last.
        let domain = serde_json::Value::from(sample.domain.as_str());
        let body = format!(r#"{{"domain":{domain},"descriptors":[{{"entries":{entries}}}]}}"#);
        let body = quoted(&body);
        let tries: Vec<String> = (1..=sample.denied_at)
            .map(|number| number.to_string())
            .collect();
        let tries = tries.join(" ");
        let entry = |(key, value): &(String, String)| format!("{key}={}", escaped(value));
        let entries: Vec<String> = sample.entries.iter().map(entry).collect();
        let (domain, entries) = (quoted(&sample.domain), quoted(&entries.join(",")));
        let program = quoted(self.program);
        [
            format!(
                "for i in {tries}; do curl -s http://{http}/v1/check -H content-type:application/json -d {body}; echo; done"
            ),
            metrics,
            format!("{program} rules explain --address http://{admin} {domain} {entries}"),
        ]
    }
}

/// Where this host reaches a listener: one that listens everywhere is on loopback too.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => address.set_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => address.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        }
    }
    address
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// As `rules explain` takes it for one value.
fn escaped(value: &str) -> String {
    value.replace('\\', r"\\").replace(',', r"\,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(
            quoted("./target/release/ratekeeper"),
            "./target/release/ratekeeper"
        );
        assert_eq!(quoted("endpoint=GET /x"), "'endpoint=GET /x'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn what_listens_everywhere_is_reached_on_loopback() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        assert_eq!(reachable(address("0.0.0.0:1")), address("127.0.0.1:1"));
        assert_eq!(reachable(address("[::]:1")), address("[::1]:1"));
        assert_eq!(reachable(address("192.0.2.1:1")), address("192.0.2.1:1"));
    }
}
