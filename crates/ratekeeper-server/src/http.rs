//! The HTTP listener: `/json`, `/v1/check`, `/v1/checks`, health.

mod check;
mod error;
mod health;
mod json;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, get, post};

pub(crate) use check::{explain, is_json};
pub(crate) use error::{ApiError, method_not_allowed, not_found};

use crate::app::App;
use crate::store::ServedStore;

/// Everything that the HTTP listener answers.
pub(crate) fn router<S: ServedStore>(app: Arc<App<S>>) -> Router {
    let body_bytes_max = app.bounds.body_bytes_max;
    Router::new()
        .route("/json", any(json::answer::<S>))
        .route("/v1/check", post(check::one::<S>))
        .route("/v1/checks", post(check::many::<S>))
        .route("/healthcheck", get(health::healthcheck::<S>))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz::<S>))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .with_state(app)
}
