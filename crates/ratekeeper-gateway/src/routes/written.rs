//! The forms of an upstream in settings: a URL, a list of URLs, or a mapping.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use ratekeeper_core::duration::parse_duration;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::config::{HealthCheckConfig, UpstreamConfig};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Full {
    #[serde(alias = "url")]
    urls: Urls,
    ca: Option<PathBuf>,
    server_name: Option<String>,
    host: Option<String>,
    health_check: Option<HealthCheckConfig>,
}

/// One URL, or several.
struct Urls(Vec<String>);

impl UpstreamConfig {
    /// Makes the settings of the service at one URL.
    #[must_use]
    pub fn of(url: &str) -> Self {
        Self::at(vec![url.to_owned()])
    }

    const fn at(urls: Vec<String>) -> Self {
        Self {
            urls,
            ca: None,
            server_name: None,
            host: None,
            health_check: None,
        }
    }
}

// Written by hand, because serde's errors for untagged enums tell neither which variant was meant nor what is wrong.
impl<'de> Deserialize<'de> for UpstreamConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfUpstream)
    }
}

impl<'de> Deserialize<'de> for Urls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfUrls)
    }
}

struct OfUpstream;
struct OfUrls;

impl<'de> Visitor<'de> for OfUpstream {
    type Value = UpstreamConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a URL, a list of URLs, or a mapping with `urls`")
    }

    fn visit_str<E: Error>(self, url: &str) -> Result<UpstreamConfig, E> {
        Ok(UpstreamConfig::of(url))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, urls: A) -> Result<UpstreamConfig, A::Error> {
        OfUrls
            .visit_seq(urls)
            .map(|urls| UpstreamConfig::at(urls.0))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UpstreamConfig, A::Error> {
        let full = Full::deserialize(MapAccessDeserializer::new(map))?;
        Ok(UpstreamConfig {
            urls: full.urls.0,
            ca: full.ca,
            server_name: full.server_name,
            host: full.host,
            health_check: full.health_check,
        })
    }
}

impl<'de> Visitor<'de> for OfUrls {
    type Value = Urls;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a URL or a list of URLs")
    }

    fn visit_str<E: Error>(self, url: &str) -> Result<Urls, E> {
        Ok(Urls(vec![url.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, urls: A) -> Result<Urls, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(urls)).map(Urls)
    }
}

pub(super) const fn interval() -> Duration {
    Duration::from_secs(10)
}

pub(super) const fn timeout() -> Duration {
    Duration::from_secs(2)
}

pub(super) const fn unhealthy_threshold() -> u32 {
    3
}

pub(super) const fn healthy_threshold() -> u32 {
    2
}

pub(super) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span = parse_duration(&text).map_err(|error| {
        let message = format!("`{text}` is not a duration: {error}; write 3s, 250ms or 1m30s");
        D::Error::custom(message)
    })?;
    Ok(span.into())
}
