//! Tenants in the tables.

use std::collections::HashMap;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{OwnQuota, TenantHash, TenantQuotas, Term};
use sqlx::any::AnyRow;
use sqlx::{Any, AssertSqlSafe, Row, Transaction};

use crate::{QuotaError, TenantId, TenantRecord};

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

pub(crate) fn time(micros: i64) -> Timestamp {
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}

pub(crate) fn now() -> Timestamp {
    time(jiff::Timestamp::now().as_microsecond())
}

fn hash(text: &str, table: &'static str) -> Result<TenantHash, QuotaError> {
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
pub(crate) fn ends(term: &Term) -> Option<i64> {
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
    let pairs: Vec<_> = (0..tenants.len())
        .map(|at| format!("(${}, ${})", 2 * at + 1, 2 * at + 2))
        .collect();
    let wanted = format!("(domain, api_key) IN (VALUES {})", pairs.join(", "));
    let plans = format!(
        "SELECT domain, api_key, tier, effective_at, expires_at FROM tenant_plan WHERE {wanted} \
         ORDER BY effective_at"
    );
    for row in of_tenants(transaction, plans, tenants).await? {
        let Some(kept) = owner(&row, &places, tenants)? else {
            continue;
        };
        let tier: String = row.try_get("tier")?;
        kept.record.quotas.plans.push((term(&row)?, tier.into()));
    }
    let overrides = format!(
        "SELECT domain, api_key, descriptor, requests_per_unit, unit, time_window, burst, algorithm, \
         effective_at, expires_at, steps FROM quota_override WHERE {wanted} ORDER BY position"
    );
    for row in of_tenants(transaction, overrides, tenants).await? {
        let Some(kept) = owner(&row, &places, tenants)? else {
            continue;
        };
        kept.record
            .quotas
            .overrides
            .push((term(&row)?, own_quota(&row)?));
    }
    Ok(())
}

/// Runs a query with domain and hash of each tenant. Its text has nothing in it but numbers of parameters.
async fn of_tenants(
    transaction: &mut Transaction<'_, Any>,
    query: String,
    tenants: &[Kept],
) -> Result<Vec<AnyRow>, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(query));
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

fn own_quota(row: &AnyRow) -> Result<OwnQuota, QuotaError> {
    const TABLE: &str = "quota_override";
    let text = |column| -> Result<Option<Box<str>>, sqlx::Error> {
        let text: Option<String> = row.try_get(column)?;
        Ok(text.map(Into::into))
    };
    let descriptor: String = row.try_get("descriptor")?;
    let burst: Option<i64> = row.try_get("burst")?;
    let steps: Option<i64> = row.try_get("steps")?;
    Ok(OwnQuota {
        descriptor: serde_json::from_str(&descriptor).map_err(|_| corrupt(TABLE))?,
        requests_per_unit: whole(row.try_get("requests_per_unit")?, TABLE)?,
        unit: text("unit")?,
        window: text("time_window")?,
        burst: burst.map(|burst| whole(burst, TABLE)).transpose()?,
        algorithm: text("algorithm")?,
        steps: steps
            .map(|steps| u16::try_from(steps).map_err(|_| corrupt(TABLE)))
            .transpose()?,
    })
}

/// Replaces the plans and overrides of a tenant.
pub(crate) async fn replace_quotas(
    transaction: &mut Transaction<'_, Any>,
    id: &TenantId,
    quotas: &TenantQuotas,
) -> Result<(), QuotaError> {
    let key = || (id.domain.clone(), id.hash.to_string());
    for delete in [
        "DELETE FROM tenant_plan WHERE domain = $1 AND api_key = $2",
        "DELETE FROM quota_override WHERE domain = $1 AND api_key = $2",
    ] {
        let (domain, hash) = key();
        let query = sqlx::query(delete).bind(domain).bind(hash);
        query.execute(&mut **transaction).await?;
    }
    for (term, plan) in &quotas.plans {
        let (domain, hash) = key();
        sqlx::query(
            "INSERT INTO tenant_plan (domain, api_key, tier, effective_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5)",
        )
        .bind(domain)
        .bind(hash)
        .bind(plan.to_string())
        .bind(stored(term.from.as_micros()))
        .bind(ends(term))
        .execute(&mut **transaction)
        .await?;
    }
    for (position, (term, quota)) in (0_i64..).zip(&quotas.overrides) {
        let (domain, hash) = key();
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        sqlx::query(
            "INSERT INTO quota_override (domain, api_key, descriptor, requests_per_unit, unit, time_window, \
             burst, algorithm, effective_at, expires_at, position, steps) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        )
        .bind(domain)
        .bind(hash)
        .bind(serde_json::Value::from_iter(quota.descriptor.iter().map(|entry| &**entry)).to_string())
        .bind(stored(quota.requests_per_unit))
        .bind(text(&quota.unit))
        .bind(text(&quota.window))
        .bind(quota.burst.map(stored))
        .bind(text(&quota.algorithm))
        .bind(stored(term.from.as_micros()))
        .bind(ends(term))
        .bind(position)
        .bind(quota.steps.map(i64::from))
        .execute(&mut **transaction)
        .await?;
    }
    Ok(())
}
