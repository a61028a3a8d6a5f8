//! The last change of a database, by which a copy knows how far it is in step.
//!
//! A number alone does not tell: a standby that takes over without the last changes gives their numbers to others. The audit
//! trail has a hash for each number, and each hash is one of all changes before.

use sqlx::Row;

use crate::rows::{self, stored};
use crate::store::within;
use crate::{QuotaError, QuotaStore};

/// A change: its number and its hash in the audit trail. By default there was none yet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Head {
    pub(crate) version: u64,
    pub(crate) hash: String,
}

/// The last change, seen from one that is known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Newest {
    pub(crate) head: Head,
    /// False if the database never had the known change, or has it no longer.
    pub(crate) goes_on: bool,
}

impl QuotaStore {
    /// The last change, and if it goes on from `known`.
    pub(crate) async fn newest(&self, known: &Head) -> Result<Newest, QuotaError> {
        self.prepare().await?;
        within(async {
            let row = sqlx::query(
                "SELECT v.version, v.audit_hash, a.hash FROM quota_version v \
                 LEFT JOIN quota_audit a ON a.version = $1 WHERE v.id = 1",
            );
            let row = row
                .bind(stored(known.version))
                .fetch_one(&self.pool)
                .await?;
            let head = Head {
                version: rows::whole(row.try_get("version")?, "quota_version")?,
                hash: row.try_get("audit_hash")?,
            };
            let there: Option<String> = row.try_get("hash")?;
            let goes_on = match known.version {
                0 => true,
                version if version == head.version => head == *known,
                version => version < head.version && there.as_ref() == Some(&known.hash),
            };
            Ok(Newest { head, goes_on })
        })
        .await
    }

    /// The change with this number. Without one, its hash is that of none.
    pub(crate) async fn head_at(&self, version: u64) -> Result<Head, QuotaError> {
        within(async {
            let row = sqlx::query("SELECT hash FROM quota_audit WHERE version = $1");
            let row = row.bind(stored(version)).fetch_optional(&self.pool).await?;
            let hash = row.map(|row| row.try_get("hash")).transpose()?;
            Ok(Head {
                version,
                hash: hash.unwrap_or_default(),
            })
        })
        .await
    }
}
