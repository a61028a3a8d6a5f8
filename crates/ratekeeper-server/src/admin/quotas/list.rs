//! `GET /admin/v1/quotas`: the tenants of the quota database, in pages.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ratekeeper_quota::{ListCursor, ListFilter, PAGE_MAX, QuotaStore, TenantDocument};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::refused::{no_database, refusal};
use crate::admin::options::{Given, limit, parsed};
use crate::app::App;
use crate::http::ApiError;

/// The number of tenants in one answer if none is asked for.
const PAGE: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct ListOptions {
    /// Only tenants of this domain.
    domain: Option<String>,
    /// Only tenants that are on this plan, now or at another time; with `custom`, those that have overrides alone.
    #[serde(alias = "tier")]
    plan: Option<String>,
    /// Only tenants that have overrides, or only those that have none.
    overrides: Option<bool>,
    /// At most so many tenants, up to 500.
    limit: Option<usize>,
    /// The `next_cursor` of the answer before.
    cursor: Option<String>,
}

/// A page of tenants.
#[derive(Serialize, ToSchema)]
pub(in crate::admin) struct TenantList {
    quotas: Vec<TenantDocument>,
    /// Asks for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// Lists tenants, by domain and hash.
#[utoipa::path(
    get,
    path = "/admin/v1/quotas",
    tag = "quotas",
    params(ListOptions),
    responses((status = 200, description = "A page of tenants", body = TenantList))
)]
pub(in crate::admin) async fn list(
    State(app): State<Arc<App>>,
    Given(options): Given<ListOptions>,
) -> Result<Json<TenantList>, ApiError> {
    let quotas = app.config.quotas.as_ref().ok_or_else(no_database)?;
    let most = limit(options.limit, PAGE, 1..=PAGE_MAX)?;
    let cursor: Option<ListCursor> = parsed("?cursor", options.cursor.as_deref())?;
    let filter = ListFilter {
        domain: options.domain,
        plan: options.plan,
        has_overrides: options.overrides,
    };
    let page = quotas.store.list(&filter, cursor.as_ref(), most).await;
    let page = page.map_err(|error| refusal(&error))?;
    if page.records.is_empty() && cursor.is_none() {
        refuse_unknown(&app, &quotas.store, filter.domain.as_deref()).await?;
    }
    let snapshot = app.limiter.snapshot();
    let now = app.limiter.clock().now();
    let records = page.records.iter();
    Ok(Json(TenantList {
        quotas: records
            .map(|record| TenantDocument::of(record, None, snapshot.rules(), now))
            .collect(),
        next_cursor: page.next.as_ref().map(ToString::to_string),
    }))
}

/// Refuses a domain that neither the rules have nor a tenant in the database: an empty list would be taken for an answer.
/// No name means all domains.
pub(super) async fn refuse_unknown(
    app: &App,
    store: &QuotaStore,
    domain: Option<&str>,
) -> Result<(), ApiError> {
    let Some(name) = domain.filter(|name| !name.is_empty() && app.is_loaded()) else {
        return Ok(());
    };
    if has_rules(app, name) {
        return Ok(());
    }
    // The list may be empty because of what else was asked for.
    let filter = ListFilter {
        domain: Some(name.to_owned()),
        ..ListFilter::default()
    };
    let page = store.list(&filter, None, 1).await;
    match page.map_err(|error| refusal(&error))?.records.is_empty() {
        true => Err(ApiError::invalid("?domain", "there is no such domain")),
        false => Ok(()),
    }
}

/// Returns true if there are rules of that domain, or were until they were refused.
fn has_rules(app: &App, domain: &str) -> bool {
    let snapshot = app.limiter.snapshot();
    let rules = snapshot.rules();
    rules.domain(domain).is_some() || rules.refused_domains().contains(domain)
}
