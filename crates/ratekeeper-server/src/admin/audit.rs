//! `GET /admin/v1/audit`: the trail of changes.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ratekeeper_quota::{AuditDocument, AuditFilter};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::options::{Given, limit, refuse_domain_alone};
use super::quotas::{no_database, refusal, tenant};
use crate::app::App;
use crate::http::ApiError;

/// The number of changes in one answer if none is asked for.
const PAGE: u64 = 100;

/// The most changes in one answer.
const PAGE_MAX: u64 = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditOptions {
    /// Only changes of this tenant.
    #[serde(alias = "api_key")]
    tenant: Option<String>,
    /// The domain of that tenant, where several have tenants.
    domain: Option<String>,
    /// Only changes after this one, the oldest first.
    after: Option<u64>,
    /// The `next_cursor` of the answer before: only changes before this one, the newest first.
    cursor: Option<u64>,
    /// At most so many changes, up to 1,000.
    limit: Option<u64>,
}

/// A page of the trail.
#[derive(Serialize, ToSchema)]
pub(super) struct AuditList {
    changes: Vec<AuditDocument>,
    /// Asks for the next page: as `cursor`, or as `after` if the oldest come first. Absent if there are no more.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<u64>,
}

/// Lists changes, the newest first.
#[utoipa::path(
    get,
    path = "/admin/v1/audit",
    tag = "audit",
    params(AuditOptions),
    responses((status = 200, description = "A page of changes", body = AuditList))
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    Given(options): Given<AuditOptions>,
) -> Result<Json<AuditList>, ApiError> {
    let quotas = app.config.quotas.as_ref().ok_or_else(no_database)?;
    let most = limit(options.limit, PAGE, 1..=PAGE_MAX)?;
    if options.after.is_some() && options.cursor.is_some() {
        let message = "it means nothing beside after";
        return Err(ApiError::invalid("?cursor", message));
    }
    for (name, version) in [("?after", options.after), ("?cursor", options.cursor)] {
        if version.is_some_and(|version| i64::try_from(version).is_err()) {
            return Err(ApiError::invalid(name, "no change has so large a number"));
        }
    }
    refuse_domain_alone(options.domain.as_deref(), options.tenant.as_deref())?;
    let filter = AuditFilter {
        after: options.after.unwrap_or(0),
        before: options.cursor,
        tenant: match &options.tenant {
            None => None,
            Some(named) => {
                let snapshot = app.limiter.snapshot();
                let domain = options.domain.as_deref();
                let id = tenant(quotas, snapshot.rules(), domain, named)
                    .map_err(|error| error.about("{tenant}", "?tenant"))?;
                Some((id.domain, id.hash))
            }
        },
        newest_first: options.after.is_none(),
    };
    let rows = quotas.store.audit_of(&filter, most).await;
    let rows = rows.map_err(|error| refusal(&error))?;
    let is_full = rows.len() as u64 == most;
    let last = rows.last().map(|row| row.version);
    Ok(Json(AuditList {
        next_cursor: last.filter(|last| is_full && (!filter.newest_first || *last > 1)),
        changes: rows.into_iter().map(AuditDocument::from).collect(),
    }))
}
