//! The identity of a database: nodes that use several by mistake give callers different plans.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};

use sqlx::Row;

use crate::rows;
use crate::store::within;
use crate::{DatabaseKind, QuotaError, QuotaStore};

/// The identity of a database.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DatabaseIdentity {
    /// A random name; a copy of a file has another one than the file.
    pub name: String,
    /// True if tenants were ever changed in it.
    pub has_changes: bool,
}

impl QuotaStore {
    /// The identity of the database.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn identity(&self) -> Result<DatabaseIdentity, QuotaError> {
        self.prepare().await?;
        let file = self.address.file()?;
        within(async {
            // The first node to ask gives it the name.
            sqlx::query(
                "UPDATE quota_version SET database_id = $1 WHERE id = 1 AND database_id IS NULL",
            )
            .bind(random_name())
            .execute(&self.pool)
            .await?;
            let row = sqlx::query("SELECT database_id, version FROM quota_version WHERE id = 1");
            let row = row.fetch_one(&self.pool).await?;
            let name: String = row.try_get("database_id")?;
            Ok(DatabaseIdentity {
                name: match self.address.kind() {
                    DatabaseKind::Sqlite => format!("{name}-{:x}", file.number()),
                    DatabaseKind::Postgres => name,
                },
                has_changes: rows::whole(row.try_get("version")?, "quota_version")? > 0,
            })
        })
        .await
    }
}

/// 128 random bits.
fn random_name() -> String {
    let bits = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", bits(), bits())
}
