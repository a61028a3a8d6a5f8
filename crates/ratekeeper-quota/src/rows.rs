//! Tenants in the tables.
//!
//! Some columns have the names of their first version: `api_key` is the tenant's keyed hash, `tier` a plan, and
//! `time_window` a window.

use std::collections::HashMap;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{Dated, TenantHash, TenantOverride, TenantPlan, TenantQuotas, Term};
use sha2::{Digest, Sha256};
use sqlx::any::AnyRow;
use sqlx::{Any, AnyConnection, AssertSqlSafe, Row, Transaction};

use crate::{DatabaseKind, QuotaError, TenantId, TenantRecord};

/// A tenant, or the trace of a deleted one.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) record: TenantRecord,
    pub(crate) is_deleted: bool,
}

/// The columns that [`kept`] reads.
macro_rules! tenant_columns {
    () => {
        "t.domain, t.api_key, t.shown, t.epoch, t.version, t.created_at, t.updated_at, t.deleted_at"
    };
}
pub(crate) use tenant_columns;

fn corrupt(table: &'static str) -> QuotaError {
    QuotaError::Corrupt { table }
}

pub(crate) fn whole(number: i64, table: &'static str) -> Result<u64, QuotaError> {
    u64::try_from(number).map_err(|_| corrupt(table))
}

/// The number as databases have it; larger ones than they can hold become the largest.
pub(crate) fn stored(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The longest text of a key that is kept as it is, in bytes. An index of PostgreSQL takes less than three kilobytes.
const KEY_BYTES_MAX: usize = 1_024;

/// The text as keys have it: of a longer one the beginning, and a hash of all.
pub(crate) fn key_text(text: &str) -> String {
    if text.len() <= KEY_BYTES_MAX {
        return text.to_owned();
    }
    let digest = hex::encode(&Sha256::digest(text)[..8]);
    let most = KEY_BYTES_MAX - digest.len() - 1;
    format!("{}~{digest}", &text[..text.floor_char_boundary(most)])
}

pub(crate) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(crate) fn now() -> Timestamp {
    let now = jiff::Timestamp::now().as_microsecond();
    #[cfg(test)]
    let now = now + AHEAD_MICROS.get();
    time(now)
}

#[cfg(test)]
thread_local! {
    /// The time by which this node's clock is ahead.
    pub(crate) static AHEAD_MICROS: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
}

pub(crate) fn hash(text: &str, table: &'static str) -> Result<TenantHash, QuotaError> {
    text.parse().map_err(|_| corrupt(table))
}

/// Reads a row of `tenant`, without the tenant's plans and overrides.
pub(crate) fn kept(row: &AnyRow) -> Result<Kept, QuotaError> {
    const TABLE: &str = "tenant";
    let epoch: i64 = row.try_get("epoch")?;
    let id = TenantId {
        domain: row.try_get("domain")?,
        hash: hash(row.try_get("api_key")?, TABLE)?,
        shown: row.try_get("shown")?,
    };
    let quotas = TenantQuotas {
        epoch: u32::try_from(epoch).map_err(|_| corrupt(TABLE))?,
        ..TenantQuotas::default()
    };
    let deleted_at: Option<i64> = row.try_get("deleted_at")?;
    Ok(Kept {
        record: TenantRecord {
            id,
            quotas,
            version: whole(row.try_get("version")?, TABLE)?,
            created_at: time(row.try_get("created_at")?),
            updated_at: time(row.try_get("updated_at")?),
        },
        is_deleted: deleted_at.is_some(),
    })
}

fn term(row: &AnyRow) -> Result<Term, QuotaError> {
    let until: Option<i64> = row.try_get("expires_at")?;
    Ok(Term {
        from: time(row.try_get("effective_at")?),
        until: until.map_or(Term::ALWAYS.until, time),
    })
}

/// The end of a term as databases have it.
pub(crate) fn ends(term: Term) -> Option<i64> {
    (term.until != Term::ALWAYS.until).then(|| stored(term.until.as_micros()))
}

/// Adds their plans and overrides to tenants, at most a few hundred.
pub(crate) async fn add_quotas(
    transaction: &mut Transaction<'_, Any>,
    tenants: &mut [Kept],
) -> Result<(), QuotaError> {
    if tenants.is_empty() {
        return Ok(());
    }
    let places = tenants.iter().enumerate();
    let places: HashMap<(String, TenantHash), usize> = places
        .map(|(at, kept)| ((kept.record.id.domain.clone(), kept.record.id.hash), at))
        .collect();
    let wanted = format!(
        "(domain, api_key) IN (VALUES {})",
        parameters::<2>(kind_of(transaction), tenants.len())
    );
    let plans = format!(
        "SELECT domain, api_key, tier, effective_at, expires_at FROM tenant_plan WHERE {wanted} \
         ORDER BY effective_at"
    );
    for row in of_tenants(transaction, plans, tenants).await? {
        let Some(kept) = owner(&row, &places, tenants)? else {
            continue;
        };
        let tier: String = row.try_get("tier")?;
        let plan = TenantPlan::new(tier).during(term(&row)?);
        kept.record.quotas.plans.push(plan);
    }
    let overrides = format!(
        "SELECT domain, api_key, descriptor, requests_per_unit, unit, time_window, burst, algorithm, \
         effective_at, expires_at, steps, post_paid, max_debt FROM quota_override WHERE {wanted} ORDER BY position"
    );
    for row in of_tenants(transaction, overrides, tenants).await? {
        let Some(kept) = owner(&row, &places, tenants)? else {
            continue;
        };
        kept.record.quotas.overrides.push(tenant_override(&row)?);
    }
    Ok(())
}

/// Runs a query with domain and hash of each tenant. Its text has nothing in it but numbers of parameters.
async fn of_tenants(
    transaction: &mut Transaction<'_, Any>,
    query: String,
    tenants: &[Kept],
) -> Result<Vec<AnyRow>, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(query)).persistent(is_kept(tenants.len()));
    for kept in tenants {
        let id = &kept.record.id;
        query = query.bind(id.domain.clone()).bind(id.hash.to_string());
    }
    query.fetch_all(&mut **transaction).await
}

fn owner<'t>(
    row: &AnyRow,
    places: &HashMap<(String, TenantHash), usize>,
    tenants: &'t mut [Kept],
) -> Result<Option<&'t mut Kept>, QuotaError> {
    let domain: String = row.try_get("domain")?;
    let key = (domain, hash(row.try_get("api_key")?, "tenant_plan")?);
    let place = places.get(&key).copied();
    Ok(place.and_then(|at| tenants.get_mut(at)))
}

fn tenant_override(row: &AnyRow) -> Result<TenantOverride, QuotaError> {
    const TABLE: &str = "quota_override";
    let text = |column| -> Result<Option<Box<str>>, sqlx::Error> {
        let text: Option<String> = row.try_get(column)?;
        Ok(text.map(Into::into))
    };
    let descriptor: String = row.try_get("descriptor")?;
    let burst: Option<i64> = row.try_get("burst")?;
    let steps: Option<i64> = row.try_get("steps")?;
    let post_paid: Option<i64> = row.try_get("post_paid")?;
    let max_debt: Option<i64> = row.try_get("max_debt")?;
    let (effective_at, expires_at) = term(row)?.dates();
    Ok(TenantOverride {
        descriptor: serde_json::from_str(&descriptor).map_err(|_| corrupt(TABLE))?,
        requests_per_unit: whole(row.try_get("requests_per_unit")?, TABLE)?,
        unit: text("unit")?,
        window: text("time_window")?,
        burst: burst.map(|burst| whole(burst, TABLE)).transpose()?,
        algorithm: text("algorithm")?,
        post_paid: post_paid.map(|number| number != 0),
        max_debt: max_debt.map(|debt| whole(debt, TABLE)).transpose()?,
        steps: steps
            .map(|steps| u16::try_from(steps).map_err(|_| corrupt(TABLE)))
            .transpose()?,
        effective_at,
        expires_at,
    })
}

/// A value of a row.
pub(crate) enum Cell {
    Text(Option<String>),
    Number(Option<i64>),
}

impl Cell {
    pub(crate) fn number(number: u64) -> Self {
        Self::Number(Some(stored(number)))
    }
}

impl<T: Into<Option<String>>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

/// The most rows of one statement. Databases take 32,766 values, and a row has at most fourteen.
pub(crate) const ROWS_MAX: usize = 500;

/// Returns true if a statement for so many rows is kept prepared for the next time. Each number of rows is a statement
/// of its own, and those of hundreds take up to half a megabyte on each connection: only two are kept.
pub(crate) const fn is_kept(rows: usize) -> bool {
    rows == 1 || rows == ROWS_MAX
}

/// Inserts rows. `head` is the statement up to its values, `tail` the rest.
pub(crate) async fn insert<const N: usize>(
    connection: &mut AnyConnection,
    head: &str,
    tail: &str,
    rows: Vec<[Cell; N]>,
) -> Result<(), sqlx::Error> {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let rows: Vec<_> = rows.by_ref().take(ROWS_MAX).collect();
        let query = format!(
            "{head} VALUES {}{tail}",
            parameters::<N>(kind_of(connection), rows.len())
        );
        let mut query = sqlx::query(AssertSqlSafe(query)).persistent(is_kept(rows.len()));
        for cell in rows.into_iter().flatten() {
            query = match cell {
                Cell::Text(text) => query.bind(text),
                Cell::Number(number) => query.bind(number),
            };
        }
        query.execute(&mut *connection).await?;
    }
    Ok(())
}

/// The parameters of so many rows: `($1, $2), ($3, $4)`, and for SQLite `(?, ?), (?, ?)`. SQLite looks for the name of
/// each parameter among all of them, which takes most of the time of a statement with thousands.
pub(crate) fn parameters<const N: usize>(kind: DatabaseKind, rows: usize) -> String {
    if kind == DatabaseKind::Sqlite {
        let row = format!("({})", ["?"; N].join(", "));
        return vec![row; rows].join(", ");
    }
    let row = |at| {
        let numbers = (1..=N).map(|column| format!("${}", at * N + column));
        format!("({})", numbers.collect::<Vec<_>>().join(", "))
    };
    (0..rows).map(row).collect::<Vec<_>>().join(", ")
}

/// The kind of database that a connection is to.
pub(crate) fn kind_of(connection: &AnyConnection) -> DatabaseKind {
    match connection.backend_name() {
        "SQLite" => DatabaseKind::Sqlite,
        _ => DatabaseKind::Postgres,
    }
}

/// Deletes the plans and overrides of tenants.
pub(crate) async fn delete_quotas(
    transaction: &mut Transaction<'_, Any>,
    tenants: &[&TenantId],
) -> Result<(), QuotaError> {
    for some in tenants.chunks(ROWS_MAX) {
        let wanted = format!(
            "(domain, api_key) IN (VALUES {})",
            parameters::<2>(kind_of(transaction), some.len())
        );
        for table in ["tenant_plan", "quota_override"] {
            let query = format!("DELETE FROM {table} WHERE {wanted}");
            let mut query = sqlx::query(AssertSqlSafe(query)).persistent(is_kept(some.len()));
            for id in some {
                query = query.bind(id.domain.clone()).bind(id.hash.to_string());
            }
            query.execute(&mut **transaction).await?;
        }
    }
    Ok(())
}

/// Inserts the plans and overrides of tenants that have none.
pub(crate) async fn insert_quotas<'a>(
    transaction: &mut Transaction<'_, Any>,
    records: impl Iterator<Item = &'a TenantRecord> + Clone,
) -> Result<(), QuotaError> {
    let plans = records.clone().flat_map(|record| {
        let plans = record.quotas.plans.iter();
        plans.map(|plan| plan_row(&record.id, plan))
    });
    let head = "INSERT INTO tenant_plan (domain, api_key, tier, effective_at, expires_at)";
    insert(transaction, head, "", plans.collect()).await?;
    let overrides = records.flat_map(|record| {
        let overrides = (0..).zip(&record.quotas.overrides);
        overrides.map(|(position, own)| override_row(&record.id, position, own))
    });
    let head = "INSERT INTO quota_override (domain, api_key, descriptor, requests_per_unit, unit, time_window, \
                burst, algorithm, effective_at, expires_at, position, steps, post_paid, max_debt)";
    insert(transaction, head, "", overrides.collect()).await?;
    Ok(())
}

fn plan_row(id: &TenantId, plan: &TenantPlan) -> [Cell; 5] {
    let term = plan.term();
    // The dates are in the term. No field is left out: what has no column is lost.
    let TenantPlan {
        plan,
        effective_at: _,
        expires_at: _,
    } = plan;
    [
        id.domain.clone().into(),
        id.hash.to_string().into(),
        plan.to_string().into(),
        Cell::number(term.from.as_micros()),
        Cell::Number(ends(term)),
    ]
}

fn override_row(id: &TenantId, position: i64, own: &TenantOverride) -> [Cell; 14] {
    let term = own.term();
    // As for plans.
    let TenantOverride {
        descriptor,
        requests_per_unit,
        unit,
        window,
        burst,
        algorithm,
        post_paid,
        max_debt,
        steps,
        effective_at: _,
        expires_at: _,
    } = own;
    let text = |text: &Option<Box<str>>| Cell::Text(text.as_deref().map(str::to_owned));
    let descriptor = descriptor.iter().map(|entry| &**entry);
    [
        id.domain.clone().into(),
        id.hash.to_string().into(),
        serde_json::Value::from_iter(descriptor).to_string().into(),
        Cell::number(*requests_per_unit),
        text(unit),
        text(window),
        Cell::Number(burst.map(stored)),
        text(algorithm),
        Cell::number(term.from.as_micros()),
        Cell::Number(ends(term)),
        Cell::Number(Some(position)),
        Cell::Number(steps.map(i64::from)),
        Cell::Number(post_paid.map(i64::from)),
        Cell::Number(max_debt.map(stored)),
    ]
}
