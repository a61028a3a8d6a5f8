//! `GET /admin/v1/reloads`: the latest loads of the rules, and what each changed.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::reload::ReloadEntry;

/// The latest loads of the rules since the start, the last first; 20 at most.
#[derive(Serialize, ToSchema)]
pub(super) struct Reloads {
    reloads: Vec<ReloadEntry>,
}

/// Lists the latest loads of the rules.
#[utoipa::path(
    get,
    path = "/admin/v1/reloads",
    tag = "rules",
    responses((status = 200, description = "The latest loads, the last first", body = Reloads))
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<Reloads> {
    let status = app.reloads.borrow();
    let reloads = status.history.entries().cloned();
    Json(Reloads {
        reloads: reloads.collect(),
    })
}
