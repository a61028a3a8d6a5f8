//! The environment: our own `RATEKEEPER_*`, and what envoyproxy/ratelimit reads where we have a counterpart.

use super::layer::{Layers, Origin, Said};
use super::problem::{Problem, nearest};
use super::table::{PREFIX, SETTINGS, find};
use std::collections::BTreeMap;

/// Variables with our prefix that are no settings.
pub(crate) const OTHERS: [&str; 1] = [CONFIG];

/// Names the settings file.
pub(crate) const CONFIG: &str = "RATEKEEPER_CONFIG";

/// The incumbent's name for where its configuration lies. Under it every file is one of rules, whatever its name.
pub(crate) const RUNTIME_ROOT: &str = "RUNTIME_ROOT";

/// A copy of the environment, taken once at start; names and values that are not Unicode are left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// The process's own.
    pub(crate) fn of_process() -> Environment {
        let unicode = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Environment(unicode.collect())
    }

    /// One made of these pairs.
    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Environment {
        Environment(
            pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        )
    }

    /// A variable's value; one that is empty counts as not set.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// Puts the incumbent's variables and then ours over `layers`.
    pub(crate) fn put(&self, layers: &mut Layers, problems: &mut Vec<Problem>) {
        self.put_incumbents(layers);
        for setting in SETTINGS {
            let name = setting.variable();
            if let Some(text) = self.get(&name) {
                layers.put(
                    setting,
                    Said {
                        text: text.to_owned(),
                        origin: Origin::Variable(name),
                    },
                );
            }
        }
        for name in self.0.keys().filter(|name| name.starts_with(PREFIX)) {
            problems.extend(unknown(name));
        }
    }

    fn put_incumbents(&self, layers: &mut Layers) {
        self.put_address(layers, "http", "HOST", "PORT");
        self.put_address(layers, "grpc", "GRPC_HOST", "GRPC_PORT");
        self.put_address(layers, "admin", "DEBUG_HOST", "DEBUG_PORT");
        self.put_same(layers, "merge_domains", "MERGE_DOMAIN_CONFIG");
        self.put_same(layers, "log_level", "LOG_LEVEL");
        self.put_same(layers, "log_format", "LOG_FORMAT");
        self.put_same(layers, "shadow_mode", "SHADOW_MODE");
        self.put_same(layers, "quota_mode", "QUOTA_MODE");
        self.put_same(layers, "dynamic_metadata", "RESPONSE_DYNAMIC_METADATA");
        self.put_same(layers, "limit_header", "LIMIT_LIMIT_HEADER");
        self.put_same(layers, "remaining_header", "LIMIT_REMAINING_HEADER");
        self.put_same(layers, "reset_header", "LIMIT_RESET_HEADER");
        if self.is_true("LIMIT_RESPONSE_HEADERS_ENABLED") {
            put_text(
                layers,
                "response_headers",
                "LIMIT_RESPONSE_HEADERS_ENABLED",
                "limits".to_owned(),
            );
        }
        if self.is_true("USE_PROMETHEUS") {
            let text = self.get("PROMETHEUS_ADDR").unwrap_or(":9090").to_owned();
            put_text(layers, "metrics", "USE_PROMETHEUS", text);
        }
        if let Some(root) = self.get(RUNTIME_ROOT) {
            let part = |name: &str, default: &str| self.get(name).unwrap_or(default).to_owned();
            let path: std::path::PathBuf = [
                root.to_owned(),
                part("RUNTIME_SUBDIRECTORY", ""),
                part("RUNTIME_APPDIRECTORY", "config"),
            ]
            .iter()
            .filter(|part| !part.is_empty())
            .collect();
            put_text(
                layers,
                "rules",
                RUNTIME_ROOT,
                path.to_string_lossy().into_owned(),
            );
        }
    }

    /// The incumbent keeps hosts and ports apart; one of the two leaves the other as it stands.
    fn put_address(&self, layers: &mut Layers, key: &str, host: &'static str, port: &'static str) {
        let Some(setting) = find(key) else { return };
        let (said_host, said_port) = (self.get(host), self.get(port));
        let name = match (said_host, said_port) {
            (None, None) => return,
            (Some(_), None) => host.to_owned(),
            (None, Some(_)) => port.to_owned(),
            (Some(_), Some(_)) => format!("{host} and {port}"),
        };
        let now = layers.get(setting).text;
        let (host_now, port_now) = now.rsplit_once(':').unwrap_or((&now, "0"));
        let host = said_host.unwrap_or(host_now);
        let port = said_port.unwrap_or(port_now);
        let bare_v6 = host.contains(':') && !host.starts_with('[');
        let text = if bare_v6 {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        };
        layers.put(
            setting,
            Said {
                text,
                origin: Origin::Variable(name),
            },
        );
    }

    fn is_true(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|text| super::values::switch(text) == Ok(true))
    }

    fn put_same(&self, layers: &mut Layers, key: &str, name: &str) {
        if let Some(text) = self.get(name) {
            put_text(layers, key, name, text.to_owned());
        }
    }
}

fn put_text(layers: &mut Layers, key: &str, name: &str, text: String) {
    if let Some(setting) = find(key) {
        layers.put(
            setting,
            Said {
                text,
                origin: Origin::Variable(name.to_owned()),
            },
        );
    }
}

/// Refuses a variable that was most likely meant to be a setting.
///
/// Not every unknown one: beside a Kubernetes Service named `ratekeeper`, every pod is given `RATEKEEPER_PORT`,
/// `RATEKEEPER_SERVICE_HOST` and more of that kind, which must not keep the service from starting.
fn unknown(name: &str) -> Option<Problem> {
    let variables: Vec<String> = SETTINGS
        .iter()
        .map(super::table::Setting::variable)
        .collect();
    let known = || variables.iter().map(String::as_str).chain(OTHERS);
    let from_kubernetes =
        name.starts_with("RATEKEEPER_PORT") || name.starts_with("RATEKEEPER_SERVICE_");
    if from_kubernetes || known().any(|known| known == name) {
        return None;
    }
    let short = |name: &str| name.trim_start_matches(PREFIX).to_owned();
    let shorts: Vec<String> = known().map(short).collect();
    let meant = nearest(&short(name), shorts.iter().map(String::as_str))?;
    let message = format!("there is no setting of this name; did you mean {PREFIX}{meant}?");
    Some(Problem {
        place: name.to_owned(),
        message,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(pairs: &[(&str, &str)]) -> (Layers, Vec<String>) {
        let (mut layers, mut problems) = (Layers::defaults(), Vec::new());
        Environment::of(pairs).put(&mut layers, &mut problems);
        (layers, problems.iter().map(ToString::to_string).collect())
    }

    fn value(layers: &Layers, key: &str) -> (String, String) {
        let said = layers.get(find(key).expect("a known key"));
        (said.text, said.origin.to_string())
    }

    #[test]
    fn ours_go_before_the_incumbents() {
        let (layers, problems) = put(&[
            ("PORT", "9000"),
            ("RATEKEEPER_HTTP", ":7000"),
            ("GRPC_HOST", "::1"),
        ]);
        assert!(problems.is_empty());
        assert_eq!(
            value(&layers, "http"),
            (":7000".into(), "RATEKEEPER_HTTP".into())
        );
        assert_eq!(
            value(&layers, "grpc"),
            ("[::1]:8081".into(), "GRPC_HOST".into())
        );
    }

    #[test]
    fn the_incumbents_runtime_root_names_the_rules() {
        let (layers, _) = put(&[
            ("RUNTIME_ROOT", "/data"),
            ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ]);
        assert_eq!(
            value(&layers, "rules"),
            ("/data/ratelimit/config".into(), "RUNTIME_ROOT".into())
        );
    }

    #[test]
    fn a_slip_is_refused_and_what_kubernetes_adds_is_not() {
        let (_, problems) = put(&[
            ("RATEKEEPER_PROFLE", "envoy"),
            ("RATEKEEPER_PORT_8081_TCP", "tcp://10.0.0.1:8081"),
            ("RATEKEEPER_SERVICE_HOST", "10.0.0.1"),
        ]);
        assert_eq!(
            problems,
            [
                "RATEKEEPER_PROFLE: there is no setting of this name; did you mean RATEKEEPER_PROFILE?"
            ]
        );
    }
}
