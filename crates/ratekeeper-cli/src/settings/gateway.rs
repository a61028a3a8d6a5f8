//! The settings of the gateway.

use super::checks::Checks;
use super::layer::RawValue;
use super::nested::{self, NestedError};
use super::value_error::ValueError;
use super::values::{path, within};
use ratekeeper_gateway::{RouteConfig, RoutesConfig, UpstreamConfig};
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::PathBuf;
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

pub(super) fn routes(text: &str) -> Result<Vec<RouteConfig>, NestedError> {
    read(text)
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
