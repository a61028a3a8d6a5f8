//! The admin listener: metrics, rules, explanations, an index. Loopback only, as long as it
//! asks nobody who they are; the metrics alone may be served elsewhere.

mod loopback;
mod metrics;

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, State};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Router, middleware};
use http::StatusCode;
use http::header::CONTENT_TYPE;

use crate::app::App;
use crate::http::{ApiError, explain, method_not_allowed, not_found};
use crate::store::ServedStore;

const INDEX: &str = "<!doctype html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Ratekeeper</title></head><body>
<h1>Ratekeeper</h1>
<ul>
<li><a href=\"/metrics\">/metrics</a>: counts, for Prometheus</li>
<li><a href=\"/rlconfig\">/rlconfig</a>: the limits in force</li>
<li>POST /admin/v1/explain: how a check would be decided, and why</li>
</ul>
</body></html>
";

/// Everything that the admin listener answers, to loopback names only.
pub(crate) fn router<S: ServedStore>(app: Arc<App<S>>) -> Router {
    let body_bytes_max = app.bounds.body_bytes_max;
    Router::new()
        .route("/", get(async || Html(INDEX)))
        .route("/metrics", get(show_metrics::<S>))
        .route("/rlconfig", get(show_rules::<S>))
        .route("/admin/v1/explain", post(explain::<S>))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(middleware::from_fn(loopback::only))
        .with_state(app)
}

/// The metrics alone, for scrapers on other hosts.
pub(crate) fn metrics_router<S: ServedStore>(app: Arc<App<S>>) -> Router {
    Router::new()
        .route("/metrics", get(show_metrics::<S>))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .with_state(app)
}

async fn show_metrics<S: ServedStore>(State(app): State<Arc<App<S>>>) -> Response {
    match metrics::text(&app) {
        Ok(text) => ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::other(status, "INTERNAL", format!("metrics: {error}")).into_response()
        }
    }
}

async fn show_rules<S: ServedStore>(State(app): State<Arc<App<S>>>) -> String {
    app.limiter.snapshot().rules().rlconfig()
}
