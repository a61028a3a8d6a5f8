//! Whether this node lives and wants requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use ratekeeper_limiter::Snapshot;
use serde::Serialize;

use crate::app::App;
use crate::chores::Chore;
use crate::store::ServedStore;

/// The incumbent's: 200 `OK`, or 500 and nothing.
pub(super) async fn healthcheck<S: ServedStore>(State(app): State<Arc<App<S>>>) -> Response {
    if app.is_ready() {
        (StatusCode::OK, "OK").into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// The process answers, so it lives.
pub(crate) async fn livez() -> &'static str {
    "OK"
}

#[derive(Serialize)]
struct Readiness {
    ready: bool,
    /// `serving`, `draining` or `no rules`.
    state: &'static str,
    rules: Rules,
    /// What went wrong beside answering, since the start.
    faults: Vec<String>,
    /// The share of the last ten seconds' decisions that failure modes gave, by store: 0 to 1.
    degraded_ratio: BTreeMap<Box<str>, f64>,
}

#[derive(Serialize)]
struct Rules {
    loaded: bool,
    accepted: u64,
    refused: u64,
    /// Why the files as they are now are not in force; null if they are.
    error: Option<String>,
}

fn faults<S: ServedStore>(app: &App<S>, snapshot: &Snapshot) -> Vec<String> {
    let failed = app
        .chores
        .all()
        .into_iter()
        .filter(|chore| chore.failures() > 0);
    let told = |chore: &Chore| {
        let times = chore.failures();
        format!(
            "{} ended early ({times} so far) and was begun again: see the log",
            chore.name
        )
    };
    failed
        .map(told)
        .chain(app.limiter.store().faults())
        .chain(app.degraded.faults(snapshot))
        .chain(app.telling().iter().flat_map(|part| part.faults()))
        .collect()
}

/// 200 if requests should be sent here, else 503; and what became of the rules. A refused
/// change leaves the node ready: it decides by the last good rules.
pub(crate) async fn readyz<S: ServedStore>(State(app): State<Arc<App<S>>>) -> Response {
    let ready = app.is_ready();
    let reloads = app.reloads.borrow().clone();
    let state = match (app.is_leaving(), ready) {
        (true, _) => "draining",
        (false, true) => "serving",
        (false, false) => "no rules",
    };
    let rules = Rules {
        loaded: reloads.is_loaded(),
        accepted: reloads.accepted,
        refused: reloads.refused,
        error: reloads.error.map(|error| error.to_string()),
    };
    let snapshot = app.limiter.snapshot();
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        Json(Readiness {
            ready,
            state,
            rules,
            faults: faults(&app, &snapshot),
            degraded_ratio: app.degraded.shares(&snapshot).into_iter().collect(),
        }),
    )
        .into_response()
}
