//! The HTTP listener: `/json`, our own API under `/v1`, `/v1/auth`, `/v1/limits`, health.

mod auth;
pub(crate) mod error;
mod health;
mod json;
mod json_body;
mod limits;
pub(crate) mod media_type;
mod openapi;
pub(crate) mod pages;
mod query;
mod root;
mod v1;

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::routing::{any, get, post};
use axum::{Router, middleware};

use error::bound_reading;
pub(crate) use error::{ApiError, method_not_allowed, not_found, refuse_large};
pub(crate) use health::{faults, livez, readyz, switched};
pub(crate) use json_body::read_json;
pub(crate) use openapi::{Errors, HttpApi, TokenScheme};
pub(crate) use query::Given;
pub(crate) use v1::{Received, explain};

use crate::app::App;

/// The routes of the HTTP listener.
pub(crate) fn router(app: Arc<App>) -> Router {
    let body_bytes_max = app.config.bounds.body_bytes_max;
    let reading_room = app.reading_room.clone();
    Router::new()
        .route("/", get(root::answer))
        .route("/openapi.json", get(openapi::show))
        .route("/v1/check", post(v1::check))
        .route("/v1/checks", post(v1::checks))
        .route("/v1/peek", post(v1::peek))
        .route("/v1/acquire", post(v1::acquire))
        .route("/v1/release", post(v1::release))
        .route("/v1/renew", post(v1::renew))
        .route("/v1/reserve", post(v1::reserve))
        .route("/v1/commit", post(v1::commit))
        .route("/v1/cancel", post(v1::cancel))
        .route("/v1/refund", post(v1::refund))
        .route("/v1/limit", post(v1::limit))
        .route("/v1/limits", get(limits::answer).post(v1::limits))
        .route("/healthcheck", get(health::healthcheck))
        .route("/livez", get(health::livez))
        .route("/readyz", get(health::readyz_in_public))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(body_bytes_max, refuse_large))
        // Its clients are to have a denial instead.
        .route("/json", any(json::answer))
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(middleware::from_fn_with_state(reading_room, bound_reading))
        // The body is the original request's, and it is not read here.
        .route("/v1/auth", any(auth::answer))
        .with_state(app)
}
