//! Many tenants at once, as JSON lines or CSV.
//!
//! A JSON line is a tenant: its name and its [`QuotaDocument`]. In CSV each plan and each override has a row,
//! and the rows of one tenant stand together. Secret values are exported as hashes, with a mark of the key
//! that made them: under another key they would name no tenant.

pub(crate) mod bidi;
pub(crate) mod cell;

use std::borrow::Cow;
use std::collections::HashSet;
use std::str::FromStr;

use ratekeeper_rules::time::NotATime;
use ratekeeper_rules::{BadQuotas, NotATenantHash, QuotaList, RuleSet, TenantKey};
use serde::{Deserialize, Serialize};

use crate::document::{BadDocument, OverrideDocument, PlanDocument, QuotaDocument, Rfc3339};
use crate::tenants::{UnclearTenants, tenants_domain};
use crate::{TenantId, TenantPut, TenantRecord};

/// The form of many tenants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BulkFormat {
    /// A JSON object a line.
    JsonLines,
    /// Comma-separated values, with a line of names first.
    Csv,
}

impl BulkFormat {
    /// The content type of such a file.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::JsonLines => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8",
        }
    }
}

/// A text that names no format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected jsonl or csv")]
pub struct UnknownFormat;

impl FromStr for BulkFormat {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        match text {
            "jsonl" => Ok(Self::JsonLines),
            "csv" => Ok(Self::Csv),
            _ => Err(UnknownFormat),
        }
    }
}

/// A tenant in a file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BulkTenant {
    /// The domain; it can be left out if only one has tenants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The tenant's value.
    #[serde(alias = "api_key", skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The keyed hash of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    /// The end of a secret value, as `…cdef`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// A mark of the key that made the hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_key: Option<String>,
    /// The plan, as in [`QuotaDocument::plan`].
    #[serde(alias = "tier", skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Several plans.
    #[serde(alias = "tiers", skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<PlanDocument>,
    /// The limits that the tenant has alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideDocument>,
    /// The time from which on this holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// A row of CSV: a plan, an override, or both.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Row {
    domain: Option<String>,
    #[serde(alias = "api_key")]
    tenant: Option<String>,
    hash: Option<String>,
    shown: Option<String>,
    tenant_key: Option<String>,
    #[serde(alias = "tier")]
    plan: Option<String>,
    descriptor: Option<String>,
    #[serde(alias = "limit")]
    requests_per_unit: Option<u64>,
    unit: Option<String>,
    window: Option<String>,
    burst: Option<u64>,
    algorithm: Option<String>,
    effective_at: Option<String>,
    expires_at: Option<String>,
    steps: Option<u16>,
    post_paid: Option<bool>,
    max_debt: Option<u64>,
}

/// A mistake in a file of tenants.
#[derive(Debug, thiserror::Error)]
#[error("{fault}")]
pub struct BadTenantLine {
    /// The line, counted from 1.
    pub line: u64,
    /// The field; empty if the whole line is wrong.
    pub field: String,
    /// The mistake.
    #[source]
    pub fault: LineFault,
}

/// A kind of mistake in a line of a file of tenants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// It is no JSON, or not of a tenant.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is no CSV, or not of a tenant.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// The domain is not clear.
    #[error(transparent)]
    Tenants(#[from] UnclearTenants),
    /// No tenant is named.
    #[error("expected `tenant` or `hash`")]
    NoTenant,
    /// The hash is none.
    #[error(transparent)]
    Hash(#[from] NotATenantHash),
    /// The hash was made under another `tenant_key`.
    #[error("the hash was made with another tenant_key")]
    OtherKey,
    /// The tenant stands in the file already.
    #[error("the tenant is listed twice")]
    Twice,
    /// A time is none.
    #[error(transparent)]
    Time(#[from] NotATime),
    /// The quotas say two things, or nothing.
    #[error(transparent)]
    Document(#[from] BadDocument),
}

/// A tenant of a file and the line on which it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BulkLine {
    /// The line, counted from 1.
    pub line: u64,
    /// The tenant.
    pub tenant: BulkTenant,
    /// The line of each of its plans, where they have lines of their own.
    pub plans: Vec<u64>,
    /// The line of each of its overrides, where they have lines of their own.
    pub overrides: Vec<u64>,
}

/// The tenants in `text`, in order.
///
/// # Errors
/// The first mistake.
pub fn read_tenants(format: BulkFormat, text: &str) -> Result<Vec<BulkLine>, BadTenantLine> {
    let all = match format {
        BulkFormat::JsonLines => read_lines(text)?,
        BulkFormat::Csv => read_rows(text)?,
    };
    let mut seen = HashSet::new();
    for BulkLine { line, tenant, .. } in &all {
        if !seen.insert((&tenant.domain, &tenant.tenant, &tenant.hash)) {
            return Err(fault(*line, "", LineFault::Twice));
        }
    }
    Ok(all)
}

fn fault(line: u64, field: impl Into<String>, fault: impl Into<LineFault>) -> BadTenantLine {
    BadTenantLine {
        line,
        field: field.into(),
        fault: fault.into(),
    }
}

fn read_lines(text: &str) -> Result<Vec<BulkLine>, BadTenantLine> {
    let lines = (1..).zip(text.lines());
    let lines = lines.filter(|(_, text)| !text.trim().is_empty());
    let read = |(line, text): (u64, &str)| match serde_json::from_str(text) {
        Ok(tenant) => Ok(BulkLine {
            line,
            tenant,
            plans: Vec::new(),
            overrides: Vec::new(),
        }),
        Err(error) => Err(fault(line, "", error)),
    };
    lines.map(read).collect()
}

fn read_rows(text: &str) -> Result<Vec<BulkLine>, BadTenantLine> {
    let mut all: Vec<BulkLine> = Vec::new();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::Headers)
        .from_reader(text.as_bytes());
    let head = reader
        .headers()
        .map_err(|error| fault(1, "", error))?
        .clone();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            fault(line, "", error)
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let row: Row = cell::texts(&record)
            .deserialize(Some(&head))
            .map_err(|error| fault(line, "", error))?;
        let is_same = |last: &BulkLine| {
            let last = &last.tenant;
            (&last.domain, &last.tenant, &last.hash) == (&row.domain, &row.tenant, &row.hash)
        };
        if !all.last().is_some_and(is_same) {
            let tenant = BulkTenant {
                domain: row.domain.clone(),
                tenant: row.tenant.clone(),
                hash: row.hash.clone(),
                shown: row.shown.clone(),
                tenant_key: row.tenant_key.clone(),
                ..BulkTenant::default()
            };
            all.push(BulkLine {
                line,
                tenant,
                plans: Vec::new(),
                overrides: Vec::new(),
            });
        }
        if let Some(last) = all.last_mut() {
            row.add_to(&mut last.tenant, line)?;
            last.plans.resize(last.tenant.plans.len(), line);
            last.overrides.resize(last.tenant.overrides.len(), line);
        }
    }
    Ok(all)
}

impl Row {
    fn add_to(self, tenant: &mut BulkTenant, line: u64) -> Result<(), BadTenantLine> {
        let time = |field: &str, text: &Option<String>| {
            let time = text.as_deref().map(str::parse::<Rfc3339>).transpose();
            time.map_err(|error| fault(line, field, error))
        };
        let effective_at = time("effective_at", &self.effective_at)?;
        let expires_at = time("expires_at", &self.expires_at)?;
        match self.plan {
            // Overrides alone: what is without a plan is so by itself.
            Some(plan) if plan == ratekeeper_rules::CUSTOM => tenant.plan = Some(plan),
            Some(plan) => {
                let plan = PlanDocument {
                    plan,
                    effective_at,
                    expires_at,
                };
                // Each row of a tenant may repeat its plan.
                if !tenant.plans.contains(&plan) {
                    tenant.plans.push(plan);
                }
            }
            None => {}
        }
        if let Some(requests_per_unit) = self.requests_per_unit {
            let descriptor = self.descriptor.as_deref().unwrap_or_default().parse();
            tenant.overrides.push(OverrideDocument {
                descriptor: descriptor
                    .map_err(|error| fault(line, "descriptor", LineFault::Json(error)))?,
                requests_per_unit,
                unit: self.unit,
                window: self.window,
                burst: self.burst,
                algorithm: self.algorithm,
                post_paid: self.post_paid,
                max_debt: self.max_debt,
                steps: self.steps,
                effective_at,
                expires_at,
            });
        }
        Ok(())
    }

    /// The row as a line, its columns in the order of [`bulk_head`].
    fn written(&self) -> String {
        let text = |text: &Option<String>| Cow::from(text.clone().unwrap_or_default());
        let number =
            |number: Option<u64>| Cow::from(number.map(|it| it.to_string()).unwrap_or_default());
        cell::line([
            text(&self.domain),
            text(&self.tenant),
            text(&self.hash),
            text(&self.shown),
            text(&self.tenant_key),
            text(&self.plan),
            text(&self.descriptor),
            number(self.requests_per_unit),
            text(&self.unit),
            text(&self.window),
            number(self.burst),
            text(&self.algorithm),
            text(&self.effective_at),
            text(&self.expires_at),
            number(self.steps.map(u64::from)),
            text(&self.post_paid.map(|is_so| is_so.to_string())),
            number(self.max_debt),
        ])
    }

    fn of(tenant: &BulkTenant) -> Self {
        Self {
            domain: tenant.domain.clone(),
            tenant: tenant.tenant.clone(),
            hash: tenant.hash.clone(),
            shown: tenant.shown.clone(),
            tenant_key: tenant.tenant_key.clone(),
            ..Self::default()
        }
    }
}

impl BulkTenant {
    /// A tenant of the quota store; one with a secret value by its hash.
    #[must_use]
    pub fn of(record: &TenantRecord, key: &TenantKey) -> Self {
        let QuotaDocument {
            plan,
            plans,
            overrides,
            ..
        } = QuotaDocument::of(&record.quotas);
        let id = &record.id;
        let is_named = key.hash(&id.shown) == id.hash;
        let shown = Some(id.shown.clone());
        let (tenant, shown) = if is_named {
            (shown, None)
        } else {
            (None, shown)
        };
        Self {
            domain: Some(id.domain.clone()),
            tenant,
            hash: (!is_named).then(|| id.hash.to_string()),
            shown,
            tenant_key: (!is_named).then(|| mark_of(key)),
            plan,
            plans,
            overrides,
            effective_at: None,
            expires_at: None,
        }
    }

    /// The quotas of the tenant.
    #[must_use]
    pub fn document(&self) -> QuotaDocument {
        QuotaDocument {
            plan: self.plan.clone(),
            plans: self.plans.clone(),
            overrides: self.overrides.clone(),
            effective_at: self.effective_at,
            expires_at: self.expires_at,
        }
    }

    /// The tenant's text in a file, with the end of the line.
    #[must_use]
    pub fn written(&self, format: BulkFormat) -> String {
        match format {
            BulkFormat::JsonLines => {
                // Texts and numbers: nothing in there can fail.
                let mut line = bidi::escaped_json(serde_json::to_string(self).unwrap_or_default());
                line.push('\n');
                line
            }
            BulkFormat::Csv => rows(self),
        }
    }
}

/// The first line of a file: the names of the columns in CSV.
#[must_use]
pub const fn bulk_head(format: BulkFormat) -> &'static str {
    match format {
        BulkFormat::JsonLines => "",
        BulkFormat::Csv => {
            "domain,tenant,hash,shown,tenant_key,plan,descriptor,requests_per_unit,unit,window,burst,algorithm,\
             effective_at,expires_at,steps,post_paid,max_debt\n"
        }
    }
}

fn rows(tenant: &BulkTenant) -> String {
    let mut all = Vec::new();
    let time = |time: &Option<Rfc3339>| time.as_ref().map(ToString::to_string);
    for it in &tenant.plans {
        all.push(Row {
            plan: Some(it.plan.clone()),
            effective_at: time(&it.effective_at),
            expires_at: time(&it.expires_at),
            ..Row::of(tenant)
        });
    }
    if tenant.plan.is_some() || all.is_empty() {
        all.push(Row {
            plan: tenant.plan.clone(),
            ..Row::of(tenant)
        });
    }
    all.extend(tenant.overrides.iter().map(|own| Row {
        descriptor: Some(own.descriptor.to_string()),
        requests_per_unit: Some(own.requests_per_unit),
        unit: own.unit.clone(),
        window: own.window.clone(),
        burst: own.burst,
        algorithm: own.algorithm.clone(),
        steps: own.steps,
        post_paid: own.post_paid,
        max_debt: own.max_debt,
        effective_at: time(&own.effective_at),
        expires_at: time(&own.expires_at),
        ..Row::of(tenant)
    }));
    all.iter().map(Row::written).collect()
}

impl BulkLine {
    /// The line of the part that is wrong.
    #[must_use]
    pub fn line_of(&self, bad: &BadQuotas) -> u64 {
        let of = |list: QuotaList, at: &usize| match list {
            QuotaList::Plans => self.plans.get(*at),
            QuotaList::Overrides => self.overrides.get(*at),
        };
        let line = match bad {
            BadQuotas::NoPlan { at, .. } => of(QuotaList::Plans, at),
            BadQuotas::NoLimit { at, .. } => of(QuotaList::Overrides, at),
            BadQuotas::EndsBeforeItBegins { list, at } | BadQuotas::BeginsTwice { list, at } => {
                of(*list, at)
            }
            _ => None,
        };
        line.copied().unwrap_or(self.line)
    }

    /// The quotas of the tenant, for the quota store.
    ///
    /// # Errors
    /// It is not clear who is meant, or the quotas say two things or nothing.
    pub fn put(&self, rules: &RuleSet, key: &TenantKey) -> Result<TenantPut, BadTenantLine> {
        let Self { line, tenant, .. } = self;
        let fault = |field: &str, what: LineFault| fault(*line, field, what);
        let found = tenants_domain(rules, tenant.domain.as_deref());
        let (domain, entry) = found.map_err(|error| fault("domain", error.into()))?;
        let hash = tenant.hash.as_deref().map(str::parse).transpose();
        let hash = hash.map_err(|error: NotATenantHash| fault("hash", error.into()))?;
        let is_other = tenant
            .tenant_key
            .as_ref()
            .is_some_and(|mark| *mark != mark_of(key));
        let id = match (&tenant.tenant, hash) {
            (None, None) => return Err(fault("tenant", LineFault::NoTenant)),
            (None, Some(_)) if is_other => return Err(fault("tenant_key", LineFault::OtherKey)),
            (None, Some(hash)) => {
                let shown = tenant.shown.as_deref().filter(|shown| is_end(shown));
                let mut id = TenantId::of_hash(domain.name(), hash);
                shown.unwrap_or("…").clone_into(&mut id.shown);
                id
            }
            (Some(value), hash) => {
                let id = TenantId::of_value(domain.name(), value, domain.is_secret(entry), key);
                if hash.is_some_and(|hash| hash != id.hash) {
                    return Err(fault("hash", LineFault::OtherKey));
                }
                id
            }
        };
        let document = tenant.document();
        let quotas = document.quotas();
        Ok(TenantPut {
            tenant: id,
            quotas: quotas.map_err(|bad| fault(&bad.field(), bad.into()))?,
            begins: document.effective_at.map(|time| time.0),
        })
    }
}

/// Returns true if `shown` is the end of a secret value, and no more.
fn is_end(shown: &str) -> bool {
    shown.starts_with('…') && shown.chars().count() <= 5 && !shown.chars().any(char::is_control)
}

/// A fingerprint that identifies the key without revealing it.
fn mark_of(key: &TenantKey) -> String {
    let mut mark = key.hash("\0ratekeeper: the mark of this key").to_string();
    mark.truncate(8);
    mark
}
