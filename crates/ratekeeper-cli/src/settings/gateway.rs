//! The settings of the gateway.

use super::checks::Checks;
use super::layer::RawValue;
use super::nested::{self, NestedError};
use super::value_error::ValueError;
use super::values::{path, within};
use ratekeeper_gateway::{OnClientGone, RouteConfig, RoutesConfig, UpstreamConfig};
use ratekeeper_rules::{Diagnostic, Options, Source};
use ratekeeper_tower::RequestUsage;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The name of the upstream that is given as a URL alone.
const ONLY: &str = "upstream";

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogTo {
    Stdout,
    File(PathBuf),
}

impl Checks<'_> {
    pub(super) fn routes(&mut self) -> RoutesConfig {
        let values = self.values;
        let mut upstreams = values.upstreams.clone();
        if let Some(only) = &*values.upstream {
            if !upstreams.is_empty() {
                let message = "it means nothing beside `upstreams`; keep one of the two";
                self.refuse(&values.upstream.said, message);
            }
            upstreams.insert(ONLY.to_owned(), only.clone());
        }
        RoutesConfig {
            upstreams,
            routes: values.routes.clone(),
            connect_timeout: *values.upstream_connect_timeout,
            response_timeout: *values.upstream_timeout,
            requests_max: Some(*values.upstream_requests_max),
            waiting_max: Some(*values.upstream_queue_max),
            address_share_percent: Some(*values.upstream_address_share),
        }
    }
}

/// Takes a URL for an upstream; whether it is one is judged with all others.
pub(super) fn upstream(url: &str) -> Result<UpstreamConfig, Infallible> {
    Ok(UpstreamConfig::of(url))
}

/// Parses upstreams. The files they name count from the file they are in.
pub(super) fn upstreams(said: &RawValue) -> Result<BTreeMap<String, UpstreamConfig>, NestedError> {
    let mut upstreams: BTreeMap<String, UpstreamConfig> = read(&said.text)?;
    for ca in upstreams.values_mut().filter_map(|it| it.ca.as_mut()) {
        if let Some(text) = ca.to_str() {
            *ca = said.origin.full_path(text);
        }
    }
    Ok(upstreams)
}

/// A route as settings write it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenRoute {
    host: Option<String>,
    path: Option<String>,
    upstream: String,
    on_client_gone: Option<OnClientGone>,
    #[serde(default, deserialize_with = "usage")]
    usage: Option<RequestUsage>,
}

impl From<WrittenRoute> for RouteConfig {
    fn from(route: WrittenRoute) -> Self {
        Self {
            host: route.host,
            path: route.path,
            upstream: route.upstream,
            on_client_gone: route.on_client_gone,
            usage: route.usage,
        }
    }
}

pub(super) fn routes(text: &str) -> Result<Vec<RouteConfig>, NestedError> {
    let routes: Vec<WrittenRoute> = read(text)?;
    Ok(routes.into_iter().map(RouteConfig::from).collect())
}

/// Reads `usage:` as a file of rules would have it, so that both mean and refuse the same.
fn usage<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<RequestUsage>, D::Error> {
    let written = Value::deserialize(deserializer)?;
    // JSON is YAML.
    let text = format!(
        "domain: route\nusage: {written}\ndescriptors: [ {{ key: any, rate_limit: {{ window: 1d, limit: 1, post_paid: true }} }} ]\n"
    );
    let source = Source {
        name: "usage".to_owned(),
        text,
    };
    let loaded = ratekeeper_rules::load(&[source], &Options::default());
    let loaded = loaded.map_err(|refused| D::Error::custom(in_words(refused.errors())))?;
    // A key that is misspelt, which would mean nothing.
    if !loaded.warnings.is_empty() {
        return Err(D::Error::custom(in_words(&loaded.warnings)));
    }
    let usage = loaded.rules.domain("route").and_then(|it| it.usage());
    Ok(usage.map(|usage| RequestUsage(Arc::clone(usage))))
}

/// Reads a list or a mapping; an error in it names its place there.
fn read<T: DeserializeOwned + Default>(text: &str) -> Result<T, NestedError> {
    if text.is_empty() {
        return Ok(T::default());
    }
    nested::deserialize(nested::parse(text)?, "")
}

/// Parses the time to wait for an upstream, 1 ms to 24 h.
pub(super) fn patience(text: &str) -> Result<Duration, ValueError> {
    within(Duration::from_millis(1)..=Duration::from_hours(24))(text)
}

/// Parses the destination of the access log.
pub(super) fn access_log(said: &RawValue) -> Result<Option<LogTo>, Infallible> {
    match said.text.as_str() {
        "-" => Ok(Some(LogTo::Stdout)),
        _ => Ok(path(said)?.map(LogTo::File)),
    }
}

fn in_words(diagnostics: &[Diagnostic]) -> String {
    let words = diagnostics.iter().map(|one| match &one.help {
        Some(help) => format!("{}: {help}", one.message),
        None => one.message.clone(),
    });
    words.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::routes;

    #[test]
    fn the_usage_of_a_route_is_what_a_file_of_rules_has() {
        let text = "[ { upstream: a, usage: tokens }, { upstream: b, usage: { json: { /in: 1, /out: 4 }, reserve: 9 } }, { upstream: c } ]";
        let read = routes(text).expect("they are routes");
        let has: Vec<_> = read.iter().map(|route| route.usage.is_some()).collect();
        assert_eq!(has, [true, true, false]);
        let own = read[1].usage.as_ref().expect("it has its own");
        assert_eq!((own.0.fields.len(), own.0.reserve), (2, 9));
    }

    #[test]
    fn a_usage_that_means_nothing_is_refused_with_its_place() {
        for (usage, message) in [
            ("{ json: usage.total_tokens }", "a pointer begins with `/`"),
            ("token", "`usage` is `tokens`, or a mapping"),
            ("{}", "`usage` does not say where"),
            ("~", "`usage` is empty"),
            ("{ json: /a, jsn: /b }", "jsn"),
        ] {
            let text = format!("[ {{ upstream: a, usage: {usage} }} ]");
            let error = routes(&text).expect_err(usage).to_string();
            assert!(error.contains(message), "{usage}: {error}");
            assert!(error.starts_with("[0].usage"), "{error}");
        }
    }
}
