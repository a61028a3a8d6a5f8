//! The nodes that an answer is of, and those that share a quota database.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The nodes that an answer is of.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct ToldBy {
    /// The nodes whose denials are among the groups, this one first.
    pub nodes: Vec<NodeEntry>,
    /// Nodes whose denials are not, because there are too many.
    pub nodes_left_out: u64,
    /// Tenants and rules that other nodes do not tell, because they have too many.
    pub groups_left_out: u64,
    /// The reason why only this node's denials are told; absent if those of all nodes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub only_this_node: Option<String>,
}

/// A node whose list is merged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct NodeEntry {
    /// Its name.
    pub name: String,
    /// Milliseconds since it laid out its list.
    pub age_ms: u64,
}

/// The nodes that share a quota database.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FleetNodes {
    /// `fleet`: all nodes that use the quota database; `node`: this one alone, since it has none or it does not answer.
    pub scope: String,
    /// The reason why other nodes are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub warning: Option<String>,
    /// The nodes.
    pub nodes: Vec<FleetNode>,
}

/// A node, by its own report.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct FleetNode {
    /// Its name.
    pub node: String,
    /// The address of its admin API, as the node has it.
    pub admin: String,
    /// The version of Ratekeeper.
    pub version: String,
    /// `live`, or `away` if it has missed reports: stopped without a goodbye, or cut off from the database.
    pub state: String,
    /// True for the node that answers.
    pub is_self: bool,
    /// The revision of the rules in force, the same on nodes of one version whose files have the same rules.
    pub rules_revision: String,
    /// The number of the last change in the quota database that is in force.
    pub quotas_revision: u64,
    /// The number of the last change of tokens that is in force.
    pub tokens_revision: u64,
    /// The number of the last change of switches that is in force.
    pub switches_revision: u64,
    /// The tokens that count on this node alone.
    pub local_tokens: u64,
    /// The time at which it started.
    #[serde(with = "crate::admin_json::moments")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: u64,
    /// The age of its report, in seconds.
    pub reported_s_ago: u64,
}

impl NodeEntry {
    pub(crate) fn new(name: &str, age: Duration) -> Self {
        Self {
            name: name.to_owned(),
            age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
