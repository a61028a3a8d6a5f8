//! The database of tenants, and reading one of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_rules::{TenantHash, TenantKey};
use sqlx::{Any, AnyPool, AssertSqlSafe, Row, Transaction};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tracing::warn;

use crate::database::{OPERATION_MAX, migrate, reading};
use crate::file::{FileId, make_private};
use crate::rows::{self, Cell, Kept, ROWS_MAX, tenant_columns};
use crate::{DatabaseAddress, QuotaError, TenantRecord};

/// Tenants in a database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct QuotaStore {
    pub(crate) pool: AnyPool,
    pub(crate) address: DatabaseAddress,
    key: TenantKey,
    /// The file, once its tables are up to date and known to belong to the key.
    prepared: Arc<OnceCell<FileId>>,
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
        let prepared = Arc::<OnceCell<FileId>>::default();
        Ok(Self {
            pool: address.pool(Arc::clone(&prepared))?,
            address,
            key,
            prepared,
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

    /// Brings the tables up to date, and checks that they belong to the key, both once; then checks that the file of
    /// SQLite is still in its place.
    ///
    /// # Errors
    /// The database cannot be used, has newer tables, or the hashes of another key.
    pub async fn prepare(&self) -> Result<(), QuotaError> {
        within(async {
            self.prepared.get_or_try_init(|| self.open()).await?;
            self.check_file()
        })
        .await
    }

    async fn open(&self) -> Result<FileId, QuotaError> {
        if let Some(path) = self.address.path()
            && let Err(error) = make_private(path)
        {
            warn!(%error, database = %self.address, "others can read the quota database");
        }
        migrate(&self.pool, self.address.kind()).await?;
        self.claim().await?;
        let file = self.address.file()?;
        // From now on a file that is not there is a fault, and not a new database.
        self.pool.set_connect_options(self.address.existing()?);
        Ok(file)
    }

    /// Checks that the file of SQLite is still in its place, before a change to it is confirmed.
    pub(crate) fn check_file(&self) -> Result<(), QuotaError> {
        let known = self.prepared.get();
        known.map_or(Ok(()), |known| self.address.check_file(*known))
    }

    /// Marks a new database as one of the key, or checks that it is.
    async fn claim(&self) -> Result<(), QuotaError> {
        let fingerprint = fingerprint(&self.key);
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

/// The text by which a database or a saved copy shows the key that it belongs to, and does not tell it.
pub(crate) fn fingerprint(key: &TenantKey) -> String {
    key.hash("\0ratekeeper: is this the key?").to_string()
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

impl QuotaStore {
    /// Inserts rows that no transaction holds together, some at a time. `head` and `tail` are the statement before and after
    /// its values, `cells` the values of a row.
    ///
    /// # Errors
    /// The database cannot be used; then some of the rows may have been written.
    pub(crate) async fn write_rows<T, const N: usize>(
        &self,
        (head, tail): (&str, &str),
        rows: &[T],
        cells: fn(&T) -> [Cell; N],
    ) -> Result<(), QuotaError> {
        for part in rows.chunks(ROWS_MAX) {
            let part = part.iter().map(cells).collect();
            within(async {
                let mut connection = self.pool.acquire().await?;
                rows::insert(&mut connection, head, tail, part).await?;
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

/// Runs an operation, and gives up once it takes too long: its transaction is rolled back then.
pub(crate) async fn within<T>(
    operation: impl Future<Output = Result<T, QuotaError>>,
) -> Result<T, QuotaError> {
    within_time(OPERATION_MAX, operation).await
}

/// The same, with another idea of too long.
pub(crate) async fn within_time<T>(
    most: Duration,
    operation: impl Future<Output = Result<T, QuotaError>>,
) -> Result<T, QuotaError> {
    timeout(most, operation)
        .await
        .unwrap_or(Err(QuotaError::TooSlow(most)))
}
