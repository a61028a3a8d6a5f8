//! `GET /admin/v1/top` and `/admin/v1/denials`: who is limited, and by which rule.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use ratekeeper_limiter::{ALLOWED_SAMPLE, TopDecision, TopKey, TopWindow};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::app::App;
use crate::denials::DeniedRequest;
use crate::http::ApiError;
use crate::store::ServedStore;

/// The most keys in one answer.
const KEYS_MAX: usize = 100;

/// The keys in an answer to a request that does not say.
const KEYS_DEFAULT: usize = 10;

/// The parameters of the query.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[serde(default)]
    #[param(inline)]
    window: Window,
    #[serde(default)]
    #[param(inline)]
    decision: Decided,
    domain: Option<String>,
    rule: Option<String>,
    limit: Option<usize>,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Window {
    #[default]
    Minute,
    Hour,
}

#[derive(Clone, Copy, Default, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Decided {
    #[default]
    Denied,
    Allowed,
}

/// The keys with the most requests, the largest count first.
#[derive(Serialize, ToSchema)]
pub(super) struct Top {
    window: Window,
    decision: Decided,
    /// Requests for each one that is counted: 1 if all are.
    sampled: u32,
    keys: Vec<KeyEntry>,
}

/// One of them.
#[derive(Serialize, ToSchema)]
pub(super) struct KeyEntry {
    domain: Box<str>,
    rule: Box<str>,
    key: Box<str>,
    count: u64,
    /// The most by which `count` may be off because there were too many keys.
    error: u64,
}

impl From<TopKey> for KeyEntry {
    fn from(top: TopKey) -> Self {
        let TopKey {
            domain,
            rule,
            key,
            count,
            error,
        } = top;
        Self {
            domain: (*domain).into(),
            rule: (*rule).into(),
            key: (*key).into(),
            count,
            error,
        }
    }
}

/// Lists the keys with the most requests.
#[utoipa::path(
    get,
    path = "/admin/v1/top",
    tag = "traffic",
    params(Options),
    responses((status = 200, description = "The keys, the largest count first", body = Top))
)]
pub(super) async fn show<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    options: Result<Query<Options>, QueryRejection>,
) -> Result<Json<Top>, ApiError> {
    let Query(options) = options.map_err(|error| ApiError::invalid("?", error.body_text()))?;
    let most = within(options.limit, KEYS_DEFAULT)?;
    let window = match options.window {
        Window::Minute => TopWindow::Minute,
        Window::Hour => TopWindow::Hour,
    };
    let (decision, sampled) = match options.decision {
        Decided::Denied => (TopDecision::Denied, 1),
        Decided::Allowed => (TopDecision::Allowed, ALLOWED_SAMPLE),
    };
    let is = |wanted: &Option<String>, found: &str| {
        let wanted = wanted.as_deref();
        wanted.is_none_or(|wanted| wanted == found)
    };
    let keys = app
        .limiter
        .top()
        .top(window, decision, most, |domain, rule| {
            is(&options.domain, domain) && is(&options.rule, rule)
        });
    Ok(Json(Top {
        window: options.window,
        decision: options.decision,
        sampled,
        keys: keys.into_iter().map(KeyEntry::from).collect(),
    }))
}

/// The keys that were denied most in the last minute.
pub(super) fn keys<S: ServedStore>(app: &App<S>, most: usize) -> Vec<KeyEntry> {
    let top = app.limiter.top();
    let keys = top.top(TopWindow::Minute, TopDecision::Denied, most, |_, _| true);
    keys.into_iter().map(KeyEntry::from).collect()
}

/// The parameters of the query for denials.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct DenialOptions {
    domain: Option<String>,
    rule: Option<String>,
    /// The beginning of the denied descriptor, as `/admin/v1/top` shows keys.
    key: Option<String>,
    limit: Option<usize>,
}

/// A sample of the latest denials, the last first.
#[derive(Serialize, ToSchema)]
pub(super) struct Denials {
    denials: Vec<DeniedRequest>,
}

/// Lists the latest denials.
#[utoipa::path(
    get,
    path = "/admin/v1/denials",
    tag = "traffic",
    params(DenialOptions),
    responses((status = 200, description = "A sample of the denials, the last first", body = Denials))
)]
pub(super) async fn denials<S: ServedStore>(
    State(app): State<Arc<App<S>>>,
    options: Result<Query<DenialOptions>, QueryRejection>,
) -> Result<Json<Denials>, ApiError> {
    let Query(options) = options.map_err(|error| ApiError::invalid("?", error.body_text()))?;
    let most = within(options.limit, KEYS_MAX)?;
    let is_wanted = |denied: &DeniedRequest| {
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_deref().is_none_or(|wanted| wanted == found)
        };
        let key = options.key.as_deref().unwrap_or_default();
        is(&options.domain, &denied.domain)
            && is(&options.rule, &denied.rule)
            && denied.scope.starts_with(key)
    };
    Ok(Json(Denials {
        denials: app.denials.latest(most, is_wanted),
    }))
}

fn within(limit: Option<usize>, default: usize) -> Result<usize, ApiError> {
    let limit = limit.unwrap_or(default);
    match (1..=KEYS_MAX).contains(&limit) {
        true => Ok(limit),
        false => {
            let message = format!("expected 1 to {KEYS_MAX}");
            Err(ApiError::invalid("?limit", message))
        }
    }
}
