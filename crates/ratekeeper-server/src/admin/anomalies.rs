//! `GET /admin/v1/anomalies`: rules and callers with unusual growth.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ratekeeper_limiter::Growth;
use serde::Serialize;
use utoipa::ToSchema;

use crate::admin_json::AnomalyEntry;
use crate::app::App;

/// The rules and callers with far more requests on this node than in their own hour before.
#[derive(Serialize, ToSchema)]
pub(super) struct Anomalies {
    /// Those that go on, the largest first.
    active: Vec<AnomalyEntry>,
    /// Those that have ended since the start of this node, the last first; 100 at most.
    ended: Vec<AnomalyEntry>,
    /// The rules and callers that are watched.
    watched: usize,
    /// The node.
    node: String,
}

/// Lists unusual growth, which is reported and limits nothing.
#[utoipa::path(
    get,
    path = "/admin/v1/anomalies",
    tag = "traffic",
    responses((status = 200, description = "Rules and callers with unusual growth on this node", body = Anomalies))
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<Anomalies> {
    let watch = app.limiter.growth();
    let entries = |growth: Vec<Growth>| growth.into_iter().map(AnomalyEntry::from).collect();
    Json(Anomalies {
        active: entries(watch.map(|watch| watch.active()).unwrap_or_default()),
        ended: entries(watch.map(|watch| watch.ended()).unwrap_or_default()),
        watched: watch.map_or(0, |watch| watch.watched()),
        node: app.config.denials.node().to_owned(),
    })
}
