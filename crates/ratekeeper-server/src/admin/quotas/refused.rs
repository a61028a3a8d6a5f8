//! Errors of the quota store, as answers.

use std::error::Error as _;
use std::time::Duration;

use http::StatusCode;
use ratekeeper_quota::{QuotaDocument, QuotaError};
use ratekeeper_rules::ListedTenant;

use crate::http::ApiError;

/// The time after which to try again when the database does not answer.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// Refuses requests about quotas where no database keeps them.
pub(in crate::admin) fn no_database() -> ApiError {
    let message = "this node has no quota database: start it with --data-dir DIR and a `tenant:` in the rules, or with \
         --quotas sqlite://PATH or postgres://…; without one, `tenants:` files say who is on which plan";
    ApiError::other(StatusCode::NOT_IMPLEMENTED, "NO_QUOTA_DATABASE", message)
}

/// The answer to an error of the quota store.
pub(in crate::admin) fn refusal(error: &QuotaError) -> ApiError {
    match error {
        QuotaError::Invalid(bad) => ApiError::invalid(bad.field(), bad.to_string()),
        QuotaError::NotFound => unknown_tenant(),
        QuotaError::Changed { .. } => {
            let status = StatusCode::PRECONDITION_FAILED;
            ApiError::other(status, "VERSION_MISMATCH", error.to_string())
        }
        error => {
            let why = error.source().map(ToString::to_string);
            tracing::warn!(%error, why, "a request about quotas has failed");
            let message = format!("{error}; checks continue with the quotas known to this node");
            if error.is_temporary() {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return ApiError::other(status, "QUOTAS_UNAVAILABLE", message)
                    .with_retry_after(RETRY_AFTER);
            }
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::other(status, "QUOTAS_BROKEN", message)
        }
    }
}

/// Says that the quota store does not have the tenant, and what files give it: a change begins with that.
pub(super) fn unknown_tenant_but(listed: Option<&ListedTenant>) -> ApiError {
    let error = unknown_tenant();
    let Some(listed) = listed else { return error };
    let document = QuotaDocument::of(&listed.quotas);
    // Texts and numbers alone: nothing in there can fail.
    error.with_member("listed", serde_json::to_value(document).unwrap_or_default())
}

/// Says that the quota store does not have the tenant.
pub(in crate::admin) fn unknown_tenant() -> ApiError {
    let message = "the quota database does not have this tenant, which is on the default plan or as files list it";
    ApiError::other(StatusCode::NOT_FOUND, "UNKNOWN_TENANT", message)
}
