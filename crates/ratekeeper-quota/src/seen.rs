//! Tenants that have been seen, to tell a slip in a name.

use ratekeeper_rules::TenantHash;
use sqlx::Row;
use sqlx::any::AnyRow;

use crate::record::shown_end;
use crate::rows;
use crate::store::within;
use crate::{QuotaError, QuotaStore};

/// The most names that are compared with one.
const NAMES_MAX: i64 = 10_000;

/// The most characters by which a name is longer or shorter than one that was meant.
const LONGER_MAX: i64 = 4;

impl QuotaStore {
    /// Returns true if a call of the tenant has been written to the table of usage. Nodes write their calls every ten
    /// seconds, and rows are kept for 400 days.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn has_called(&self, domain: &str, tenant: TenantHash) -> Result<bool, QuotaError> {
        self.prepare().await?;
        within(async {
            let query = sqlx::query(
                "SELECT minute FROM quota_usage WHERE domain = $1 AND api_key = $2 LIMIT 1",
            );
            let query = query.bind(domain.to_owned()).bind(tenant.to_string());
            Ok(query.fetch_optional(&self.pool).await?.is_some())
        })
        .await
    }

    /// The names of tenants that begin as `name` does and are about as long, at most ten thousand; only the ends of those
    /// that are secret.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn names_like(&self, domain: &str, name: &str) -> Result<Vec<String>, QuotaError> {
        let first = name.chars().next().filter(|first| !first.is_control());
        let Some(first) = first else {
            return Ok(Vec::new());
        };
        self.prepare().await?;
        within(async {
            let query = sqlx::query(
                "SELECT shown FROM tenant WHERE domain = $1 AND substr(shown, 1, 1) = $2 AND shown <> $3 \
                 AND length(shown) >= $4 AND length(shown) <= $5 AND deleted_at IS NULL LIMIT $6",
            );
            let length = i64::try_from(name.chars().count()).unwrap_or(i64::MAX - LONGER_MAX);
            let rows = query
                .bind(domain.to_owned())
                .bind(first.to_string())
                .bind(crate::record::printable(name))
                .bind(length - LONGER_MAX)
                .bind(length + LONGER_MAX)
                .bind(NAMES_MAX)
                .fetch_all(&self.pool)
                .await?;
            rows.iter().map(|row| Ok(row.try_get("shown")?)).collect()
        })
        .await
    }

    /// The tenants whose values end so, at most two: of a secret value only the last characters are kept. Looks at each tenant of the
    /// domain.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn ending_in(&self, domain: &str, end: &str) -> Result<Vec<TenantHash>, QuotaError> {
        if end.contains('\0') {
            return Ok(Vec::new());
        }
        let Ok(characters) = i32::try_from(end.chars().count()) else {
            return Ok(Vec::new());
        };
        self.prepare().await?;
        within(async {
            let query = sqlx::query(
                "SELECT api_key FROM tenant WHERE domain = $1 AND (shown = $3 OR \
                 (length(shown) >= CAST($4 AS INTEGER) AND substr(shown, length(shown) - CAST($4 AS INTEGER) + 1) = $2)) \
                 AND deleted_at IS NULL LIMIT 2",
            );
            let rows = query
                .bind(domain.to_owned())
                .bind(end.to_owned())
                .bind(shown_end(end))
                .bind(characters)
                .fetch_all(&self.pool)
                .await?;
            let hash = |row: &AnyRow| rows::hash(row.try_get("api_key")?, "tenant");
            rows.iter().map(hash).collect()
        })
        .await
    }
}
