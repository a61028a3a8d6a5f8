//! The settings of the gateway.

use super::layer::Origin;
use super::meaning::percent;
use super::nested::NestedError;
use super::typed::Typed;
use super::value_error::ValueError;
use super::{ServiceSettings, nested, values};
use ratekeeper_gateway::{LogFormat, RoutesConfig, UpstreamConfig};
use ratekeeper_server::{ListenAddress, TlsConfig};
use ratekeeper_tower::LayerMode;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the upstream that is given as a URL alone.
const ONLY: &str = "upstream";

/// The gateway's settings.
#[derive(Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) listen: ListenAddress,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) routes: RoutesConfig,
    /// In bytes.
    pub(crate) body_max: u64,
    /// Of one HTTP/2 connection.
    pub(crate) connection_requests_max: u32,
    pub(crate) limits: LayerMode,
    /// The longest time a request is held back; `waiting_max` is the most requests held at a time.
    pub(crate) wait_max: Duration,
    pub(crate) waiting_max: u64,
    /// The service that decides, unless this process does.
    pub(crate) service: Option<ServiceSettings>,
    pub(crate) access_log: Option<LogTo>,
    pub(crate) access_log_format: LogFormat,
    /// True if the service listens beside it over gRPC; `opens_http` says the same of HTTP. An address has to be given.
    pub(crate) opens_grpc: bool,
    pub(crate) opens_http: bool,
}

/// The destination of the access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogTo {
    Stdout,
    File(PathBuf),
}

impl Typed<'_> {
    pub(super) fn gateway(&mut self) -> GatewaySettings {
        let formats = [("json", LogFormat::Json), ("combined", LogFormat::Combined)];
        let modes = [
            ("on", LayerMode::On),
            ("shadow", LayerMode::Shadow),
            ("off", LayerMode::Off),
        ];
        GatewaySettings {
            listen: self.get("listen", values::listen_address),
            tls: self.tls("listen"),
            routes: self.routes(),
            body_max: self.get("request_body_max", values::size),
            connection_requests_max: self.get("connection_requests_max", |text| {
                values::number(text, 1..=1_000)
            }),
            limits: self.get("limits", |text| values::one_of(text, &modes)),
            wait_max: self.get("wait_max", |text| {
                // No client waits longer for an answer.
                values::duration_within(text, Duration::ZERO..=Duration::from_hours(1))
            }),
            waiting_max: self.get("waiting_max", |text| values::number(text, 0..=1_000_000)),
            service: self.service(),
            access_log: self.access_log(),
            access_log_format: self.get("access_log_format", |text| values::one_of(text, &formats)),
            opens_grpc: self.asked_for("grpc").is_some(),
            opens_http: self.asked_for("http").is_some(),
        }
    }

    fn routes(&mut self) -> RoutesConfig {
        let only = self.get("upstream", |text| {
            values::maybe(text, |text| Ok::<_, ValueError>(UpstreamConfig::of(text)))
        });
        let mut upstreams: BTreeMap<String, UpstreamConfig> = self.get("upstreams", read);
        let origin = self.layers.said("upstreams").origin;
        for ca in upstreams.values_mut().filter_map(|it| it.ca.as_mut()) {
            if let Some(text) = ca.to_str() {
                *ca = origin.full_path(text);
            }
        }
        if let Some(only) = only {
            if !upstreams.is_empty() {
                self.refuse(
                    "upstream",
                    "it means nothing beside `upstreams`; keep one of the two",
                );
            }
            upstreams.insert(ONLY.to_owned(), only);
        }
        RoutesConfig {
            upstreams,
            routes: self.get("routes", read),
            connect_timeout: self.get("upstream_connect_timeout", patience),
            response_timeout: self.get("upstream_timeout", patience),
            requests_max: self.get("upstream_requests_max", |text| {
                values::number(text, 1..=REQUESTS_MAX).map(Some)
            }),
            waiting_max: self.get("upstream_queue_max", |text| {
                values::number(text, 0..=REQUESTS_MAX).map(Some)
            }),
            address_share_percent: self
                .get("upstream_address_share", |text| percent(text).map(Some)),
        }
    }

    fn access_log(&mut self) -> Option<LogTo> {
        match self.layers.said("access_log").text.as_str() {
            "-" => Some(LogTo::Stdout),
            _ => self.path("access_log").map(LogTo::File),
        }
    }

    /// The place where `key` was set; [`None`] if it has its default.
    pub(super) fn asked_for(&self, key: &str) -> Option<Origin> {
        let origin = self.layers.said(key).origin;
        (origin != Origin::Default).then_some(origin)
    }
}

/// Reads a list or a mapping; an error in it names its place there.
fn read<T: DeserializeOwned + Default>(text: &str) -> Result<T, NestedError> {
    if text.is_empty() {
        return Ok(T::default());
    }
    nested::deserialize(nested::parse(text)?, "")
}

/// The time to wait for an upstream, 1 ms to 24 h.
fn patience(text: &str) -> Result<Duration, ValueError> {
    values::duration_within(text, Duration::from_millis(1)..=Duration::from_hours(24))
}

/// The most requests that settings can speak of: each of them holds a connection and memory.
const REQUESTS_MAX: usize = 1_000_000;
