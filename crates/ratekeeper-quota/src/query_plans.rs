//! The ways in which databases run statements, for tests.

use ratekeeper_rules::TenantKey;
use ratekeeper_testkit::postgres::Server;
use sqlx::{AssertSqlSafe, Row};
use tempfile::TempDir;

use crate::rows::Cell;
use crate::{CallRow, DatabaseAddress, DatabaseKind, QuotaStore, UsageRow};

/// A database that ends with the test, with the calls of a hundred tenants in as many hours and minutes.
pub(crate) struct Filled {
    pub(crate) store: QuotaStore,
    _database: (Option<TempDir>, Option<Server>),
}

/// The tenants, and the hours and minutes.
const MANY: u64 = 100;

pub(crate) fn key() -> TenantKey {
    TenantKey::from_bytes([7; 16])
}

impl Filled {
    pub(crate) async fn new(kind: DatabaseKind) -> Self {
        let (address, database) = match kind {
            DatabaseKind::Sqlite => {
                let folder = tempfile::tempdir().expect("a folder can be made");
                let path = folder.path().join("quotas.db");
                (DatabaseAddress::sqlite(&path), (Some(folder), None))
            }
            DatabaseKind::Postgres => {
                let server = Server::start();
                let url = server.create("quotas");
                let address = url.parse().expect("it is an address");
                (address, (None, Some(server)))
            }
        };
        let store = QuotaStore::new(address, key()).expect("the address is right");
        let filled = Self {
            store,
            _database: database,
        };
        filled.fill().await;
        filled
    }

    async fn fill(&self) {
        let all = (0..MANY).flat_map(|time| (0..MANY).map(move |tenant| (time, tenant)));
        let calls = all.clone().map(|(hour, tenant)| CallRow {
            hour,
            domain: "d".to_owned(),
            tenant: Some(key().hash(&tenant.to_string())),
            node: "n".to_owned(),
            allowed: 1,
            denied: 0,
        });
        let usage = all.map(|(minute, tenant)| UsageRow {
            minute,
            domain: "d".to_owned(),
            tenant: Some(key().hash(&tenant.to_string())),
            rule: "d.customer".to_owned(),
            node: "n".to_owned(),
            allowed: 1,
            denied: 0,
        });
        let (calls, usage): (Vec<_>, Vec<_>) = (calls.collect(), usage.collect());
        let written = self.store.write_calls(&calls, &[]).await;
        written.expect("they can be written");
        let written = self.store.write_usage(&usage).await;
        written.expect("it can be written");
        if self.store.address.kind() == DatabaseKind::Postgres {
            let done = sqlx::query("ANALYZE").execute(&self.store.pool).await;
            done.expect("it counts its rows");
        }
    }

    /// The way in which the database runs a statement with these values.
    pub(crate) async fn plan(&self, statement: &str, values: Vec<Cell>) -> String {
        let (explain, column) = match self.store.address.kind() {
            DatabaseKind::Sqlite => ("EXPLAIN QUERY PLAN", "detail"),
            // Run, since it tells of a recursive part by having run it.
            DatabaseKind::Postgres => ("EXPLAIN (ANALYZE)", "QUERY PLAN"),
        };
        let mut query = sqlx::query(AssertSqlSafe(format!("{explain} {statement}")));
        for value in values {
            query = match value {
                Cell::Text(text) => query.bind(text),
                Cell::Number(number) => query.bind(number),
            };
        }
        let rows = query.fetch_all(&self.store.pool).await;
        let rows = rows.expect("it says how it would do that");
        let lines = rows.iter().map(|row| row.try_get::<String, _>(column));
        let lines: Result<Vec<_>, _> = lines.collect();
        lines.expect("lines of text").join("\n")
    }
}
