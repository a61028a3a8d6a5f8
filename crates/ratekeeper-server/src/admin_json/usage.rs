//! The use that a tenant makes of its limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The usage of one tenant.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Usage {
    /// Its value, or the end of a secret one.
    pub tenant: String,
    /// Its domain.
    pub domain: String,
    /// The plan of the tenant; `custom` if it has overrides alone. Absent in a domain without plans.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The window of the tenant's own limit, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_window: Option<Span>,
    /// By descriptor: `default`, or the entries after the tenant's. Where several limits are on one descriptor,
    /// the name ends with `#` and the window, and with the algorithm if two windows are as long.
    pub usage: BTreeMap<String, Used>,
    /// Descriptors whose values differ from request to request. Their counters are shown with
    /// `?descriptor=KEY:VALUE`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dynamic: Vec<String>,
    /// True if the domain has more descriptors than are read for one answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// The use of one limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Used {
    /// Hits used; of a leased limit, with those that nodes hold in advance.
    pub used: u64,
    /// The most that it holds: the quota, or the burst of a bucket.
    pub limit: u64,
    /// Hits that are left.
    pub remaining: u64,
    /// Hits by which a post-paid bucket is below zero; absent if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debt: Option<u64>,
    /// The id of the rule.
    pub rule: String,
    /// The part that the rule has in decisions now.
    pub mode: String,
    /// The algorithm by its name in rules.
    pub algorithm: String,
    /// The window of the limit.
    pub window: Span,
    /// Milliseconds until more is left.
    pub reset_after_ms: u64,
    /// Present if the limit is leased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leased: Option<Leased>,
    /// The override with twice the limit, as `quota set` takes it, without dates; None if it would take other limits away,
    /// and once serialized.
    #[serde(skip)]
    pub(crate) raise: Option<String>,
}

/// The leases on a counter.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Leased {
    /// Hits that this node holds and has not spent; they are among the used ones, as are those of other nodes.
    pub held_by_this_node: u64,
}

/// The window of a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Span {
    /// Its length: `1m`.
    pub length: String,
    /// Its place now, by the clock of this node; absent for limits that have no window: buckets, and
    /// concurrency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// Its end, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
}

impl Usage {
    /// The same, of a tenant that goes by the name `shown`: its value is a secret that the question did not have.
    pub(crate) fn shown_as(self, shown: &str) -> Self {
        Self {
            tenant: shown.to_owned(),
            ..self
        }
    }
}
