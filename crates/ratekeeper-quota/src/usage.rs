//! The calls of tenants, by minute, for billing.
//!
//! Each node writes what it counted in a minute so far, as absolute numbers: writing the same again does
//! no harm.

use ratekeeper_rules::TenantHash;
use sqlx::{AssertSqlSafe, Row};

use crate::rows::{self, Cell, stored};
use crate::store::within;
use crate::{DatabaseKind, QuotaError, QuotaStore, UsagePeriod};

/// The most rows that are [forgotten](QuotaStore::forget_usage) at a time.
pub const FORGOTTEN_MAX: u64 = 100_000;

/// The rows that one statement deletes: in SQLite nobody else can write meanwhile.
const PART: u64 = 10_000;

/// The calls of one tenant by one rule, in one minute, on one node.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct UsageRow {
    /// The minute, counted from 1970 in UTC.
    pub minute: u64,
    /// The domain.
    pub domain: String,
    /// The tenant; [`None`] for those beyond what one node writes for a minute, together.
    pub tenant: Option<TenantHash>,
    /// The id of the rule; empty for those together. Of one with more than a kilobyte the database has the beginning and a
    /// hash.
    pub rule: String,
    /// The name of the node.
    pub node: String,
    /// The calls that were allowed.
    pub allowed: u64,
    /// The calls that were denied.
    pub denied: u64,
}

/// The rows of usage to read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageFilter {
    /// Only those of this tenant and its domain.
    pub tenant: Option<(String, TenantHash)>,
    /// The first minute.
    pub from: u64,
    /// The minute after the last.
    pub until: u64,
}

/// The usage from minute $1 to before minute $2, at most $3 rows, of those where `$where`.
macro_rules! usage {
    ($where:literal) => {
        concat!(
            "SELECT minute, domain, api_key, rule, node, allowed, denied FROM quota_usage \
             WHERE minute >= $1 AND minute < $2",
            $where,
            " ORDER BY minute, domain, api_key, rule, node LIMIT $3"
        )
    };
}

const USAGE: &str = usage!("");

/// Of the tenant $4, $5. A text of its own, so that the index of tenants is used.
const USAGE_OF_ONE: &str = usage!(" AND domain = $4 AND api_key = $5");

/// The name of a tenant in rows; `other` for those that are counted together.
pub(crate) fn name_of(tenant: Option<TenantHash>) -> String {
    tenant.map_or_else(|| "other".to_owned(), |tenant| tenant.to_string())
}

impl QuotaStore {
    /// Writes what a node counted, in place of what it wrote for the same minutes before.
    ///
    /// # Errors
    /// The database cannot be used; then some of the rows may have been written.
    pub async fn write_usage(&self, rows: &[UsageRow]) -> Result<(), QuotaError> {
        self.prepare().await?;
        let cells = |row: &UsageRow| {
            [
                Cell::number(row.minute),
                row.domain.clone().into(),
                name_of(row.tenant).into(),
                rows::key_text(&row.rule).into(),
                row.node.clone().into(),
                Cell::number(row.allowed),
                Cell::number(row.denied),
            ]
        };
        let head = "INSERT INTO quota_usage (minute, domain, api_key, rule, node, allowed, denied)";
        let tail = " ON CONFLICT (minute, domain, api_key, rule, node) \
                    DO UPDATE SET allowed = excluded.allowed, denied = excluded.denied";
        self.write_rows((head, tail), rows, cells).await
    }

    /// The usage that `filter` selects, oldest first; at most `most` rows.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn usage(
        &self,
        filter: &UsageFilter,
        most: u64,
    ) -> Result<Vec<UsageRow>, QuotaError> {
        self.prepare().await?;
        let query = sqlx::query(match &filter.tenant {
            None => USAGE,
            Some(_) => USAGE_OF_ONE,
        });
        let query = query.bind(stored(filter.from)).bind(stored(filter.until));
        let mut query = query.bind(stored(most));
        if let Some((domain, tenant)) = &filter.tenant {
            query = query.bind(domain.clone()).bind(tenant.to_string());
        }
        within(async {
            let rows = query.fetch_all(&self.pool).await?;
            rows.iter()
                .map(|row| {
                    let tenant: String = row.try_get("api_key")?;
                    Ok(UsageRow {
                        minute: rows::whole(row.try_get("minute")?, "quota_usage")?,
                        domain: row.try_get("domain")?,
                        tenant: tenant.parse().ok(),
                        rule: row.try_get("rule")?,
                        node: row.try_get("node")?,
                        allowed: rows::whole(row.try_get("allowed")?, "quota_usage")?,
                        denied: rows::whole(row.try_get("denied")?, "quota_usage")?,
                    })
                })
                .collect()
        })
        .await
    }

    /// Deletes the usage before a minute, and of the months before it the calls by hour and the names of those who last called
    /// then; at most [`FORGOTTEN_MAX`] rows. Returns their number: if it is less, all are gone.
    ///
    /// # Errors
    /// The database cannot be used; then some of the rows may be gone.
    pub async fn forget_usage(&self, before: u64) -> Result<u64, QuotaError> {
        self.prepare().await?;
        self.forget_rows(before, PART, FORGOTTEN_MAX).await
    }

    /// Deletes at most `most` rows in parts of `part`, each a statement.
    async fn forget_rows(&self, before: u64, part: u64, most: u64) -> Result<u64, QuotaError> {
        // A month that is added up has all of its hours, or none.
        let month = UsagePeriod::Month.begin(before / 60);
        let mut all = 0;
        for (table, column, before) in [
            ("quota_calls", "hour", month),
            ("quota_caller", "hour", month),
            ("quota_usage", "minute", before),
        ] {
            let mut deleted = part;
            while deleted >= part && all < most {
                deleted = self.forget_part(table, column, before, part).await?;
                all += deleted;
            }
        }
        Ok(all)
    }

    /// Deletes the oldest rows of a table, at most `most`.
    async fn forget_part(
        &self,
        table: &str,
        column: &str,
        before: u64,
        most: u64,
    ) -> Result<u64, QuotaError> {
        let oldest = |row: &str| {
            format!("SELECT {row} FROM {table} WHERE {column} < $1 ORDER BY {column} LIMIT $2")
        };
        let query = match self.address.kind() {
            DatabaseKind::Sqlite => {
                format!("DELETE FROM {table} WHERE rowid IN ({})", oldest("rowid"))
            }
            DatabaseKind::Postgres => format!(
                "DELETE FROM {table} WHERE ctid = ANY(ARRAY({}))",
                oldest("ctid")
            ),
        };
        within(async {
            let done = sqlx::query(AssertSqlSafe(query))
                .bind(stored(before))
                .bind(stored(most))
                .execute(&self.pool)
                .await?;
            Ok(done.rows_affected())
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_plans::Filled;
    use ratekeeper_rules::TenantKey;
    use ratekeeper_testkit::postgres::Server;

    /// Statements that the server keeps prepared for the connections of `store`.
    async fn kept(store: &QuotaStore) -> i64 {
        let (mut connections, mut kept) = (Vec::new(), 0);
        for _ in 0..4 {
            connections.push(store.pool.acquire().await.expect("it connects"));
        }
        for connection in &mut connections {
            let row = sqlx::query("SELECT count(*) AS kept FROM pg_prepared_statements");
            let row = row.fetch_one(&mut **connection).await.expect("it answers");
            kept += row.try_get::<i64, _>("kept").expect("it is a number");
        }
        kept
    }

    #[test]
    fn statements_for_each_number_of_rows_are_not_kept() {
        let server = Server::start();
        let url = server.create("quotas");
        let key = TenantKey::from_bytes([7; 16]);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime can be made").block_on(async {
            let store = QuotaStore::new(url.parse().expect("it is an address"), key.clone());
            let store = store.expect("the address is right");
            let row = |tenant: usize| UsageRow {
                minute: 7,
                domain: "d".to_owned(),
                tenant: Some(key.hash(&tenant.to_string())),
                rule: "d.customer".to_owned(),
                node: "n".to_owned(),
                allowed: 1,
                denied: 0,
            };
            let rows: Vec<_> = (0..100).map(row).collect();
            store.write_usage(&rows[..1]).await.expect("it is written");
            let before = kept(&store).await;
            for number in 1..rows.len() {
                let written = store.write_usage(&rows[..number]).await;
                written.expect("they are written");
            }
            let after = kept(&store).await;
            assert!(after < before + 10, "{after} after {before}");
        });
    }

    /// The rows of the tables that usage is in.
    async fn rows(store: &QuotaStore) -> [i64; 2] {
        let mut rows = [0; 2];
        for (table, rows) in ["quota_calls", "quota_usage"].into_iter().zip(&mut rows) {
            let count = format!("SELECT COUNT(*) AS rows FROM {table}");
            let row = sqlx::query(AssertSqlSafe(count));
            let row = row.fetch_one(&store.pool).await.expect("it answers");
            *rows = row.try_get("rows").expect("it is a number");
        }
        rows
    }

    /// Usage of the first hundred hours and minutes of 1970, a hundred rows each.
    async fn is_deleted_in_parts(kind: DatabaseKind) {
        let filled = Filled::new(kind).await;
        let store = &filled.store;
        let february = UsagePeriod::Month.end(0);
        let part = store.forget_part("quota_calls", "hour", february, 30).await;
        assert_eq!(part.expect("it answers"), 30, "one statement");
        // The calls are of January, as the first minutes are.
        let forgotten = store.forget_rows(50, 30, 90).await;
        assert_eq!(forgotten.expect("it answers"), 90);
        assert_eq!(rows(store).await, [9_970, 9_910]);
        let middle = (february - 1) * 60;
        let forgotten = store.forget_rows(middle, 700, 100_000).await;
        assert_eq!(forgotten.expect("it answers"), 9_910, "all by minute");
        assert_eq!(rows(store).await, [9_970, 0], "no part of a month");
        let forgotten = store.forget_rows(february * 60, 700, 100_000).await;
        assert_eq!(forgotten.expect("it answers"), 9_970);
        assert_eq!(rows(store).await, [0, 0]);
    }

    #[tokio::test]
    async fn sqlite_deletes_old_usage_in_parts() {
        is_deleted_in_parts(DatabaseKind::Sqlite).await;
    }

    #[tokio::test]
    async fn postgres_deletes_old_usage_in_parts() {
        is_deleted_in_parts(DatabaseKind::Postgres).await;
    }
}
