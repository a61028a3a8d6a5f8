//! `/admin/v1/tenants`: all that bears on one tenant, for whoever asks why it is denied.

mod found;
mod identity;
mod place;
mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use ratekeeper_limiter::Snapshot;
use ratekeeper_quota::{AuditDocument, TenantDocument, TenantRecord, UnclearTenants};
use ratekeeper_rules::{Domain, time};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::named::Named;
use super::options::{Given, OfDomain};
use super::quotas::{HASH, unclear};
use super::usage;
use crate::access::{Operator, Role};
use crate::admin_json::keys::value_of;
use crate::admin_json::{DenialGroup, DeniedRequest, ToldBy, Usage};
use crate::app::App;
use crate::http::{ApiError, read_json};
use found::{Found, changes, hash, value};
use identity::{Meant, meant};
use place::{Place, several};
use steps::{NextStep, next_steps, summary};

/// The reason why there is no usage of a tenant whose value nobody has told.
const UNKNOWN_VALUE: &str = "no usage: counters are found by the value of a tenant, which this node has not denied in \
                             the last hour; ask with the value, by POST, or a node that has";

/// The most groups of denials of each kind in an answer.
const GROUPS_MAX: usize = 50;

/// The question about a tenant.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TenantQuestion {
    /// Its value, its fingerprint (`~…`), `hash:` and its keyed hash, or its last characters (`…x4f2`, `*x4f2`).
    tenant: String,
    /// The domain, where several have tenants.
    #[serde(default)]
    domain: Option<String>,
    /// Entries after the tenant's of further limits to look at, each `key:value`.
    #[serde(default)]
    descriptors: Vec<Vec<String>>,
}

/// All that bears on a tenant.
#[derive(Serialize, ToSchema)]
pub(super) struct TenantAnswer {
    /// The tenant as people know it: its value, or the last characters of a secret.
    tenant: String,
    /// The form in which it was named: `value`, `fingerprint`, `hash` or `last_characters`.
    named_by: &'static str,
    /// The entry that names it, as denials and `/admin/v1/top` have it: a secret is a fingerprint. Absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    key: Option<String>,
    /// `hash:` and its keyed hash in the quota database; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    hash: Option<String>,
    /// The domain of its plans and overrides; absent if no domain has tenants, or what is denied is no tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    domain: Option<String>,
    /// The domains that have tenants, where several have and the question names none of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    domains: Vec<String>,
    #[schema(format = DateTime)]
    at: String,
    /// The answer in a sentence.
    summary: String,
    /// The plan that it is on now; absent in domains without plans, or if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    plan: Option<String>,
    /// Its plans and overrides with their dates; null if the quota database does not have it.
    quotas: Option<TenantDocument>,
    /// Its use of each limit now; null if its value is not known.
    usage: Option<Usage>,
    /// The reason why parts of the answer are missing, in sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// Denials of the last hour by rule, the last one first.
    denials: Vec<DenialGroup>,
    /// The same of requests that passed because their rule is in shadow, or enforced for a part of the tenants.
    would_be_denied: Vec<DenialGroup>,
    /// The latest denied requests on this node.
    requests: Vec<DeniedRequest>,
    /// The latest changes of its plans and overrides, the newest first; for admins alone.
    changes: Vec<AuditDocument>,
    /// The steps that may be taken now.
    next_steps: Vec<NextStep>,
    told_by: ToldBy,
}

/// Tells all that bears on a tenant.
#[utoipa::path(
    get,
    path = "/admin/v1/tenants/{tenant}",
    tag = "traffic",
    params(
        ("tenant" = String, Path, description = "The tenant: its value, `~` and its fingerprint, `hash:` and its keyed hash, or `*` and its last characters. Send a secret by POST"),
        OfDomain,
    ),
    responses((status = 200, description = "Plan, usage, denials and changes of the tenant", body = TenantAnswer))
)]
pub(super) async fn by_path(
    State(app): State<Arc<App>>,
    Extension(operator): Extension<Operator>,
    tenant: Result<Path<String>, PathRejection>,
    Given(OfDomain { domain }): Given<OfDomain>,
) -> Result<Json<TenantAnswer>, ApiError> {
    let Path(tenant) = tenant.map_err(|error| ApiError::invalid("{tenant}", error.body_text()))?;
    let named = Named::read(&tenant, "{tenant}")?;
    let question = usage::Options::of_domain(domain);
    answer(&app, operator.role, named, question).await.map(Json)
}

/// Tells the same of a tenant that the body names, so that no log on the way has its value.
#[utoipa::path(
    post,
    path = "/admin/v1/tenants",
    tag = "traffic",
    request_body = TenantQuestion,
    responses((status = 200, description = "Plan, usage, denials and changes of the tenant", body = TenantAnswer))
)]
pub(super) async fn by_body(
    State(app): State<Arc<App>>,
    Extension(operator): Extension<Operator>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<TenantAnswer>, ApiError> {
    let question: TenantQuestion = read_json(&body?)?;
    let named = Named::read(&question.tenant, "tenant")?;
    let question = usage::Options::new(question.domain, question.descriptors, "descriptors")?;
    answer(&app, operator.role, named, question).await.map(Json)
}

async fn answer(
    app: &App,
    role: Role,
    named: Named,
    question: usage::Options,
) -> Result<TenantAnswer, ApiError> {
    if !app.is_loaded() {
        return Err(ApiError::no_rules());
    }
    let snapshot = Arc::clone(&app.limiter.snapshot());
    let mut missing = Vec::new();
    let place = match Place::of(snapshot.rules(), question.domain()) {
        Ok(place) => Some(place),
        Err(error) if question.domain().is_some() => return Err(unclear(&error)),
        Err(error) => {
            let names = several(snapshot.rules());
            missing.push(format!(
                "no plan and no usage: {}",
                with_names(&error, &names)
            ));
            None
        }
    };
    let named = match (named, place) {
        (Named::Value(text), Some(place)) => without_key(text, place.key)?,
        (named, _) => named,
    };
    let meant = meant(app, &snapshot, place, named, &mut missing).await?;
    joined(app, role, meant, question, missing).await
}

/// The tenant that `text` names, be it by its whole entry, as denials show it: `customer:acme`.
fn without_key(text: String, key: &str) -> Result<Named, ApiError> {
    let value = text
        .strip_prefix(key)
        .and_then(|rest| rest.strip_prefix(':'));
    match value.filter(|value| !value.is_empty()) {
        Some(value) => Named::read(value, "tenant"),
        None => Ok(Named::Value(text)),
    }
}

/// Joins what was found of a tenant.
async fn joined(
    app: &App,
    role: Role,
    meant: Meant,
    question: usage::Options,
    mut missing: Vec<String>,
) -> Result<TenantAnswer, ApiError> {
    let snapshot = Arc::clone(&app.limiter.snapshot());
    let Meant {
        named,
        found,
        record,
    } = meant;
    let keys = found.keys();
    let domains = match question.domain() {
        None => several(snapshot.rules()),
        Some(_) => Vec::new(),
    };
    if keys.is_empty() && record.is_none() && !matches!(named, Named::Value(_)) {
        return Err(unknown(domains));
    }
    let place = Place::of(snapshot.rules(), question.domain()).ok();
    let value = value(app, &named, &found, record.as_ref(), place);
    let secret = found.secret(app, place);
    let texts = (value.as_deref(), secret.as_deref());
    let sources = (&found, record.as_ref());
    let (place, usage) = used(app, place, texts, sources, &question, &mut missing).await?;
    let known = value.as_deref().or(secret.as_deref());
    let hash = hash(app, place, (record.as_ref(), known));
    let changes = changes(app, role, record.as_ref(), &mut missing).await;
    let now = app.limiter.clock().now();
    let entry = || entry_of(&named, place, &snapshot);
    let key = keys.first().map(|key| (*key).to_owned()).or_else(entry);
    let asked = || asked(&named, &snapshot);
    let tenant = shown(&found, record.as_ref(), key.as_deref()).unwrap_or_else(asked);
    let quotas = record.map(|record| {
        let document = TenantDocument::of(&record, None, snapshot.rules(), now);
        document.with_own(&record)
    });
    let plan = usage.as_ref().and_then(|usage| usage.plan.clone());
    let plan = plan.or_else(|| quotas.as_ref().and_then(|quotas| quotas.plan.clone()));
    let mut answer = TenantAnswer {
        tenant,
        named_by: named.form(),
        key,
        hash: hash.map(|hash| format!("{HASH}{hash}")),
        domain: place.map(|place| place.domain.name().to_owned()),
        domains,
        at: time::rfc3339(now).to_string(),
        summary: String::new(),
        plan,
        quotas,
        usage,
        missing,
        denials: found.of_kind("denied", GROUPS_MAX),
        would_be_denied: found.of_kind("would_be_denied", GROUPS_MAX),
        requests: found.requests,
        changes,
        next_steps: Vec::new(),
        told_by: found.told_by,
    };
    answer.summary = summary(&answer, now);
    let place = place.filter(|_| app.config.quotas.is_some());
    let is_one_of_several = !several(snapshot.rules()).is_empty();
    answer.next_steps = next_steps(&answer, place, is_one_of_several, now);
    Ok(answer)
}

/// The place of a tenant and its use of its limits, if its value or secret is known; neither of what was denied but is
/// no tenant.
async fn used<'p>(
    app: &App,
    place: Option<Place<'p>>,
    known: (Option<&str>, Option<&str>),
    (found, record): (&Found, Option<&TenantRecord>),
    question: &usage::Options,
    missing: &mut Vec<String>,
) -> Result<(Option<Place<'p>>, Option<Usage>), ApiError> {
    let Some(of) = place else {
        return Ok((None, None));
    };
    let usage = match known {
        (Some(value), _) => Some(usage::of(app, value, question).await?),
        (None, Some(secret)) => {
            let shown = found.groups.first().map(|group| group.tenant.clone());
            let usage = usage::of(app, secret, question).await?;
            Some(usage.shown_as(&shown.unwrap_or_default()))
        }
        (None, None) => None,
    };
    if record.is_none() && is_another(found, usage.as_ref(), of) {
        missing.push(no_tenant(&found.keys(), of.key));
        return Ok((None, None));
    }
    if usage.is_none() {
        missing.push(UNKNOWN_VALUE.to_owned());
    }
    Ok((place, usage))
}

/// Returns true if what was denied is no tenant of `place`, and no tenant of that name has used anything.
fn is_another(found: &Found, usage: Option<&Usage>, place: Place<'_>) -> bool {
    let is_used = usage.is_some_and(|usage| usage.usage.values().any(|used| used.used > 0));
    !found.groups.is_empty() && found.tenants(place).is_empty() && !is_used
}

fn no_tenant(denied: &BTreeSet<&str>, key: &str) -> String {
    let denied: Vec<_> = denied.iter().take(GROUPS_MAX).copied().collect();
    let denied = denied.join(", ");
    format!("no plan and no usage: what was denied is {denied}, and tenants are named by {key}")
}

/// The entry of a tenant that is named by its value, as denials have it.
fn entry_of(named: &Named, place: Option<Place<'_>>, snapshot: &Snapshot) -> Option<String> {
    let (Named::Value(text), Some(place)) = (named, place) else {
        return None;
    };
    let key = place.key;
    Some(match place.is_secret() {
        true => format!("{key}:{}", snapshot.fingerprint(text)),
        false => format!("{key}:{text}"),
    })
}

/// The tenant as people know it; None if nothing is known of it.
fn shown(found: &Found, record: Option<&TenantRecord>, key: Option<&str>) -> Option<String> {
    match (found.groups.first(), record) {
        (Some(group), _) => Some(group.tenant.clone()),
        (None, Some(record)) => Some(record.id.shown.clone()),
        (None, None) => key.map(|key| value_of(key).to_owned()),
    }
}

/// The tenant by the name that was asked for: by its fingerprint where that may be a secret, which belongs into no history of
/// commands.
fn asked(named: &Named, snapshot: &Snapshot) -> String {
    let Named::Value(text) = named else {
        return String::new();
    };
    let rules = snapshot.rules();
    let has_secrets = |domain: &Domain| {
        let own = rules.rules().iter();
        let mut own = own.filter(|rule| *rule.domain == *domain.name());
        own.any(|rule| rule.path.iter().any(|key| domain.is_secret(key)))
    };
    match rules.domains().any(has_secrets) {
        true => snapshot.fingerprint(text),
        false => text.clone(),
    }
}

/// The reason why a domain is not clear, with the names of those that may be meant.
fn with_names(error: &UnclearTenants, names: &[String]) -> String {
    match names {
        [] => error.to_string(),
        names => format!("{error}: {}", names.join(", ")),
    }
}

/// Nobody is known by the name: it may be in the database of one of `domains`, of which none was asked for.
fn unknown(domains: Vec<String>) -> ApiError {
    if !domains.is_empty() {
        let error = with_names(&UnclearTenants::Several, &domains);
        return ApiError::invalid("?domain", error).with_member("domains", domains.into());
    }
    let message = "no tenant is known by this name: none of its requests was denied in the last hour, and the quota database does \
         not have it; its value tells more";
    ApiError::other(StatusCode::NOT_FOUND, "UNKNOWN_TENANT", message)
}
