//! `/admin/v1/tenants`: all that bears on one tenant, for whoever asks why it is denied.

mod steps;

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::{Extension, Json};
use http::StatusCode;
use ratekeeper_limiter::Snapshot;
use ratekeeper_quota::{
    AuditDocument, AuditFilter, QuotaError, TenantDocument, TenantId, TenantRecord, tenants_domain,
};
use ratekeeper_rules::{Domain, TenantHash, time};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::denials::{groups, in_words};
use super::named::Named;
use super::options::Given;
use super::quotas::{HASH, tenant, unclear};
use super::usage;
use crate::access::{Operator, Role};
use crate::admin_json::keys::value_of;
use crate::admin_json::{DenialGroup, ToldBy, Usage};
use crate::app::App;
use crate::http::{ApiError, read_json};
use crate::logs::denials::DeniedRequest;
use steps::{NextStep, next_steps, summary};

/// The most changes of the audit trail in an answer.
const CHANGES_MAX: u64 = 10;

/// The most denied requests in an answer.
const REQUESTS_MAX: usize = 20;

/// The most groups of denials of each kind in an answer.
const GROUPS_MAX: usize = 50;

/// The parameters of the query.
#[derive(Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct OfDomain {
    /// The domain, where several have tenants.
    domain: Option<String>,
}

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
    /// The domain of its plans and overrides; absent if no domain has tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    domain: Option<String>,
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
    let question = usage::Options {
        domain,
        ..usage::Options::default()
    };
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
    let question = usage::Options {
        domain: question.domain,
        descriptors: question.descriptors,
    };
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
    let place = match tenants_domain(snapshot.rules(), question.domain.as_deref()) {
        Ok(place) => Some(place),
        Err(error) if question.domain.is_some() => return Err(unclear(&error)),
        Err(error) => {
            missing.push(format!("no plan and no usage: {error}"));
            None
        }
    };
    let named = match (named, place) {
        (Named::Value(text), Some((_, key))) => without_key(text, key)?,
        (named, _) => named,
    };
    let mut found = Found::of(app, &snapshot, &named).await;
    let mut quotas = kept(app, &snapshot, place, &named, &mut missing).await;
    if let (None, true, Some(ending)) = (&quotas, found.groups.is_empty(), named.as_ending()) {
        let by_end = Found::of(app, &snapshot, &ending).await;
        let kept_by_end = kept(app, &snapshot, place, &ending, &mut missing).await;
        if !by_end.groups.is_empty() || kept_by_end.is_some() {
            return joined(app, role, ending, question, (by_end, kept_by_end), missing).await;
        }
    }
    // A hash says nothing of the counters; the name that goes with it does.
    if let (Named::Hash(_), Some(record)) = (&named, &quotas)
        && let Ok(shown) = Named::read(&record.id.shown, "tenant")
    {
        found = Found::of(app, &snapshot, &shown).await;
    }
    // And a fingerprint nothing of the database, but this node may have denied the key.
    if let (Named::Fingerprint(_), Some(secret)) = (&named, found.secret(app, place)) {
        quotas = kept(app, &snapshot, place, &Named::Value(secret), &mut missing).await;
    }
    if let (Named::Fingerprint(_), None, Some(group)) = (&named, &quotas, found.groups.first())
        && let Ok(ending @ Named::Ending(_)) = Named::read(&group.tenant, "tenant")
    {
        quotas = kept(app, &snapshot, place, &ending, &mut missing).await;
    }
    joined(app, role, named, question, (found, quotas), missing).await
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

/// The denials that bear on a tenant.
struct Found {
    groups: Vec<DenialGroup>,
    told_by: ToldBy,
    requests: Vec<DeniedRequest>,
}

impl Found {
    async fn of(app: &App, snapshot: &Snapshot, named: &Named) -> Self {
        let is_tenant = named.test(snapshot);
        let (mut groups, told_by) = groups(app, false, |case| is_tenant(&case.key)).await;
        in_words(&mut groups, app, snapshot);
        let requests = app
            .config
            .denials
            .latest(REQUESTS_MAX, |denied| is_tenant(&denied.key));
        Self {
            groups,
            told_by,
            requests,
        }
    }

    /// The value of the only tenant among them, if it is a secret and this node has denied it in the last hour.
    fn secret(&self, app: &App, place: Option<(&Domain, &str)>) -> Option<String> {
        let (_, key) = place?;
        let keys = self.keys();
        let entry = keys.first().filter(|_| keys.len() == 1)?;
        entry.strip_prefix(key)?.strip_prefix(':')?;
        let now = app.limiter.clock().now();
        let cases = app
            .limiter
            .top()
            .cases(now, |case| &*case.subject == *entry);
        cases
            .iter()
            .find_map(|case| case.secret.as_ref())
            .map(|secret| secret.reveal().to_owned())
    }

    /// The entries that name the tenants among them.
    fn keys(&self) -> BTreeSet<&str> {
        self.groups.iter().map(|group| &*group.key).collect()
    }
}

/// The tenant in the quota database, if that is there and has it.
async fn kept(
    app: &App,
    snapshot: &Snapshot,
    place: Option<(&Domain, &str)>,
    named: &Named,
    missing: &mut Vec<String>,
) -> Option<TenantRecord> {
    let quotas = app.config.quotas.as_ref()?;
    let (domain, _) = place?;
    let id: Result<Option<TenantId>, QuotaError> = match named {
        Named::Value(text) | Named::Hash(text) => {
            let id = tenant(quotas, snapshot.rules(), Some(domain.name()), text);
            Ok(id.ok())
        }
        Named::Fingerprint(_) => Ok(None),
        Named::Ending(end) => {
            let ids = quotas.store.ending_in(domain.name(), end).await;
            ids.map(|ids| match ids.as_slice() {
                [only] => Some(TenantId::of_hash(domain.name(), *only)),
                _ => None,
            })
        }
    };
    let record = match id {
        Ok(Some(id)) => quotas.store.get(&id.domain, id.hash).await,
        Ok(None) => return None,
        Err(error) => Err(error),
    };
    record.unwrap_or_else(|error| {
        missing.push(format!("no plans and no changes: {error}"));
        None
    })
}

/// Joins what was found of a tenant.
async fn joined(
    app: &App,
    role: Role,
    named: Named,
    question: usage::Options,
    (found, record): (Found, Option<TenantRecord>),
    mut missing: Vec<String>,
) -> Result<TenantAnswer, ApiError> {
    let snapshot = Arc::clone(&app.limiter.snapshot());
    let keys = found.keys();
    if let (Named::Ending(end), true) = (&named, keys.len() > 1) {
        return Err(ambiguous(end, &keys));
    }
    if keys.is_empty() && record.is_none() && !matches!(named, Named::Value(_)) {
        return Err(unknown());
    }
    let place = tenants_domain(snapshot.rules(), question.domain.as_deref()).ok();
    let value = value(&named, &found, record.as_ref(), place);
    let secret = found.secret(app, place);
    let hash = match &record {
        Some(record) => Some(record.id.hash),
        None => hash(
            app,
            &snapshot,
            place,
            value.as_deref().or(secret.as_deref()),
        ),
    };
    let usage = match (value, secret, place) {
        (Some(value), _, Some(_)) => Some(usage::of(app, &value, &question).await?),
        (None, Some(secret), Some(_)) => {
            let shown = found.groups.first().map(|group| group.tenant.clone());
            let usage = usage::of(app, &secret, &question).await?;
            Some(usage.shown_as(&shown.unwrap_or_default()))
        }
        (None, None, Some(_)) => {
            missing.push(
                "no usage: counters are found by the value of a tenant, which this node has not denied in the last \
                 hour; ask with the value, by POST, or a node that has"
                    .to_owned(),
            );
            None
        }
        (_, _, None) => None,
    };
    let changes = changes(app, role, record.as_ref(), &mut missing).await;
    let now = app.limiter.clock().now();
    let key = match (keys.first(), place, &named) {
        (Some(key), ..) => Some((*key).to_owned()),
        (None, Some((domain, key)), Named::Value(text)) => Some(match domain.is_secret(key) {
            true => format!("{key}:{}", snapshot.fingerprint(text)),
            false => format!("{key}:{text}"),
        }),
        _ => None,
    };
    let tenant = match (found.groups.first(), &record, &key) {
        (Some(group), ..) => group.tenant.clone(),
        (None, Some(record), _) => record.id.shown.clone(),
        (None, None, key) => value_of(key.as_deref().unwrap_or_default()).to_owned(),
    };
    let quotas = record.map(|record| {
        let document = TenantDocument::of(&record, None, snapshot.rules(), now);
        document.with_own(&record)
    });
    let plan = usage.as_ref().and_then(|usage| usage.plan.clone());
    let plan = plan.or_else(|| quotas.as_ref().and_then(|quotas| quotas.plan.clone()));
    let of_kind = |kind: &str| {
        let of_kind = found.groups.iter().filter(|group| group.kind == kind);
        of_kind.take(GROUPS_MAX).cloned().collect::<Vec<_>>()
    };
    let mut answer = TenantAnswer {
        tenant,
        named_by: named.form(),
        key,
        hash: hash.map(|hash| format!("{HASH}{hash}")),
        domain: place.map(|(domain, _)| domain.name().to_owned()),
        at: time::rfc3339(now).to_string(),
        summary: String::new(),
        plan,
        quotas,
        usage,
        missing,
        denials: of_kind("denied"),
        would_be_denied: of_kind("would_be_denied"),
        requests: found.requests,
        changes,
        next_steps: Vec::new(),
        told_by: found.told_by,
    };
    answer.summary = summary(&answer, now);
    answer.next_steps = next_steps(&answer, app.config.quotas.is_some(), now);
    Ok(answer)
}

/// The keyed hash under which the quota database would have the tenant of this value; none without a database.
fn hash(
    app: &App,
    snapshot: &Snapshot,
    place: Option<(&Domain, &str)>,
    value: Option<&str>,
) -> Option<TenantHash> {
    let quotas = app.config.quotas.as_ref()?;
    let (domain, _) = place?;
    let id = tenant(quotas, snapshot.rules(), Some(domain.name()), value?);
    id.ok().map(|id| id.hash)
}

/// The value of the tenant, as far as anybody has told it.
fn value(
    named: &Named,
    found: &Found,
    record: Option<&TenantRecord>,
    place: Option<(&Domain, &str)>,
) -> Option<String> {
    if let Named::Value(value) = named {
        return Some(value.clone());
    }
    let (domain, key) = place?;
    if domain.is_secret(key) {
        return None;
    }
    let of_denials = found.groups.iter().map(|group| &*group.key);
    let of_denials = of_denials.filter_map(|entry| entry.strip_prefix(key)?.strip_prefix(':'));
    let mut values = of_denials.chain(record.map(|record| &*record.id.shown));
    values.next().map(str::to_owned)
}

/// The latest changes of a tenant, for those who may read the trail.
async fn changes(
    app: &App,
    role: Role,
    record: Option<&TenantRecord>,
    missing: &mut Vec<String>,
) -> Vec<AuditDocument> {
    let (Some(quotas), Some(record)) = (app.config.quotas.as_ref(), record) else {
        return Vec::new();
    };
    if role < Role::Admin {
        missing.push("no changes: the audit trail needs the role admin".to_owned());
        return Vec::new();
    }
    let filter = AuditFilter {
        after: 0,
        before: None,
        tenant: Some((record.id.domain.clone(), record.id.hash)),
        newest_first: true,
    };
    match quotas.store.audit_of(&filter, CHANGES_MAX).await {
        Ok(rows) => rows.into_iter().map(AuditDocument::from).collect(),
        Err(error) => {
            missing.push(format!("no changes: {error}"));
            Vec::new()
        }
    }
}

fn ambiguous(end: &str, keys: &BTreeSet<&str>) -> ApiError {
    let keys: Vec<_> = keys.iter().take(GROUPS_MAX).copied().collect();
    let message = format!("several tenants end in {end}: {}", keys.join(", "));
    ApiError::other(StatusCode::CONFLICT, "AMBIGUOUS_TENANT", message)
}

fn unknown() -> ApiError {
    let message = "no tenant is known by this name: none of its requests was denied in the last hour, and the quota database does \
         not have it; its value tells more";
    ApiError::other(StatusCode::NOT_FOUND, "UNKNOWN_TENANT", message)
}
