//! The content of requests.

use ratekeeper_proto::WireEntry;
use ratekeeper_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratekeeper_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use ratekeeper_proto::ratekeeper::v1;
use serde_json::{Value, json};

/// The placeholder for the key in the value of an entry.
pub(crate) const KEY_PLACEHOLDER: &str = "{key}";

/// A request with one descriptor, with a placeholder for the key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    domain: String,
    entries: Vec<(String, String)>,
}

impl Question {
    /// A request in `domain` with a descriptor of `entries`. Each `{key}` in a value is replaced by
    /// the request's key; all keys have the same length.
    #[must_use]
    pub fn new(domain: &str, entries: &[(impl AsRef<str>, impl AsRef<str>)]) -> Self {
        Self {
            domain: domain.to_owned(),
            entries: entries
                .iter()
                .map(|(key, value)| (key.as_ref().to_owned(), value.as_ref().to_owned()))
                .collect(),
        }
    }

    /// Returns true if a value has a placeholder for the key.
    #[must_use]
    pub fn has_place(&self) -> bool {
        self.entries
            .iter()
            .any(|(_, value)| value.contains(KEY_PLACEHOLDER))
    }

    fn about(&self, key: u32) -> impl Iterator<Item = (&str, String)> {
        let name = name(key);
        self.entries
            .iter()
            .map(move |(key, value)| (key.as_str(), value.replace(KEY_PLACEHOLDER, &name)))
    }

    pub(crate) fn envoy(&self, key: u32) -> RateLimitRequest {
        let entries = self.about(key).map(|(key, value)| WireEntry {
            key: key.to_owned(),
            value,
        });
        RateLimitRequest {
            domain: self.domain.clone(),
            descriptors: vec![RateLimitDescriptor {
                entries: entries.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    pub(crate) fn check(&self, key: u32) -> v1::CheckRequest {
        let entries = self.about(key).map(|(key, value)| WireEntry {
            key: key.to_owned(),
            value,
        });
        v1::CheckRequest {
            domain: self.domain.clone(),
            descriptors: vec![v1::Descriptor {
                entries: entries.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }

    /// The JSON form, which `/v1/check` and `/json` both accept.
    pub(crate) fn json(&self, key: u32) -> Value {
        let entries: Vec<Value> = self
            .about(key)
            .map(|(key, value)| json!({ "key": key, "value": value }))
            .collect();
        json!({ "domain": self.domain, "descriptors": [{ "entries": entries }] })
    }
}

/// The name of the key with that number. All names have the same length, so that all keys cost the
/// same.
pub(crate) fn name(key: u32) -> String {
    format!("key-{key:012}")
}
