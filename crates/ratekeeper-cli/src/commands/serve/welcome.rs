//! The banner printed once everything listens: the addresses, and three commands to try.

use super::sample::Sample;
use crate::output;
use ratekeeper_rules::RuleSet;
use ratekeeper_server::{Addresses, ListenAddress, ListenersTls, TlsConfig};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The facts about the gateway that the banner mentions.
pub(crate) struct InFront {
    pub(crate) tls: Option<TlsConfig>,
    /// The names or addresses of the services it forwards to.
    pub(crate) upstreams: String,
}

/// The facts that the banner mentions.
pub(crate) struct Welcome<'a> {
    pub(crate) rules: &'a RuleSet,
    /// Summary of what limits requests: the rules, and the place of the counters.
    pub(crate) limits: &'a str,
    /// The lines about the profile and about Envoy's protocol, each with its line end.
    pub(crate) profile: &'a str,
    pub(crate) addresses: &'a Addresses,
    pub(crate) tls: &'a ListenersTls,
    /// The gateway in front of a service, if there is one.
    pub(crate) gateway: Option<&'a InFront>,
    /// The name this program was called by, so that the commands to try can be pasted.
    pub(crate) program: &'a str,
}

impl Welcome<'_> {
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "ratekeeper {}: {}\n{}\n",
            env!("CARGO_PKG_VERSION"),
            self.limits,
            self.profile
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
        let mut rows = Vec::new();
        if let Some(grpc) = &self.addresses.grpc {
            let why = "envoy.service.ratelimit.v3.RateLimitService";
            rows.push(row("gRPC", grpc.to_string(), why));
        }
        if let Some(http) = &self.addresses.http {
            let why = "/v1/check, /v1/auth, /json, /healthcheck";
            rows.push(row("HTTP", url(http, self.tls.http.as_ref()), why));
        }
        if let Some((gateway, config)) = self.addresses.gateway.as_ref().zip(self.gateway) {
            let why = format!("forwards to {}", config.upstreams);
            rows.push(row("gateway", url(gateway, config.tls.as_ref()), &why));
        }
        rows.push(row(
            "admin",
            url(&self.addresses.admin, self.tls.admin.as_ref()),
            "/metrics, /rlconfig, /admin/v1",
        ));
        if let Some(metrics) = &self.addresses.metrics {
            rows.push(row(
                "metrics",
                url(metrics, self.tls.metrics.as_ref()),
                "/metrics",
            ));
        }
        output::table(&rows, 2)
    }

    fn commands(&self) -> [String; 3] {
        let admin = curl(&self.addresses.admin, self.tls.admin.as_ref());
        let metrics = format!("{admin}/metrics | grep ratelimit_decisions_total");
        if let Some((gateway, config)) = self.addresses.gateway.as_ref().zip(self.gateway) {
            let gateway = curl(gateway, config.tls.as_ref());
            return [format!("{gateway}/ -i"), metrics, format!("{admin}/readyz")];
        }
        let http = match &self.addresses.http {
            Some(http) => curl(http, self.tls.http.as_ref()),
            None => admin.clone(),
        };
        let Some(sample) = Sample::of(self.rules) else {
            return [
                format!("{http}/readyz"),
                metrics,
                format!("{admin}/rlconfig"),
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
                "for i in {tries}; do {http}/v1/check -H content-type:application/json -d {body}; echo; done"
            ),
            metrics,
            match self.tls.admin {
                // Whom `rules explain` would have to trust is not known here.
                Some(_) => format!("{admin}/rlconfig"),
                None => {
                    let address = quoted(&url(&reachable(&self.addresses.admin), None));
                    format!("{program} rules explain --admin {address} {domain} {entries}")
                }
            },
        ]
    }
}

/// The address of a listener: a URL, or a Unix socket.
fn url(address: &ListenAddress, tls: Option<&TlsConfig>) -> String {
    match (address, tls) {
        (ListenAddress::Tcp(address), None) => format!("http://{address}"),
        (ListenAddress::Tcp(address), Some(_)) => format!("https://{address}"),
        (ListenAddress::Unix(_), _) => address.to_string(),
    }
}

/// The beginning of a command that asks a listener, up to the path.
fn curl(address: &ListenAddress, tls: Option<&TlsConfig>) -> String {
    let url = match (address, tls) {
        (ListenAddress::Tcp(_), _) => url(&reachable(address), tls),
        (ListenAddress::Unix(_), None) => "http://localhost".to_owned(),
        (ListenAddress::Unix(_), Some(_)) => "https://localhost".to_owned(),
    };
    let mut words = vec!["curl -s".to_owned()];
    if let ListenAddress::Unix(path) = address {
        words.push(format!("--unix-socket {}", quoted(&path.to_string_lossy())));
    }
    if let Some(tls) = tls {
        // Whoever tries it out need not have its authority at hand.
        words.push("-k".to_owned());
        if tls.client_ca.is_some() {
            words.push("--cert CLIENT.pem --key CLIENT.key".to_owned());
        }
    }
    words.push(url);
    words.join(" ")
}

/// The address at which this host reaches a listener: one that listens everywhere is on loopback too.
fn reachable(address: &ListenAddress) -> ListenAddress {
    let ListenAddress::Tcp(mut address) = *address else {
        return address.clone();
    };
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => address.set_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => address.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        }
    }
    ListenAddress::Tcp(address)
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
    use ratekeeper_tls::TlsIdentity;

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
        let address =
            |text: &str| ListenAddress::Tcp(text.parse::<SocketAddr>().expect("an address"));
        assert_eq!(reachable(&address("0.0.0.0:1")), address("127.0.0.1:1"));
        assert_eq!(reachable(&address("[::]:1")), address("[::1]:1"));
        assert_eq!(reachable(&address("192.0.2.1:1")), address("192.0.2.1:1"));
    }

    #[test]
    fn commands_reach_sockets_and_those_that_encrypt() {
        let tcp = ListenAddress::Tcp(([0, 0, 0, 0], 80).into());
        let unix = ListenAddress::Unix("/run/a b.sock".into());
        let mut tls = TlsConfig {
            identity: TlsIdentity {
                certificate: "c".into(),
                key: "k".into(),
            },
            client_ca: None,
            client_names: Vec::new(),
        };
        assert_eq!(curl(&tcp, None), "curl -s http://127.0.0.1:80");
        assert_eq!(curl(&tcp, Some(&tls)), "curl -s -k https://127.0.0.1:80");
        tls.client_ca = Some("ca".into());
        assert_eq!(
            curl(&unix, Some(&tls)),
            "curl -s --unix-socket '/run/a b.sock' -k --cert CLIENT.pem --key CLIENT.key https://localhost"
        );
    }
}
