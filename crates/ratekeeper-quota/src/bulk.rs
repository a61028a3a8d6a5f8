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

use csv::StringRecord;
use ratekeeper_rules::time::{NotATime, Rfc3339};
use ratekeeper_rules::{
    BadQuotas, NotATenantHash, OverrideDescriptor, QuotaList, RuleSet, TenantKey, TenantPlan,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::{BadDocument, QuotaDocument};
use crate::tenants_domain::{UnclearTenants, tenants_domain};
use crate::{HIDDEN, TenantId, TenantPut, TenantRecord};

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

    /// The content of a file that is not empty, in words.
    const fn example(self) -> &'static str {
        match self {
            Self::JsonLines => {
                "a line for each tenant, such as {\"tenant\":\"acme\",\"plan\":\"pro\"}"
            }
            Self::Csv => {
                "the names of columns, such as tenant,plan, and a row for each tenant, such as acme,pro"
            }
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
    /// Its plans and overrides.
    #[serde(flatten)]
    pub quotas: QuotaDocument,
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
    /// There is nothing in the file.
    #[error("the file is empty; write {}", .0.example())]
    Empty(BulkFormat),
    /// There are names of columns and no tenants.
    #[error(
        "no row follows the head; write one for each tenant, such as acme,pro below tenant,plan"
    )]
    HeadAlone,
    /// It is no JSON, or not of a tenant.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// It is no CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// No column has this name.
    #[error("unknown column; expected {}", HEAD.trim_end())]
    Column,
    /// The column is there twice, perhaps under two names.
    #[error("the column is there twice")]
    ColumnTwice,
    /// A cell is no number.
    #[error(transparent)]
    Number(#[from] std::num::ParseIntError),
    /// A cell is neither `true` nor `false`.
    #[error("expected true or false")]
    Flag(#[from] std::str::ParseBoolError),
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

/// The tenants in `text`, in order; at least one.
///
/// # Errors
/// The first mistake, or there are no tenants.
pub fn read_tenants(format: BulkFormat, text: &str) -> Result<Vec<BulkLine>, BadTenantLine> {
    let all = match format {
        BulkFormat::JsonLines => read_lines(text)?,
        BulkFormat::Csv => read_rows(text)?,
    };
    if all.is_empty() {
        let what = match text.trim().is_empty() {
            true => LineFault::Empty(format),
            false => LineFault::HeadAlone,
        };
        return Err(fault(1, "", what));
    }
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

/// The head of CSV: the fields of a tenant, a plan and an override under their names in JSON.
const HEAD: &str = "domain,tenant,hash,shown,tenant_key,plan,descriptor,requests_per_unit,unit,window,burst,algorithm,\
                    effective_at,expires_at,steps,post_paid,max_debt\n";

/// The columns that say which tenant a row is of.
const NAMES: [&str; 5] = ["domain", "tenant", "hash", "shown", "tenant_key"];

/// A row of CSV by column: a tenant with a plan, an override, or both.
type Row = Map<String, Value>;

fn read_rows(text: &str) -> Result<Vec<BulkLine>, BadTenantLine> {
    let mut all: Vec<BulkLine> = Vec::new();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::Headers)
        .from_reader(text.as_bytes());
    let head = reader.headers().map_err(|error| fault(1, "", error))?;
    let columns = columns(head)?;
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            fault(line, "", error)
        })?;
        let line = record.position().map_or(0, csv::Position::line);
        let mut row = Row::new();
        for (column, text) in columns.iter().zip(&cell::texts(&record)) {
            if !text.is_empty() {
                let value = value(column, text).map_err(|bad| fault(line, *column, bad))?;
                row.insert((*column).to_owned(), value);
            }
        }
        let names = NAMES.iter();
        let names: Row = names.filter_map(|name| row.remove_entry(*name)).collect();
        let tenant: BulkTenant = read(names).map_err(|error| fault(line, "", error))?;
        let is_same = |last: &BulkLine| {
            let last = &last.tenant;
            (&last.domain, &last.tenant, &last.hash)
                == (&tenant.domain, &tenant.tenant, &tenant.hash)
        };
        if !all.last().is_some_and(is_same) {
            all.push(BulkLine {
                line,
                tenant,
                plans: Vec::new(),
                overrides: Vec::new(),
            });
        }
        if let Some(last) = all.last_mut() {
            let quotas = &mut last.tenant.quotas;
            add(row, quotas, line)?;
            last.plans.resize(quotas.plans.len(), line);
            last.overrides.resize(quotas.overrides.len(), line);
        }
    }
    Ok(all)
}

/// The columns that the head of a file names.
fn columns(head: &StringRecord) -> Result<Vec<&'static str>, BadTenantLine> {
    let mut columns = Vec::new();
    for name in head {
        let known = match name {
            "api_key" => "tenant",
            "tier" => "plan",
            "limit" => "requests_per_unit",
            name => name,
        };
        let column = HEAD.trim_end().split(',').find(|column| *column == known);
        let column = column.ok_or_else(|| fault(1, name, LineFault::Column))?;
        if columns.contains(&column) {
            return Err(fault(1, name, LineFault::ColumnTwice));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The value of a cell, as JSON has it.
fn value(column: &str, text: &str) -> Result<Value, LineFault> {
    Ok(match column {
        "requests_per_unit" | "burst" | "steps" | "max_debt" => text.parse::<u64>()?.into(),
        "post_paid" => text.parse::<bool>()?.into(),
        "descriptor" => serde_json::to_value(text.parse::<OverrideDescriptor>()?)?,
        "effective_at" | "expires_at" => serde_json::to_value(text.parse::<Rfc3339>()?)?,
        _ => text.into(),
    })
}

fn read<T: DeserializeOwned>(row: Row) -> serde_json::Result<T> {
    serde_json::from_value(Value::Object(row))
}

/// The columns with the times of a plan or an override.
const TIMES: [&str; 2] = ["effective_at", "expires_at"];

/// Adds the plan and the override of a row.
fn add(mut row: Row, quotas: &mut QuotaDocument, line: u64) -> Result<(), BadTenantLine> {
    let mut is_dated = false;
    if let Some((name, plan)) = row.remove_entry("plan") {
        if plan == ratekeeper_rules::CUSTOM {
            // Overrides alone: what is without a plan is so by itself.
            quotas.plan = Some(ratekeeper_rules::CUSTOM.to_owned());
        } else {
            let times = TIMES.into_iter();
            let times = times.filter_map(|name| Some((name.to_owned(), row.get(name)?.clone())));
            let plan = read(times.chain([(name, plan)]).collect());
            let plan: TenantPlan = plan.map_err(|error| fault(line, "plan", error))?;
            // Each row of a tenant may repeat its plan.
            if !quotas.plans.contains(&plan) {
                quotas.plans.push(plan);
            }
            is_dated = true;
        }
    }
    // Whatever else there is is of an override; without its limit it would be dropped, and the override with it.
    let is_of_plan = |name: &String| is_dated && TIMES.contains(&name.as_str());
    if !row.keys().all(is_of_plan) {
        let own = read(row).map_err(|error| fault(line, "", error))?;
        quotas.overrides.push(own);
    }
    Ok(())
}

impl BulkTenant {
    /// A tenant of the quota store; one with a secret value by its hash.
    #[must_use]
    pub fn of(record: &TenantRecord, key: &TenantKey) -> Self {
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
            quotas: QuotaDocument::of(&record.quotas),
        }
    }

    /// The tenant's text in a file, with the end of the line.
    #[must_use]
    pub fn written(&self, format: BulkFormat) -> String {
        match format {
            BulkFormat::JsonLines => line(format, "", self),
            BulkFormat::Csv => rows(self),
        }
    }
}

/// The first line of a file: the names of the columns in CSV.
#[must_use]
pub const fn bulk_head(format: BulkFormat) -> &'static str {
    match format {
        BulkFormat::JsonLines => "",
        BulkFormat::Csv => HEAD,
    }
}

/// A value as a line of a file, with its end; the columns of CSV are those of `head`.
pub(crate) fn line(format: BulkFormat, head: &str, value: &impl Serialize) -> String {
    match format {
        // Texts and numbers: nothing in there can fail.
        BulkFormat::JsonLines => {
            bidi::escaped_json(serde_json::to_string(value).unwrap_or_default()) + "\n"
        }
        BulkFormat::Csv => csv_line(head, &fields(value)),
    }
}

fn csv_line(head: &str, row: &Row) -> String {
    let text = |column| match row.get(column) {
        None | Some(Value::Null) => Cow::from(""),
        Some(Value::String(text)) => text.into(),
        Some(value) => value.to_string().into(),
    };
    cell::line(head.trim_end().split(',').map(text))
}

/// The fields of a part of a tenant, as JSON has them.
fn fields(part: &impl Serialize) -> Row {
    // Texts and numbers: nothing in there can fail.
    match serde_json::to_value(part) {
        Ok(Value::Object(row)) => row,
        _ => Row::new(),
    }
}

fn rows(tenant: &BulkTenant) -> String {
    let quotas = &tenant.quotas;
    let mut all: Vec<Row> = quotas.plans.iter().map(fields).collect();
    if quotas.plan.is_some() || all.is_empty() {
        let plan = quotas
            .plan
            .as_deref()
            .map(|plan| ("plan".to_owned(), plan.into()));
        all.push(plan.into_iter().collect());
    }
    all.extend(quotas.overrides.iter().map(|own| {
        let mut row = fields(own);
        row.insert("descriptor".to_owned(), own.descriptor.to_string().into());
        row
    }));
    let mut names = fields(tenant);
    names.retain(|name, _| NAMES.contains(&name.as_str()));
    let written = |mut row: Row| {
        row.extend(names.clone());
        csv_line(HEAD, &row)
    };
    all.into_iter().map(written).collect()
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
                shown.unwrap_or(HIDDEN).clone_into(&mut id.shown);
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
        let listed = match &tenant.tenant {
            Some(value) => rules.listed(&id.domain, value),
            None => rules.listed_hash(&id.domain, (key, id.hash)),
        };
        let document = &tenant.quotas;
        let quotas = document.quotas();
        Ok(TenantPut {
            tenant: id,
            quotas: quotas.map_err(|bad| fault(&bad.field(), bad.into()))?,
            begins: document.effective_at.map(|time| time.0),
            listed,
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

#[cfg(test)]
mod tests {
    use ratekeeper_core::Timestamp;
    use ratekeeper_rules::TenantOverride;

    use super::*;

    /// A field without a column would be taken from all tenants that are exported and imported again.
    #[test]
    fn a_row_has_each_field_of_a_plan_and_of_an_override() {
        let time = |secs| Some(Rfc3339(Timestamp::from_secs(secs)));
        // Each field is written out here, with a value that is not left out of JSON.
        let plan = TenantPlan {
            plan: "pro".into(),
            effective_at: time(1),
            expires_at: time(2),
        };
        let own = TenantOverride {
            descriptor: ["a:b", "c"].into_iter().collect(),
            requests_per_unit: 9,
            unit: Some("minute".into()),
            window: Some("10s".into()),
            burst: Some(5),
            algorithm: Some("gcra".into()),
            post_paid: Some(true),
            max_debt: Some(40),
            steps: Some(2),
            effective_at: time(3),
            expires_at: time(4),
        };
        let tenant = BulkTenant {
            tenant: Some("acme".to_owned()),
            quotas: QuotaDocument {
                plans: vec![plan],
                overrides: vec![own],
                ..QuotaDocument::default()
            },
            ..BulkTenant::default()
        };
        let text = bulk_head(BulkFormat::Csv).to_owned() + &tenant.written(BulkFormat::Csv);
        let read = read_tenants(BulkFormat::Csv, &text).expect("it is what was written");
        assert_eq!(read[0].tenant, tenant, "{text}");
    }

    /// The names of earlier versions are read in both formats.
    #[test]
    fn a_tenant_is_one_whatever_the_format_and_the_names() {
        let own = r#""overrides":[{"descriptor":"a:b","limit":5,"window":"10s","post_paid":true}]"#;
        let line = |plan: &str| format!(r#"{{"api_key":"x",{plan},{own}}}"#);
        let lines = [
            line(r#""tiers":[{"tier":"pro"}]"#),
            line(r#""plans":[{"plan":"pro"}]"#),
        ];
        let rows = [
            "tenant,plan,descriptor,requests_per_unit,window,post_paid\nx,pro,a:b,5,10s,true\n",
            "api_key,tier,descriptor,limit,window,post_paid\nx,pro,,,,\nx,,a:b,5,10s,true\n",
        ];
        let read = |format, text: &str| {
            let mut all = read_tenants(format, text).expect(text);
            assert_eq!(all.len(), 1, "{text}");
            all.remove(0).tenant
        };
        let tenant = read(BulkFormat::JsonLines, &lines[0]);
        assert_eq!(tenant.tenant.as_deref(), Some("x"));
        assert_eq!(tenant.quotas.plans.len(), 1);
        assert_eq!(tenant.quotas.overrides[0].post_paid, Some(true));
        assert_eq!(read(BulkFormat::JsonLines, &lines[1]), tenant);
        for text in rows {
            assert_eq!(read(BulkFormat::Csv, text), tenant, "{text}");
        }
        let one = read(BulkFormat::JsonLines, r#"{"tenant":"x","tier":"pro"}"#);
        assert_eq!(one.quotas.plan.as_deref(), Some("pro"));
    }

    /// Otherwise the tenant would lose a limit that its row was to change.
    #[test]
    fn a_row_with_parts_of_an_override_and_no_limit_is_refused() {
        let read = |rows: &str| {
            let head = "tenant,plan,descriptor,requests_per_unit,unit,effective_at,expires_at";
            read_tenants(BulkFormat::Csv, &format!("{head}\n{rows}"))
        };
        for row in [
            "x,pro,,9,day,,\nx,,a:b,,minute,,",
            "x,pro,a:b,,,,",
            "x,,,,minute,,",
            "x,,,,,2027-01-31,",
            "x,custom,,,,,2027-01-31",
        ] {
            let refused = read(row).expect_err(row);
            let line = row.lines().count() as u64 + 1;
            assert_eq!(refused.line, line, "{row}");
            let says = refused.to_string();
            assert!(says.contains("requests_per_unit"), "{row}: {says}");
        }
        let dated = read("x,pro,,,,2027-01-31,2027-02-28\ny,,,,,,").expect("they are right");
        assert_eq!(dated[0].tenant.quotas.plans.len(), 1);
        assert_eq!(dated[1].tenant.quotas, QuotaDocument::default());
    }
}
