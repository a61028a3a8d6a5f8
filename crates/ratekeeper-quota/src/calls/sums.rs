//! The sums of tenants' calls: of some tenants at a time, hour by hour.
//!
//! All rows of a month may be many millions, so no statement has to do with all of them. Tenants are found one after the other
//! in the index, and each hour's rows of some tenants lie side by side in the primary key: a page costs what its own rows do.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};
use std::sync::LazyLock;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use crate::metering::shown;
use crate::rows::{self, stored};
use crate::store::within;
use crate::{DatabaseKind, QuotaError, QuotaStore, UsageFilter};

/// The tenants whose calls are added up together: as many as are wanted, within bounds. Some may have no calls then.
const TENANTS: RangeInclusive<usize> = 100..=1_000;

/// The hours that one statement adds up.
const HOURS: usize = 24;

/// A domain and the hash of a tenant in it, by which calls are ordered; both are empty before the first.
pub(crate) type TenantPlace = (String, String);

/// A tenant with calls, with its name.
pub(crate) struct Caller {
    pub(crate) place: TenantPlace,
    pub(crate) shown: Option<String>,
}

/// Allowed and denied calls.
pub(crate) type CallSums = HashMap<TenantPlace, (u64, u64)>;

/// The tenants with calls after domain $1 and hash $2, at most $3. Each step finds the first row after all of one tenant. Were
/// both sides columns, SQLite would compare by the domain alone, and step over all rows of it.
const CALLERS: &str = concat!(
    "WITH RECURSIVE caller (domain, api_key, place) AS (SELECT CAST($1 AS TEXT), CAST($2 AS TEXT), 0 UNION ALL SELECT \
     (SELECT n.domain FROM quota_calls n WHERE (n.domain, n.api_key, n.hour) > (p.domain || '', p.api_key || '', 9223372036854775807) \
     ORDER BY n.domain, n.api_key, n.hour LIMIT 1), \
     (SELECT n.api_key FROM quota_calls n WHERE (n.domain, n.api_key, n.hour) > (p.domain || '', p.api_key || '', 9223372036854775807) \
     ORDER BY n.domain, n.api_key, n.hour LIMIT 1), \
     p.place + 1 FROM caller p WHERE p.domain IS NOT NULL AND p.place < $3) \
     SELECT u.domain, u.api_key, ",
    shown!(),
    " AS shown FROM caller u LEFT JOIN tenant t ON t.domain = u.domain AND t.api_key = u.api_key \
     LEFT JOIN quota_caller c ON c.domain = u.domain AND c.api_key = u.api_key \
     WHERE u.place > 0 AND u.domain IS NOT NULL ORDER BY u.place"
);

/// The tenant of domain $1 and hash $2.
const ONE_CALLER: &str = concat!(
    "SELECT u.domain, u.api_key, ",
    shown!(),
    " AS shown FROM (SELECT CAST($1 AS TEXT) AS domain, CAST($2 AS TEXT) AS api_key) AS u \
     LEFT JOIN tenant t ON t.domain = u.domain AND t.api_key = u.api_key \
     LEFT JOIN quota_caller c ON c.domain = u.domain AND c.api_key = u.api_key"
);

/// The columns of sums.
macro_rules! sums {
    () => {
        "SELECT domain, api_key, CAST(SUM(allowed) AS BIGINT) AS allowed, CAST(SUM(denied) AS BIGINT) AS denied FROM "
    };
}

/// The calls of the tenant $1, $2 from hour $3 to before hour $4.
const SUMS_OF_ONE: &str = concat!(
    sums!(),
    "quota_calls WHERE domain = $1 AND api_key = $2 AND hour >= $3 AND hour < $4 GROUP BY domain, api_key"
);

static SUMS_SQLITE: LazyLock<String> = LazyLock::new(|| sums_of_many(DatabaseKind::Sqlite));

static SUMS_POSTGRES: LazyLock<String> = LazyLock::new(|| sums_of_many(DatabaseKind::Postgres));

/// The calls of tenants after $1, $2 up to $3, $4 in the hours $5 and so on.
fn sums_of_many(kind: DatabaseKind) -> String {
    let of_hour = |hour: usize| {
        let hour = hour + 5;
        let range = format!(
            "(hour, domain, api_key) > (${hour}, $1, $2) AND (hour, domain, api_key) <= (${hour}, $3, $4)"
        );
        let within = match kind {
            // Told the hour as well, it would go by that alone, and look at all tenants.
            DatabaseKind::Sqlite => range,
            // By the range alone it expects a large part of the table.
            DatabaseKind::Postgres => format!("hour = ${hour} AND {range}"),
        };
        format!("SELECT domain, api_key, allowed, denied FROM quota_calls WHERE {within}")
    };
    let hours: Vec<_> = (0..HOURS).map(of_hour).collect();
    let all = hours.join(" UNION ALL ");
    format!(concat!(sums!(), "({}) AS u GROUP BY domain, api_key"), all)
}

impl QuotaStore {
    /// The tenants with calls after `after` that `filter` selects, at any time, in order; about as many as are `wanted`, within
    /// bounds, and less only at the end.
    pub(crate) async fn callers(
        &self,
        filter: &UsageFilter,
        after: &TenantPlace,
        wanted: usize,
    ) -> Result<Vec<Caller>, QuotaError> {
        let (text, (domain, tenant)) = match &filter.tenant {
            None => (CALLERS, after.clone()),
            // After the only one there is none.
            Some(_) if !after.1.is_empty() => return Ok(Vec::new()),
            Some((domain, tenant)) => (ONE_CALLER, (domain.clone(), tenant.to_string())),
        };
        let most = wanted.clamp(*TENANTS.start(), *TENANTS.end());
        within(async {
            let query = sqlx::query(text).bind(domain).bind(tenant);
            let query = match filter.tenant {
                None => query.bind(stored(most as u64)),
                Some(_) => query,
            };
            let rows = query.fetch_all(&self.pool).await?;
            let read = |row: &AnyRow| {
                Ok(Caller {
                    place: place(row)?,
                    shown: row.try_get("shown")?,
                })
            };
            rows.iter().map(read).collect()
        })
        .await
    }

    /// The calls in `hours` of those tenants that `filter` selects, after one up to another.
    pub(crate) async fn sums(
        &self,
        filter: &UsageFilter,
        hours: Range<u64>,
        after: &TenantPlace,
        until: &TenantPlace,
    ) -> Result<CallSums, QuotaError> {
        let mut sums = CallSums::new();
        if let Some((domain, tenant)) = &filter.tenant {
            let query = sqlx::query(SUMS_OF_ONE);
            let query = query.bind(domain.clone()).bind(tenant.to_string());
            let query = query.bind(stored(hours.start)).bind(stored(hours.end));
            let rows = within(async { Ok(query.fetch_all(&self.pool).await?) });
            add(&mut sums, &rows.await?)?;
            return Ok(sums);
        }
        let text = match self.address.kind() {
            DatabaseKind::Sqlite => &SUMS_SQLITE,
            DatabaseKind::Postgres => &SUMS_POSTGRES,
        };
        for first in hours.clone().step_by(HOURS) {
            let mut query = sqlx::query(AssertSqlSafe(text.as_str()));
            for text in [&after.0, &after.1, &until.0, &until.1] {
                query = query.bind(text.clone());
            }
            for hour in (first..).take(HOURS) {
                // No row has a negative hour.
                query = query.bind(if hours.contains(&hour) {
                    stored(hour)
                } else {
                    -1
                });
            }
            let rows = within(async { Ok(query.fetch_all(&self.pool).await?) });
            add(&mut sums, &rows.await?)?;
        }
        Ok(sums)
    }
}

fn place(row: &AnyRow) -> Result<TenantPlace, QuotaError> {
    Ok((row.try_get("domain")?, row.try_get("api_key")?))
}

fn add(sums: &mut CallSums, rows: &[AnyRow]) -> Result<(), QuotaError> {
    const TABLE: &str = "quota_calls";
    for row in rows {
        let sum = sums.entry(place(row)?).or_default();
        sum.0 = sum
            .0
            .saturating_add(rows::whole(row.try_get("allowed")?, TABLE)?);
        sum.1 = sum
            .1
            .saturating_add(rows::whole(row.try_get("denied")?, TABLE)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plans::Filled;
    use crate::rows::Cell;

    fn text(text: &str) -> Cell {
        text.to_owned().into()
    }

    fn hours() -> impl Iterator<Item = Cell> {
        (10..).take(HOURS).map(Cell::number)
    }

    #[tokio::test]
    async fn sqlite_reads_the_rows_of_a_page_alone() {
        let filled = Filled::new(DatabaseKind::Sqlite).await;
        let after = vec![text(""), text(""), Cell::number(10)];
        let plan = filled.plan(CALLERS, after).await;
        let step =
            "SEARCH n USING COVERING INDEX quota_calls_tenant ((domain,api_key,hour)>(?,?,?))";
        assert_eq!(plan.matches(step).count(), 2, "{plan}");
        let range = ["d", "1", "d", "3"].map(text).into_iter();
        let plan = filled.plan(&SUMS_SQLITE, range.chain(hours()).collect());
        let plan = plan.await;
        let of_hour = "((hour,domain,api_key)>(?,?,?) AND (hour,domain,api_key)<(?,?,?))";
        assert_eq!(plan.matches(of_hour).count(), HOURS, "{plan}");
        let one = vec![text("d"), text("1"), Cell::number(10), Cell::number(20)];
        let plan = filled.plan(SUMS_OF_ONE, one).await;
        let of_one = "quota_calls_tenant (domain=? AND api_key=? AND hour>? AND hour<?)";
        assert!(plan.contains(of_one), "{plan}");
    }

    #[tokio::test]
    async fn postgres_reads_the_rows_of_a_page_alone() {
        let filled = Filled::new(DatabaseKind::Postgres).await;
        let after = vec![text(""), text(""), Cell::number(10)];
        let plan = filled.plan(CALLERS, after).await;
        let step = "Index Only Scan using quota_calls_tenant";
        assert_eq!(plan.matches(step).count(), 2, "{plan}");
        let range = ["d", "1", "d", "9"].map(text).into_iter();
        let plan = filled.plan(&SUMS_POSTGRES, range.chain(hours()).collect());
        let plan = plan.await;
        let of_hour = "Index Scan using quota_calls_pkey";
        assert_eq!(plan.matches(of_hour).count(), HOURS, "{plan}");
        assert!(!plan.contains("Seq Scan on quota_calls"), "{plan}");
    }
}
