//! `/admin/v1/quotas`: plans and overrides of tenants in the quota database.

mod asked;
mod bulk;
mod list;
mod listed;
mod refused;
mod slips;

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::{CACHE_CONTROL, ETAG, HeaderName, HeaderValue};
use ratekeeper_quota::{QuotaDocument, QuotaError, TenantDocument, TenantPut, TenantRecord};
use ratekeeper_rules::time::Rfc3339;
use serde::Serialize;
use utoipa::ToSchema;

use super::old_names::OldNames;
use super::options::OfDomain;
use crate::app::App;
use crate::http::{ApiError, read_json};
use asked::{Asked, Conditions, TenantInPath};
pub(super) use asked::{ChangedBy, HASH, tenant, unclear};
pub(super) use bulk::{
    __path_export, __path_import, IMPORT_BYTES_MAX, NEXT_CURSOR, export, import,
};
pub(super) use list::{__path_list, list};
pub(super) use refused::{no_database, refusal};

/// Keeps caches from an answer that changes although nobody changes the tenant.
const NO_STORE: [(HeaderName, &str); 1] = [(CACHE_CONTROL, "no-store")];

/// A tenant whose usage was reset.
#[derive(Serialize, ToSchema)]
struct ResetAnswer {
    tenant: String,
    hash: String,
    domain: String,
    /// The number of times that its usage was reset.
    epoch: u32,
    /// The number of the change.
    version: u64,
    updated_at: Rfc3339,
}

/// Shows the plans and overrides of a tenant.
#[utoipa::path(
    get,
    path = "/admin/v1/quotas/{tenant}",
    tag = "quotas",
    params(TenantInPath, OfDomain),
    responses((status = 200, description = "The tenant", body = TenantDocument))
)]
pub(super) async fn show(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, ApiError> {
    let (store, tenant, named) = (&asked.quotas.store, &asked.tenant, asked.named.as_deref());
    let found = store.get(&tenant.domain, tenant.hash).await;
    match found.map_err(|error| refusal(&error))? {
        // The plan in it changes with time and with the rules, under the same entity tag.
        Some(record) => Ok((NO_STORE, answer(&app, &record, named)).into_response()),
        None => {
            let snapshot = app.limiter.snapshot();
            let listed = listed::listed(tenant, named, (store, snapshot.rules()));
            Err(refused::unknown_tenant_but(listed.as_ref()))
        }
    }
}

/// Gives a tenant plans and overrides in place of those that it has.
#[utoipa::path(
    put,
    path = "/admin/v1/quotas/{tenant}",
    tag = "quotas",
    params(TenantInPath, OfDomain, Conditions),
    request_body = QuotaDocument,
    responses((status = 200, description = "The tenant as it is now", body = TenantDocument))
)]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    asked: Asked,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let body = body?;
    let document: QuotaDocument = read_json(&body)?;
    let quotas = document.quotas();
    let quotas = quotas.map_err(|bad| ApiError::invalid(bad.field(), bad.to_string()))?;
    let snapshot = Arc::clone(&app.limiter.snapshot());
    let (store, named) = (&asked.quotas.store, asked.named.as_deref());
    let listed = listed::listed(&asked.tenant, named, (store, snapshot.rules()));
    let put = TenantPut {
        tenant: asked.tenant,
        quotas,
        begins: document.effective_at.map(|time| time.0),
        listed,
    };
    let written = store
        .put(&put, asked.expected, &asked.editor, snapshot.rules())
        .await
        .map_err(|error| match &error {
            QuotaError::Invalid(bad) => ApiError::invalid(document.field(bad), bad.to_string()),
            error => refusal(error),
        })?;
    asked.quotas.put_in_force(written.record.version).await;
    let now = app.limiter.clock().now();
    let whom = (named, put.listed.as_ref());
    let mut warnings = slips::warnings(&written, whom, store, snapshot.rules(), now).await;
    warnings.extend(OldNames::of_json(&body).warnings());
    Ok(answer_with(&app, &written.record, named, warnings))
}

/// Takes a tenant's plans and overrides away.
#[utoipa::path(
    delete,
    path = "/admin/v1/quotas/{tenant}",
    tag = "quotas",
    params(TenantInPath, OfDomain, Conditions),
    responses((status = 204, description = "They are gone"))
)]
pub(super) async fn remove(asked: Asked) -> Result<StatusCode, ApiError> {
    let (quotas, tenant) = (&asked.quotas, &asked.tenant);
    let removed = quotas
        .store
        .delete(&tenant.domain, tenant.hash, asked.expected, &asked.editor)
        .await
        .map_err(|error| refusal(&error))?;
    quotas.put_in_force(removed.version).await;
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets the usage of a tenant.
#[utoipa::path(
    post,
    path = "/admin/v1/quotas/{tenant}/reset",
    tag = "quotas",
    params(TenantInPath, OfDomain, Conditions),
    responses((status = 200, description = "Its counters start over", body = ResetAnswer))
)]
pub(super) async fn reset(asked: Asked) -> Result<Response, ApiError> {
    let quotas = &asked.quotas;
    let reset = quotas
        .store
        .reset(&asked.tenant, asked.expected, &asked.editor)
        .await;
    let record = reset.map_err(|error| refusal(&error))?;
    quotas.put_in_force(record.version).await;
    let tag = tag(&record);
    let answer = ResetAnswer {
        tenant: asked.named.unwrap_or(record.id.shown),
        hash: record.id.hash.to_string(),
        domain: record.id.domain,
        epoch: record.quotas.epoch,
        version: record.version,
        updated_at: Rfc3339(record.updated_at),
    };
    Ok(([(ETAG, tag)], Json(answer)).into_response())
}

fn answer(app: &App, record: &TenantRecord, named: Option<&str>) -> Response {
    answer_with(app, record, named, Vec::new())
}

fn answer_with(
    app: &App,
    record: &TenantRecord,
    named: Option<&str>,
    warnings: Vec<String>,
) -> Response {
    let snapshot = app.limiter.snapshot();
    let now = app.limiter.clock().now();
    let document = TenantDocument::of(record, named, snapshot.rules(), now);
    let document = TenantDocument {
        warnings,
        ..document.with_own(record)
    };
    ([(ETAG, tag(record))], Json(document)).into_response()
}

/// The entity tag of a tenant: the number of its last change.
fn tag(record: &TenantRecord) -> HeaderValue {
    let tag = HeaderValue::from_str(&format!("\"{}\"", record.version));
    // Digits between quotes are a header.
    tag.unwrap_or(HeaderValue::from_static("\"\""))
}
