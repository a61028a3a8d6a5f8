//! `/admin/v1/denials/log`: the keys with full denial logging, each for a while.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{JsonRejection, PathRejection};
use axum::extract::{Path, State};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::quotas::ChangedBy;
use crate::app::App;
use crate::http::ApiError;
use crate::logs::denials::{FOLLOWED_TIME_MAX, FollowedKey};

/// The most characters of a key.
const KEY_MAX: usize = 512;

/// the keys with full denial logging.
#[derive(Serialize, ToSchema)]
pub(super) struct FollowedList {
    keys: Vec<FollowedKey>,
}

/// The time for which a key is followed.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Follow {
    /// From 1 to 60.
    #[schema(minimum = 1, maximum = 60)]
    minutes: u64,
}

/// Lists the keys with full denial logging.
#[utoipa::path(
    get,
    path = "/admin/v1/denials/log",
    tag = "traffic",
    responses((status = 200, description = "the keys with full denial logging", body = FollowedList))
)]
pub(super) async fn list(State(app): State<Arc<App>>) -> Json<FollowedList> {
    Json(followed(&app))
}

/// Logs every denial of a key for a while: of `customer:acme` and of all descriptors that begin with it.
#[utoipa::path(
    put,
    path = "/admin/v1/denials/log/{key}",
    tag = "traffic",
    params(("key" = String, Path, description = "The first entries of a descriptor, as `/admin/v1/top` shows them")),
    request_body = Follow,
    responses((status = 200, description = "the keys with full denial logging", body = FollowedList))
)]
pub(super) async fn follow(
    State(app): State<Arc<App>>,
    ChangedBy(editor): ChangedBy,
    key: Result<Path<String>, PathRejection>,
    follow: Result<Json<Follow>, JsonRejection>,
) -> Result<Json<FollowedList>, ApiError> {
    let Path(key) = key.map_err(|error| ApiError::invalid("{key}", error.body_text()))?;
    let Json(Follow { minutes }) =
        follow.map_err(|error| ApiError::invalid("body", error.body_text()))?;
    if !(1..=KEY_MAX).contains(&key.len()) {
        let message = format!("expected 1 to {KEY_MAX} bytes");
        return Err(ApiError::invalid("{key}", message));
    }
    let most = FOLLOWED_TIME_MAX.as_secs() / 60;
    if !(1..=most).contains(&minutes) {
        let message = format!("expected 1 to {most}");
        return Err(ApiError::invalid("minutes", message));
    }
    let time = Duration::from_secs(minutes * 60);
    let followed_keys = app.config.denials.followed();
    followed_keys.follow(&key, time).map_err(|error| {
        let status = StatusCode::CONFLICT;
        ApiError::other(status, "TOO_MANY_KEYS", error.to_string())
    })?;
    tracing::warn!(
        key,
        minutes,
        by = editor.name,
        "all denials of a key are logged for a while"
    );
    Ok(Json(followed(&app)))
}

/// Ends that for a key.
#[utoipa::path(
    delete,
    path = "/admin/v1/denials/log/{key}",
    tag = "traffic",
    params(("key" = String, Path, description = "The key")),
    responses((status = 204, description = "Its denials are logged as any others"))
)]
pub(super) async fn end(
    State(app): State<Arc<App>>,
    ChangedBy(editor): ChangedBy,
    key: Result<Path<String>, PathRejection>,
) -> Result<StatusCode, ApiError> {
    let Path(key) = key.map_err(|error| ApiError::invalid("{key}", error.body_text()))?;
    match app.config.denials.followed().end(&key) {
        true => {
            let by = editor.name;
            tracing::warn!(
                key,
                by,
                "the denials of a key are logged as any others again"
            );
            Ok(StatusCode::NO_CONTENT)
        }
        false => {
            let message = "no such key is followed".to_owned();
            Err(ApiError::other(
                StatusCode::NOT_FOUND,
                "UNKNOWN_KEY",
                message,
            ))
        }
    }
}

fn followed(app: &App) -> FollowedList {
    let keys = app.config.denials.followed().list();
    FollowedList { keys }
}
