//! Denials: the requests, and who was denied by which rule.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A denied request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DeniedRequest {
    /// The time of the denial, as RFC 3339.
    pub time: String,
    /// The caller's `x-request-id`, else one made here.
    pub request_id: String,
    /// The protocol of the check: `http`, `rls` or `gateway`, for example.
    pub protocol: String,
    /// The domain of the rule.
    pub domain: String,
    /// The entry that names the tenant, or the first one of the descriptor: `api_key:~1f0c83aa5b92d07e`.
    pub key: String,
    /// The tenant as people know it: its value, or the last characters of a secret, `…x4f2`.
    pub tenant: String,
    /// The rule that denied; empty if the request brought its own limit.
    pub rule: String,
    /// The limit in words: `100 per 1m`.
    pub limit: String,
    /// The descriptor under the limit, secrets as fingerprints.
    pub scope: String,
    /// The method of the limited request; absent if the check does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub method: Option<String>,
    /// Its path, without the query; absent likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub path: Option<String>,
    /// The time until it would pass; absent if no wait helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_ms: Option<u64>,
    /// True if a failure mode denied it, not a counter.
    pub degraded: bool,
    /// False if it passed all the same, since the gateway is in shadow mode.
    pub enforced: bool,
}

/// The denials of one tenant by one rule, in the last hour.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct DenialGroup {
    /// The domain of the rule.
    pub domain: Box<str>,
    /// The id of the rule.
    pub rule: Box<str>,
    /// The limit in words: `100 per 1m`; empty if the rules no longer have it, or have several of the id, as overrides are.
    pub limit: String,
    /// The entry that names the tenant, or the first one of the descriptor; a secret is a fingerprint.
    pub key: Box<str>,
    /// The tenant as people know it: its value, or the last characters of a secret, `…x4f2`.
    pub tenant: String,
    /// `denied`; `would_be_denied` if the rule did not enforce its limit.
    pub kind: String,
    /// The reason why it did not: `shadow`, or `enforce: 10 %`. Absent for denied requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mode: Option<String>,
    /// The time since which the rule is so on this node: the node's start, if it was so then. Absent for denied requests.
    #[serde(
        with = "crate::admin_json::moments::option",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    pub mode_since: Option<u64>,
    /// Denials in the last 60 to 65 minutes.
    pub count: u64,
    /// The first of them: there was no hour without one since.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub since: u64,
    /// The last of them.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub last: u64,
    /// The nodes that denied.
    pub nodes: Vec<String>,
}
