//! The calls of tenants, by minute, for billing.
//!
//! Each node writes what it counted in a minute so far, as absolute numbers: writing the same again does
//! no harm.

use ratekeeper_rules::TenantHash;
use sqlx::Row;

use crate::rows::{self, Cell, stored};
use crate::store::within;
use crate::{QuotaError, QuotaStore};

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

impl UsageFilter {
    /// The domain and the hash of the tenant that is asked for; both are empty if none is.
    pub(crate) fn named(&self) -> (String, String) {
        match &self.tenant {
            Some((domain, tenant)) => (domain.clone(), tenant.to_string()),
            None => Default::default(),
        }
    }
}

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
        let (domain, tenant) = filter.named();
        within(async {
            let rows = sqlx::query(
                "SELECT minute, domain, api_key, rule, node, allowed, denied FROM quota_usage \
                 WHERE minute >= $1 AND minute < $2 AND ($3 = '' OR (domain = $4 AND api_key = $3)) \
                 ORDER BY minute, domain, api_key, rule, node LIMIT $5",
            )
            .bind(stored(filter.from))
            .bind(stored(filter.until))
            .bind(tenant)
            .bind(domain)
            .bind(stored(most))
            .fetch_all(&self.pool)
            .await?;
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

    /// Deletes the usage before a minute, and the names of those who last called before it.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn forget_usage(&self, before: u64) -> Result<u64, QuotaError> {
        self.prepare().await?;
        for statement in [
            "DELETE FROM quota_calls WHERE hour < $1",
            "DELETE FROM quota_caller WHERE hour < $1",
        ] {
            within(async {
                let done = sqlx::query(statement).bind(stored(before / 60));
                done.execute(&self.pool).await?;
                Ok(())
            })
            .await?;
        }
        within(async {
            let done = sqlx::query("DELETE FROM quota_usage WHERE minute < $1")
                .bind(stored(before))
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
}
