//! The nodes that use the database, as each reports itself.

use std::time::Duration;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row};

use crate::rows::{self, stored};
use crate::store::within;
use crate::{QuotaError, QuotaStore};

const TABLE: &str = "node_report";

/// The age at which the report of a node that has not left is forgotten.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// The most nodes that are listed.
const NODES_MAX: i64 = 1_000;

/// The report of a node about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeReport {
    /// A random name of its run.
    pub instance: String,
    /// Its name.
    pub node: String,
    /// The address of its admin API.
    pub admin: String,
    /// The version of the program.
    pub program: String,
    /// The revision of the rules in force; nodes with the same rules and version have the same.
    pub rules: String,
    /// The number of the last change that is in force there.
    pub quotas_version: u64,
    /// The number of the last change of tokens that is in force there.
    pub tokens_version: u64,
    /// The number of the last change of switches that is in force there.
    pub switches_version: u64,
    /// The tokens that count there alone.
    pub local_tokens: u64,
    /// The time of its start, in seconds since 1970.
    pub started_at: u64,
}

/// A node that has reported.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KnownNode {
    /// Its last report.
    pub report: NodeReport,
    /// The age of it, by the database's clock.
    pub age: Duration,
}

impl KnownNode {
    /// The age beyond which a node counts as away: it has missed two reports.
    const AWAY_AFTER: Duration = Duration::from_secs(15);

    /// Returns true if it has reported of late.
    #[must_use]
    pub fn is_live(&self) -> bool {
        self.age <= Self::AWAY_AFTER
    }
}

impl QuotaStore {
    /// Writes the report of a node in place of its last one.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn report_node(&self, report: &NodeReport) -> Result<(), QuotaError> {
        self.prepare().await?;
        let now = self.clock();
        let query = format!(
            "INSERT INTO node_report (instance, node, admin, program, rules, quotas_version, tokens_version, \
             switches_version, local_tokens, started_at, seen_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now}) \
             ON CONFLICT (instance) DO UPDATE SET rules = excluded.rules, quotas_version = excluded.quotas_version, \
             tokens_version = excluded.tokens_version, switches_version = excluded.switches_version, \
             local_tokens = excluded.local_tokens, seen_at = excluded.seen_at"
        );
        within(async {
            sqlx::query(AssertSqlSafe(query))
                .bind(report.instance.clone())
                .bind(report.node.clone())
                .bind(report.admin.clone())
                .bind(report.program.clone())
                .bind(report.rules.clone())
                .bind(stored(report.quotas_version))
                .bind(stored(report.tokens_version))
                .bind(stored(report.switches_version))
                .bind(stored(report.local_tokens))
                .bind(stored(report.started_at))
                .execute(&self.pool)
                .await?;
            Ok(())
        })
        .await
    }

    /// Takes the report of a node away that stops.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn forget_node(&self, instance: &str) -> Result<(), QuotaError> {
        let now = self.clock();
        let query = format!("DELETE FROM node_report WHERE instance = $1 OR seen_at < {now} - $2");
        within(async {
            sqlx::query(AssertSqlSafe(query))
                .bind(instance.to_owned())
                .bind(i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX))
                .execute(&self.pool)
                .await?;
            Ok(())
        })
        .await
    }

    /// The nodes that use the database, by name: those that have not stopped, and of which something was heard within a day.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn nodes(&self) -> Result<Vec<KnownNode>, QuotaError> {
        self.prepare().await?;
        let now = self.clock();
        let query = format!(
            "SELECT instance, node, admin, program, rules, quotas_version, tokens_version, switches_version, \
             local_tokens, started_at, {now} - seen_at AS age FROM node_report \
             WHERE seen_at >= {now} - $1 ORDER BY node, started_at LIMIT $2"
        );
        within(async {
            let rows = sqlx::query(AssertSqlSafe(query))
                .bind(i64::try_from(KEPT.as_micros()).unwrap_or(i64::MAX))
                .bind(NODES_MAX)
                .fetch_all(&self.pool)
                .await?;
            rows.iter().map(read).collect()
        })
        .await
    }
}

fn read(row: &AnyRow) -> Result<KnownNode, QuotaError> {
    let number = |column: &str| rows::whole(row.try_get(column)?, TABLE);
    let age: i64 = row.try_get("age")?;
    Ok(KnownNode {
        report: NodeReport {
            instance: row.try_get("instance")?,
            node: row.try_get("node")?,
            admin: row.try_get("admin")?,
            program: row.try_get("program")?,
            rules: row.try_get("rules")?,
            quotas_version: number("quotas_version")?,
            tokens_version: number("tokens_version")?,
            switches_version: number("switches_version")?,
            local_tokens: number("local_tokens")?,
            started_at: number("started_at")?,
        },
        age: Duration::from_micros(u64::try_from(age).unwrap_or(0)),
    })
}
