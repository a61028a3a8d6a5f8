//! The database of tenants, and reading one of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use ratekeeper_rules::{TenantHash, TenantKey};
use sqlx::{Any, AnyPool, AssertSqlSafe, Row, Transaction};
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::database::{OPERATION_MAX, migrate, reading};
use crate::file::{FileId, Replaced};
use crate::rows::{self, Kept, tenant_columns};
use crate::{DatabaseAddress, QuotaError, TenantRecord};

/// Tenants in a database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct QuotaStore {
    pub(crate) pool: AnyPool,
    pub(crate) address: DatabaseAddress,
    key: TenantKey,
    /// The file whose tables are known to be up to date and to belong to the key.
    prepared: Arc<Mutex<Option<FileId>>>,
    replaced: Replaced,
}

impl QuotaStore {
    /// The tenants in the database at `address`, whose values are hashed under `key`. Connects when it is
    /// first asked something, and again whenever the connection is lost.
    ///
    /// # Errors
    /// The address is wrong.
    ///
    /// # Panics
    /// If it is called outside a Tokio runtime.
    pub fn new(address: DatabaseAddress, key: TenantKey) -> Result<Self, QuotaError> {
        let replaced = Replaced::default();
        Ok(Self {
            pool: address.pool(replaced.clone())?,
            address,
            key,
            prepared: Arc::default(),
            replaced,
        })
    }

    /// The key that tenants' values are hashed under.
    #[must_use]
    pub const fn key(&self) -> &TenantKey {
        &self.key
    }

    /// The address of the database.
    #[must_use]
    pub const fn address(&self) -> &DatabaseAddress {
        &self.address
    }

    /// Brings the tables up to date, and checks that they belong to the key; both once, and again if the file of SQLite
    /// was replaced.
    ///
    /// # Errors
    /// The database cannot be used, has newer tables, or the hashes of another key.
    pub async fn prepare(&self) -> Result<(), QuotaError> {
        within(async {
            let mut prepared = self.prepared.lock().await;
            let there = self.address.file();
            match (*prepared, there, self.address.path()) {
                (Some(known), Some(there), _) if known == there => return Ok(()),
                (Some(_), None, Some(path)) => return Err(QuotaError::FileGone(path.to_owned())),
                // Connections to the file before are of no use.
                (Some(_), _, _) => self.replaced.now(),
                (None, _, _) => {}
            }
            migrate(&self.pool, self.address.kind()).await?;
            self.claim().await?;
            *prepared = self.address.file();
            Ok(())
        })
        .await
    }

    /// Checks that the file of SQLite is still in its place, before a change to it is confirmed.
    pub(crate) async fn check_file(&self) -> Result<(), QuotaError> {
        let known = *self.prepared.lock().await;
        match self.address.path() {
            Some(path) if known != self.address.file() => {
                Err(QuotaError::FileGone(path.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// The last time that another file was found in the place of the database's.
    pub(crate) fn replaced_at(&self) -> Option<Instant> {
        self.replaced.at()
    }

    /// Marks a new database as one of the key, or checks that it is.
    async fn claim(&self) -> Result<(), QuotaError> {
        let fingerprint = self.key.hash("\0ratekeeper: is this the key?").to_string();
        sqlx::query("UPDATE quota_version SET tenant_key = $1 WHERE id = 1 AND tenant_key IS NULL")
            .bind(fingerprint.clone())
            .execute(&self.pool)
            .await?;
        let row = sqlx::query("SELECT tenant_key FROM quota_version WHERE id = 1");
        let known: Option<String> = row.fetch_one(&self.pool).await?.try_get("tenant_key")?;
        match known {
            Some(known) if known == fingerprint => Ok(()),
            _ => Err(QuotaError::OtherKey),
        }
    }

    /// The number of the last change.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn version(&self) -> Result<u64, QuotaError> {
        self.prepare().await?;
        within(async {
            let row = sqlx::query("SELECT version FROM quota_version WHERE id = 1");
            let row = row.fetch_one(&self.pool).await?;
            rows::whole(row.try_get("version")?, "quota_version")
        })
        .await
    }

    /// The tenant with this hash; [`None`] if the database does not have it.
    ///
    /// # Errors
    /// The database cannot be used.
    pub async fn get(
        &self,
        domain: &str,
        tenant: TenantHash,
    ) -> Result<Option<TenantRecord>, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut transaction = reading(&self.pool, self.address.kind()).await?;
            let found = find(&mut transaction, domain, tenant).await?;
            let found = found.filter(|kept| !kept.is_deleted);
            Ok(found.map(|kept| kept.record))
        })
        .await
    }
}

/// The tenant with this hash, or the trace of one.
pub(crate) async fn find(
    transaction: &mut Transaction<'_, Any>,
    domain: &str,
    tenant: TenantHash,
) -> Result<Option<Kept>, QuotaError> {
    let mut found = find_all(transaction, &[(domain, tenant)]).await?;
    Ok(found.pop())
}

/// Those of the tenants that there are, or traces of, in no order; at most a few hundred.
pub(crate) async fn find_all(
    transaction: &mut Transaction<'_, Any>,
    tenants: &[(&str, TenantHash)],
) -> Result<Vec<Kept>, QuotaError> {
    if tenants.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!(
        concat!(
            "SELECT ",
            tenant_columns!(),
            " FROM tenant t WHERE (t.domain, t.api_key) IN (VALUES {})"
        ),
        rows::parameters::<2>(rows::kind_of(transaction), tenants.len())
    );
    let mut query = sqlx::query(AssertSqlSafe(query)).persistent(rows::is_kept(tenants.len()));
    for (domain, tenant) in tenants {
        query = query.bind((*domain).to_owned()).bind(tenant.to_string());
    }
    let found = query.fetch_all(&mut **transaction).await?;
    let found = found.iter().map(rows::kept);
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    rows::add_quotas(transaction, &mut found).await?;
    Ok(found)
}

/// Runs an operation, and gives up once it takes too long: its transaction is rolled back then.
pub(crate) async fn within<T>(
    operation: impl Future<Output = Result<T, QuotaError>>,
) -> Result<T, QuotaError> {
    let ended = timeout(OPERATION_MAX, operation).await;
    ended.unwrap_or(Err(QuotaError::TooSlow(OPERATION_MAX)))
}
