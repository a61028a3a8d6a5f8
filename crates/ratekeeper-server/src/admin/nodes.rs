//! `GET /admin/v1/nodes`: the nodes that share a quota database, and what is in force on each.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ratekeeper_quota::{KnownNode, NodeReport, with_causes};

use crate::admin_json::{FleetNode, FleetNodes};
use crate::app::App;
use crate::fleet;

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
        scope: "fleet".to_owned(),
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
        scope: "node".to_owned(),
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
        state: state.to_owned(),
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
