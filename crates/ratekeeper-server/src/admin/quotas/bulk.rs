//! Many tenants at once: `/admin/v1/import/quotas` and `/admin/v1/export/quotas`.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, WARNING};
use ratekeeper_quota::{
    BadTenantLine, BulkFormat, BulkLine, BulkTenant, LineFault, ListCursor, ListFilter, PAGE_MAX,
    PutAllError, QuotaError, QuotaStore, TenantPut, bulk_head, read_tenants,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::asked::ChangedBy;
use super::list::refuse_unknown;
use super::listed::lost;
use super::refused::{no_database, refusal};
use crate::admin::old_names::OldNames;
use crate::admin::options::{Given, limit, parsed};
use crate::admin_json::Imported;
use crate::app::App;
use crate::http::ApiError;

/// The most tenants of one import: they are changed together, and others wait.
const TENANTS_MAX: usize = 10_000;

/// The warning about tenants that had more from files.
const LOST: &str = "files give some of these tenants plans or overrides that are not in the import: what files say does not \
                    count while the quota database has a tenant";

/// The most bytes of one import.
pub(in crate::admin) const IMPORT_BYTES_MAX: usize = 8 << 20;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct ImportOptions {
    /// True to check the tenants and change nothing.
    #[serde(default)]
    dry_run: bool,
}

/// Gives tenants plans and overrides, all of them or none.
#[utoipa::path(
    post,
    path = "/admin/v1/import/quotas",
    tag = "quotas",
    params(ImportOptions),
    request_body(content((String = "application/x-ndjson"), (String = "text/csv"))),
    responses((status = 200, description = "The tenants have them", body = Imported))
)]
pub(in crate::admin) async fn import(
    State(app): State<Arc<App>>,
    Given(options): Given<ImportOptions>,
    ChangedBy(editor): ChangedBy,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let quotas = app.config.quotas.clone().ok_or_else(no_database)?;
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    let body = body?;
    let text = std::str::from_utf8(&body);
    let text = text.map_err(|error| ApiError::invalid("body", error.to_string()))?;
    let format = format_of(&headers);
    let lines = read_tenants(format, text).map_err(|bad| wrong_line(&bad))?;
    if lines.len() > TENANTS_MAX {
        let message = format!("expected at most {TENANTS_MAX} tenants");
        return Err(ApiError::invalid("body", message));
    }
    let old_names = OldNames::of_file(format, text);
    let snapshot = Arc::clone(&app.limiter.snapshot());
    let rules = snapshot.rules();
    let mut puts = Vec::with_capacity(lines.len());
    for line in &lines {
        let put = line.put(rules, quotas.store.key());
        puts.push(put.map_err(|bad| wrong_line(&bad))?);
    }
    refuse_twice(&lines, &puts)?;
    let refused = |error: &PutAllError| match (error.at.and_then(|at| lines.get(at)), &error.source)
    {
        (Some(bulk), QuotaError::Invalid(bad)) => {
            let field = bulk.tenant.quotas.field(bad);
            ApiError::invalid(
                format!("line {}: {field}", bulk.line_of(bad)),
                bad.to_string(),
            )
        }
        (_, error) => refusal(error),
    };
    if options.dry_run {
        let checked = quotas.store.check_all(&puts, rules).await;
        checked.map_err(|error| refused(&error))?;
        return Ok(told(Imported::of(puts.len(), []), old_names));
    }
    let written = quotas.store.put_all(&puts, &editor, rules).await;
    let written = written.map_err(|error| refused(&error))?;
    if let Some(last) = written.iter().map(|written| written.record.version).max() {
        quotas.put_in_force(last).await;
    }
    let outcomes = written
        .iter()
        .map(|written| (written.is_changed, written.is_new));
    let imported = Imported::of(written.len(), outcomes);
    let now = app.limiter.clock().now();
    let mut pairs = written.iter().zip(&puts);
    let is_lost = pairs.any(|(written, put)| lost(written, put.listed.as_ref(), now).is_some());
    let mut response = told(imported, old_names);
    if is_lost {
        warn(&mut response, LOST);
    }
    Ok(response)
}

/// Refuses a tenant that has two lines.
fn refuse_twice(lines: &[BulkLine], puts: &[TenantPut]) -> Result<(), ApiError> {
    // By value here and by hash there, or with and without the only domain, it is the same tenant.
    let mut seen = HashSet::new();
    let names = puts.iter().map(|put| (&put.tenant.domain, put.tenant.hash));
    let mut named = lines.iter().zip(names);
    match named.find(|(_, name)| !seen.insert(*name)) {
        None => Ok(()),
        Some((line, _)) => Err(wrong_line(&BadTenantLine {
            line: line.line,
            field: String::new(),
            fault: LineFault::Twice,
        })),
    }
}

/// The answer, with a warning about names of earlier versions in the file.
fn told(imported: Imported, old_names: OldNames) -> Response {
    let mut response = Json(imported).into_response();
    old_names.add_to(&mut response);
    response
}

/// Adds a warning to those in the header.
fn warn(response: &mut Response, warning: &str) {
    let earlier = response.headers().get(WARNING);
    let earlier = earlier.and_then(|value| value.to_str().ok());
    let warning = format!("299 - \"{warning}\"");
    let all: Vec<_> = earlier.into_iter().chain([&*warning]).collect();
    // Words of ours between quotes are a header.
    if let Ok(value) = HeaderValue::from_str(&all.join(", ")) {
        response.headers_mut().insert(WARNING, value);
    }
}

impl Imported {
    /// Counts the outcomes: whether each tenant was changed, and is new.
    fn of(tenants: usize, outcomes: impl IntoIterator<Item = (bool, bool)>) -> Self {
        let mut imported = Self {
            tenants,
            created: 0,
            updated: 0,
            unchanged: 0,
        };
        for outcome in outcomes {
            match outcome {
                (true, true) => imported.created += 1,
                (true, false) => imported.updated += 1,
                (false, _) => imported.unchanged += 1,
            }
        }
        imported
    }
}

/// The format that the content type names; JSON lines if it says JSON.
fn format_of(headers: &HeaderMap) -> BulkFormat {
    let named = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = named.and_then(|kind| kind.split(';').next());
    match essence.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("text/csv")) {
        true => BulkFormat::Csv,
        false => BulkFormat::JsonLines,
    }
}

fn wrong_line(bad: &BadTenantLine) -> ApiError {
    let field = match (&bad.fault, &*bad.field) {
        (LineFault::Empty(_) | LineFault::HeadAlone, _) => "body".to_owned(),
        (_, "") => format!("line {}", bad.line),
        (_, field) => format!("line {}: {field}", bad.line),
    };
    ApiError::invalid(field, bad.to_string())
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::admin) struct ExportOptions {
    /// `jsonl` or `csv`.
    format: Option<String>,
    /// Only tenants of this domain.
    domain: Option<String>,
    /// Only so many tenants, up to 500, and where the others begin in the header `x-next-cursor`.
    limit: Option<usize>,
    /// The `x-next-cursor` of the answer before.
    cursor: Option<String>,
}

/// The header with the place where an export goes on.
pub(in crate::admin) const NEXT_CURSOR: &str = "x-next-cursor";

/// Writes all tenants, as an import reads them.
#[utoipa::path(
    get,
    path = "/admin/v1/export/quotas",
    tag = "quotas",
    params(ExportOptions),
    responses((status = 200, description = "The tenants", body = String, content_type = "application/x-ndjson"))
)]
pub(in crate::admin) async fn export(
    State(app): State<Arc<App>>,
    Given(options): Given<ExportOptions>,
) -> Result<Response, ApiError> {
    let quotas = app.config.quotas.as_ref().ok_or_else(no_database)?;
    let format = parsed("?format", options.format.as_deref())?;
    let format = format.unwrap_or(BulkFormat::JsonLines);
    let pages = Pages {
        store: quotas.store.clone(),
        filter: ListFilter {
            domain: options.domain,
            ..ListFilter::default()
        },
        format,
    };
    let cursor: Option<ListCursor> = parsed("?cursor", options.cursor.as_deref())?;
    let most = limit(options.limit, PAGE_MAX, 1..=PAGE_MAX)?;
    // Read before the answer begins: a database that is away is a 503 and not half a file.
    let first = pages.read(cursor.as_ref(), most).await;
    let (text, rest) = first.map_err(|error| refusal(&error))?;
    if text.is_empty() && cursor.is_none() {
        refuse_unknown(&app, &pages.store, pages.filter.domain.as_deref()).await?;
    }
    let head = if cursor.is_none() {
        bulk_head(format)
    } else {
        ""
    };
    let text = head.to_owned() + &text;
    let kind = [(CONTENT_TYPE, format.content_type())];
    if options.limit.is_none() {
        let all = stream::unfold(Some((pages, Ok((text, rest)))), next);
        return Ok((kind, Body::from_stream(all)).into_response());
    }
    Ok(match rest {
        Some(rest) => (kind, [(NEXT_CURSOR, rest.to_string())], text).into_response(),
        None => (kind, text).into_response(),
    })
}

/// A part of an export, and the place where it goes on.
type ExportPart = (String, Option<ListCursor>);

/// An export under way.
struct Pages {
    store: QuotaStore,
    filter: ListFilter,
    format: BulkFormat,
}

impl Pages {
    async fn read(
        &self,
        cursor: Option<&ListCursor>,
        most: usize,
    ) -> Result<ExportPart, QuotaError> {
        let page = self.store.list(&self.filter, cursor, most).await?;
        let records = page.records.iter();
        let text = records
            .map(|record| BulkTenant::of(record, self.store.key()).written(self.format))
            .collect();
        Ok((text, page.next))
    }
}

/// The part at hand, and what is needed for the next one. After a failure the answer breaks off, so that no reader
/// takes it for all tenants.
async fn next(
    state: Option<(Pages, Result<ExportPart, QuotaError>)>,
) -> Option<(
    io::Result<String>,
    Option<(Pages, Result<ExportPart, QuotaError>)>,
)> {
    let (pages, part) = state?;
    match part {
        Err(error) => Some((Err(io::Error::other(error)), None)),
        Ok((text, None)) => Some((Ok(text), None)),
        Ok((text, Some(cursor))) => {
            let part = pages.read(Some(&cursor), PAGE_MAX).await;
            Some((Ok(text), Some((pages, part))))
        }
    }
}
