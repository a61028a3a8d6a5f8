//! `GET /admin/v1/nodes`: the nodes that share a quota database, and what is in force on each.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ratekeeper_quota::{KnownNode, NodeReport, with_causes};
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::fleet;

/// The nodes that share a quota database.
#[derive(Serialize, ToSchema)]
pub(super) struct FleetNodes {
    /// `fleet`: all nodes that use the quota database; `node`: this one alone, since it has none or it does not answer.
    scope: &'static str,
    /// The reason why other nodes are not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    warning: Option<String>,
    nodes: Vec<FleetNode>,
}

/// A node, by its own report.
#[derive(Serialize, ToSchema)]
struct FleetNode {
    node: String,
    /// The address of its admin API, as the node has it.
    admin: String,
    /// The version of Ratekeeper.
    version: String,
    /// `live`, or `away` if it has missed reports: stopped without a goodbye, or cut off from the database.
    state: &'static str,
    /// True for the node that answers.
    is_self: bool,
    /// The revision of the rules in force, the same on nodes of one version whose files have the same rules.
    rules_revision: String,
    /// The number of the last change in the quota database that is in force.
    quotas_revision: u64,
    /// The number of the last change of tokens that is in force.
    tokens_revision: u64,
    /// The number of the last change of switches that is in force.
    switches_revision: u64,
    /// The tokens that count on this node alone.
    local_tokens: u64,
    #[serde(serialize_with = "crate::moments::serialize")]
    #[schema(value_type = String, format = DateTime)]
    started_at: u64,
    /// The age of its report, in seconds.
    reported_s_ago: u64,
}

/// Lists the nodes that share the quota database.
#[utoipa::path(
    get,
    path = "/admin/v1/nodes",
    tag = "about",
    responses((status = 200, description = "The nodes", body = FleetNodes))
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<FleetNodes> {
    let Some(quotas) = &app.config.quotas else {
        let why =
            "without a quota database a node knows no others, and tokens and switches are its own";
        return Json(alone(&app, why.to_owned()));
    };
    let nodes = match quotas.store.nodes().await {
        Ok(nodes) => nodes,
        Err(error) => {
            let why = with_causes(&error);
            return Json(alone(&app, format!("the other nodes are not known: {why}")));
        }
    };
    let instance = &*app.instance;
    Json(FleetNodes {
        scope: "fleet",
        warning: None,
        nodes: nodes
            .into_iter()
            .map(|node| entry(node, instance))
            .collect(),
    })
}

fn alone(app: &App, warning: String) -> FleetNodes {
    let report = fleet::report(app);
    FleetNodes {
        scope: "node",
        warning: Some(warning),
        nodes: vec![of_report(report, true, 0, "live")],
    }
}

fn entry(node: KnownNode, instance: &str) -> FleetNode {
    let state = match node.is_live() {
        true => "live",
        false => "away",
    };
    let is_self = node.report.instance == instance;
    of_report(node.report, is_self, node.age.as_secs(), state)
}

fn of_report(
    report: NodeReport,
    is_self: bool,
    reported_s_ago: u64,
    state: &'static str,
) -> FleetNode {
    FleetNode {
        node: report.node,
        admin: report.admin,
        version: report.program,
        state,
        is_self,
        rules_revision: report.rules,
        quotas_revision: report.quotas_version,
        tokens_revision: report.tokens_version,
        switches_revision: report.switches_version,
        local_tokens: report.local_tokens,
        started_at: report.started_at,
        reported_s_ago,
    }
}
