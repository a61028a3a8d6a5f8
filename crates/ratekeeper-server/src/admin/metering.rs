//! `GET /admin/v1/export/usage`: the calls of tenants by minute, day or month, for billing.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use ratekeeper_quota::{
    BulkFormat, CallCursor, CallLine, USAGE_PAGE_MAX, UsageCursor, UsageFilter, UsageLine,
    UsagePeriod,
};
use ratekeeper_rules::time::Rfc3339;
use serde::Deserialize;
use utoipa::IntoParams;

use super::options::{Given, limit, parsed, refuse_domain_alone};
use super::quotas::{NEXT_CURSOR, no_database, refusal, tenant};
use crate::app::App;
use crate::http::ApiError;

/// The microseconds of a minute.
const MINUTE: u64 = 60_000_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct MeteringOptions {
    /// `jsonl` or `csv`.
    format: Option<String>,
    /// `day` or `month`, in UTC: a line for each tenant and period, on all nodes, where each call counts once.
    by: Option<String>,
    /// The first minute, as a time; all that is kept if absent.
    from: Option<Rfc3339>,
    /// The minute after the last.
    until: Option<Rfc3339>,
    /// Only calls of this tenant.
    #[serde(alias = "api_key")]
    tenant: Option<String>,
    /// The domain of that tenant, where several have tenants.
    domain: Option<String>,
    /// At most so many lines, up to 10,000; `x-next-cursor` tells where the others begin.
    limit: Option<u64>,
    /// The `x-next-cursor` of the answer before.
    cursor: Option<String>,
}

/// Writes the calls of tenants: a line for each tenant, rule, minute and start of a node; or with `by` one for each tenant and
/// period.
#[utoipa::path(
    get,
    path = "/admin/v1/export/usage",
    tag = "usage",
    params(MeteringOptions),
    responses((status = 200, description = "The calls", body = String, content_type = "application/x-ndjson"))
)]
pub(super) async fn export(
    State(app): State<Arc<App>>,
    Given(options): Given<MeteringOptions>,
) -> Result<Response, ApiError> {
    let quotas = app.config.quotas.as_ref().ok_or_else(no_database)?;
    let format = parsed("?format", options.format.as_deref())?;
    let format = format.unwrap_or(BulkFormat::JsonLines);
    let most = limit(options.limit, USAGE_PAGE_MAX, 1..=USAGE_PAGE_MAX)?;
    let by: Option<UsagePeriod> = parsed("?by", options.by.as_deref())?;
    refuse_domain_alone(options.domain.as_deref(), options.tenant.as_deref())?;
    let named = options.tenant.as_deref().map(|named| {
        let snapshot = app.limiter.snapshot();
        tenant(quotas, snapshot.rules(), options.domain.as_deref(), named)
    });
    let named = named
        .transpose()
        .map_err(|error| error.about("{tenant}", "?tenant"))?;
    if let (Some(from), Some(until)) = (options.from, options.until)
        && until.0 <= from.0
    {
        return Err(ApiError::invalid("?until", "must be later than ?from"));
    }
    let minute = |time: Option<Rfc3339>| time.map(|time| time.0.as_micros() / MINUTE);
    let filter = UsageFilter {
        tenant: named.map(|id| (id.domain, id.hash)),
        from: minute(options.from).unwrap_or(0),
        until: minute(options.until).unwrap_or(u64::MAX),
    };
    let text = match options.cursor {
        None => match by {
            None => UsageLine::head(format),
            Some(_) => CallLine::head(format),
        },
        Some(_) => "",
    };
    let mut text = text.to_owned();
    let next = match by {
        None => {
            let cursor: Option<UsageCursor> = parsed("?cursor", options.cursor.as_deref())?;
            let page = quotas.store.usage_page(&filter, cursor.as_ref(), most);
            let page = page.await.map_err(|error| refusal(&error))?;
            text.extend(page.lines.iter().map(|line| line.written(format)));
            page.next.map(|next| next.to_string())
        }
        Some(by) => {
            whole_hours(options.from, "?from")?;
            whole_hours(options.until, "?until")?;
            let cursor: Option<CallCursor> = parsed("?cursor", options.cursor.as_deref())?;
            let page = quotas.store.calls_by(&filter, by, cursor.as_ref(), most);
            let page = page.await.map_err(|error| refusal(&error))?;
            text.extend(page.lines.iter().map(|line| line.written(format)));
            page.next.map(|next| next.to_string())
        }
    };
    let kind = [(CONTENT_TYPE, format.content_type())];
    Ok(match next {
        Some(next) => (kind, [(NEXT_CURSOR, next)], text).into_response(),
        None => (kind, text).into_response(),
    })
}

/// Refuses a time within an hour: days and months are made of hours.
fn whole_hours(time: Option<Rfc3339>, field: &'static str) -> Result<(), ApiError> {
    match time {
        Some(time) if !time.0.as_micros().is_multiple_of(60 * MINUTE) => Err(ApiError::invalid(
            field,
            "must be a full hour with ?by: calls are added up by hour",
        )),
        _ => Ok(()),
    }
}
