//! `GET /admin/v1/explain`: how a request would be decided, for addresses that people can paste.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use ratekeeper_limiter::{Check, ENTRY_BYTES_MAX, Explanation};
use ratekeeper_rules::Entry;

use super::options::Given;
use crate::app::App;
use crate::config::ENTRIES_MAX;
use crate::http::{ApiError, Received, explain};
use crate::protocol::v1::CheckRequest;

/// Explains a descriptor: `?domain=api&entry=api_key:abc&entry=path:/login`. Takes nothing. Several descriptors
/// go by POST.
#[utoipa::path(
    get,
    path = "/admin/v1/explain",
    tag = "explain",
    params(
        ("domain" = String, Query, description = "The domain of the rules"),
        ("entry" = Vec<String>, Query, description = "The entries of the descriptor in order, each as `key:value`"),
    ),
    responses((status = 200, description = "The rules that match, and what each would answer", body = Object))
)]
pub(super) async fn by_query(
    State(app): State<Arc<App>>,
    Given(pairs): Given<Vec<(String, String)>>,
) -> Result<Json<Explanation>, ApiError> {
    let (mut domain, mut entries) = ("", Vec::new());
    for (name, value) in &pairs {
        match name.as_str() {
            "domain" if domain.is_empty() => domain = value,
            "domain" => return Err(ApiError::invalid("?domain", "it is there twice")),
            "entry" => entries.push(
                entry(value).map_err(|wrong| ApiError::invalid("?entry", wrong.to_string()))?,
            ),
            _ => {
                let message = format!("there is no parameter {name:?}; expected domain and entry");
                return Err(ApiError::invalid("?", message));
            }
        }
    }
    if domain.is_empty() {
        return Err(ApiError::invalid(
            "?domain",
            "expected the domain of the rules",
        ));
    }
    if entries.is_empty() || entries.len() > ENTRIES_MAX {
        let message = format!("expected 1 to {ENTRIES_MAX} entries, each as KEY:VALUE");
        return Err(ApiError::invalid("?entry", message));
    }
    let check = Check::new(domain).descriptor(&entries);
    Ok(Json(app.explain(&check).await))
}

/// Explains a check. Takes nothing.
#[utoipa::path(
    post,
    path = "/admin/v1/explain",
    tag = "explain",
    request_body = CheckRequest,
    responses((status = 200, description = "The rules that match, and what each would answer", body = Object))
)]
pub(super) async fn by_body(received: Received) -> Result<Response, ApiError> {
    explain(received).await
}

/// A text that is not an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum WrongEntry<'a> {
    /// It has no colon.
    #[error("{0:?} is not an entry; write KEY:VALUE")]
    NoColon(&'a str),
    /// Nothing stands before the colon.
    #[error("the key must not be empty")]
    NoKey,
    /// It is longer than any entry of a check.
    #[error("at most {ENTRY_BYTES_MAX} bytes")]
    TooLong,
}

/// The entry that `text` writes as `key:value`, split at the first colon.
pub(super) fn entry(text: &str) -> Result<Entry<'_>, WrongEntry<'_>> {
    let Some((key, value)) = text.split_once(':') else {
        return Err(WrongEntry::NoColon(text));
    };
    if key.is_empty() {
        return Err(WrongEntry::NoKey);
    }
    if text.len() > ENTRY_BYTES_MAX {
        return Err(WrongEntry::TooLong);
    }
    Ok(Entry { key, value })
}
