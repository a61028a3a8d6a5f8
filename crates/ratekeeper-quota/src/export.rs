//! The position of each export of the audit trail, and the node that exports it.
//!
//! A node claims a target for a while, and confirms what the target has taken. Both go by the clock of the database, so
//! nodes need not agree about the time. A node that was held up for longer than its claim may send rows that the next
//! one sends as well; it cannot move the position back.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};

use crate::database::DatabaseKind;
use crate::rows::{self, stored};
use crate::store::within;
use crate::{QuotaError, QuotaStore};

/// A node's right to export the audit trail to a target.
#[derive(Clone, Debug)]
pub struct ExportClaim {
    /// The target: its address without credentials, and the name of the stream there.
    pub target: String,
    /// The node.
    pub holder: String,
    /// The time for which a claim or a confirmation keeps other nodes away.
    pub lease: Duration,
}

impl QuotaStore {
    /// Claims a target, or keeps it claimed. Returns the last row that the target has confirmed, 0 at first; [`None`]
    /// while another node has it.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn claim_export(&self, claim: &ExportClaim) -> Result<Option<u64>, QuotaError> {
        self.prepare().await?;
        let now = self.clock();
        let query = format!(
            "INSERT INTO audit_export (target, version, holder, held_until) VALUES ($1, 0, $2, {now} + $3) \
             ON CONFLICT (target) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until \
             WHERE audit_export.holder = excluded.holder OR audit_export.held_until < {now} RETURNING version"
        );
        within(async {
            let row = sqlx::query(AssertSqlSafe(query))
                .bind(claim.target.clone())
                .bind(claim.holder.clone())
                .bind(claim.lease_micros())
                .fetch_optional(&self.pool)
                .await?;
            let version = row.map(|row| row.try_get("version")).transpose()?;
            version
                .map(|version| rows::whole(version, "audit_export"))
                .transpose()
        })
        .await
    }

    /// Records that the target has all rows up to `version`, and keeps it claimed; false if another node has it by now.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn confirm_export(
        &self,
        claim: &ExportClaim,
        version: u64,
    ) -> Result<bool, QuotaError> {
        let now = self.clock();
        let query = format!(
            "UPDATE audit_export SET version = $1, held_until = {now} + $2 \
             WHERE target = $3 AND holder = $4 AND version <= $1"
        );
        within(async {
            let confirmed = sqlx::query(AssertSqlSafe(query))
                .bind(stored(version))
                .bind(claim.lease_micros())
                .bind(claim.target.clone())
                .bind(claim.holder.clone())
                .execute(&self.pool)
                .await?;
            Ok(confirmed.rows_affected() == 1)
        })
        .await
    }

    /// Lets other nodes have the target, if this one has it.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn release_export(&self, claim: &ExportClaim) -> Result<(), QuotaError> {
        within(async {
            sqlx::query("UPDATE audit_export SET held_until = 0 WHERE target = $1 AND holder = $2")
                .bind(claim.target.clone())
                .bind(claim.holder.clone())
                .execute(&self.pool)
                .await?;
            Ok(())
        })
        .await
    }

    /// The microseconds since 1970 by the database's clock, in its SQL.
    pub(crate) fn clock(&self) -> &'static str {
        match self.address.kind() {
            DatabaseKind::Sqlite => {
                "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"
            }
            DatabaseKind::Postgres => {
                "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
            }
        }
    }
}

impl ExportClaim {
    fn lease_micros(&self) -> i64 {
        i64::try_from(self.lease.as_micros()).unwrap_or(i64::MAX)
    }
}
