//! The database of tenants, and reading one of them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_rules::{TenantHash, TenantKey};
use sqlx::{Any, AnyPool, AssertSqlSafe, Row, Transaction};
use tokio::spawn;
use tokio::sync::{Mutex, OnceCell};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::database::{OPERATION_MAX, is_up_to_date, migrate, reading};
use crate::file::{FileId, make_private};
use crate::reach::Reach;
use crate::rows::{self, Cell, Kept, ROWS_MAX, tenant_columns};
use crate::{DatabaseAddress, QuotaError, TenantRecord};

/// The connections for all but following: exports, imports, changes and usage may be slow, and wait for each other.
pub(crate) const CONNECTIONS: u32 = 4;

/// Those beside them of who never waits for others: one is used, and a second takes its place while the first, given up in
/// the middle of a query, waits for a server that may not answer any more.
const KEPT_CONNECTIONS: u32 = 2;

/// Tenants in a database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct QuotaStore {
    /// The connections that this one uses.
    pub(crate) pool: AnyPool,
    /// Those for all that happens now and then, and the one that is [kept](Self::with_kept_connection) free of it.
    pools: [AnyPool; 2],
    pub(crate) address: DatabaseAddress,
    key: TenantKey,
    /// The file, once its tables are up to date and known to belong to the key.
    prepared: Arc<OnceCell<FileId>>,
    /// Held by the one who opens the database.
    opening: Arc<Mutex<()>>,
    /// The answers to the question if somebody listens at its address.
    reach: Arc<Reach>,
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
        let pools = [
            address.pool(CONNECTIONS, Arc::clone(&prepared))?,
            address.pool(KEPT_CONNECTIONS, Arc::clone(&prepared))?,
        ];
        Ok(Self {
            pool: pools[0].clone(),
            pools,
            address,
            key,
            prepared,
            opening: Arc::default(),
            reach: Arc::default(),
        })
    }

    /// The same tenants, over a connection that slow operations of others never occupy.
    pub(crate) fn with_kept_connection(self) -> Self {
        let [_, kept] = &self.pools;
        Self {
            pool: kept.clone(),
            ..self
        }
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
    /// SQLite is still in its place. New tables for many rows may take longer than this waits; they are made all the same.
    ///
    /// # Errors
    /// The database cannot be used, has newer tables, or the hashes of another key.
    pub async fn prepare(&self) -> Result<(), QuotaError> {
        within(self.migrate()).await
    }

    /// The same, and waits for new tables as long as they take.
    ///
    /// # Errors
    /// As those of [`Self::prepare`].
    pub async fn migrate(&self) -> Result<(), QuotaError> {
        match self.prepared.get() {
            None => self.opened().await?,
            Some(_) => self.check_reachable().await?,
        }
        self.check_file()
    }

    /// Finds out whether somebody listens where a connection has to be made, and where nobody did the last time: a pool would
    /// wait for a server that is not there.
    async fn check_reachable(&self) -> Result<(), QuotaError> {
        if self.pool.size() > 0 && !self.reach.is_refused() {
            return Ok(());
        }
        self.reach.check(self.address.check_reachable()).await
    }

    /// Opens the database, unless somebody else has done so meanwhile.
    async fn opened(&self) -> Result<(), QuotaError> {
        let turn = Arc::clone(&self.opening).lock_owned().await;
        if self.prepared.get().is_some() {
            return Ok(());
        }
        let store = self.clone();
        // A task, which whoever waits for it does not end by giving up: each would begin at the beginning.
        let opening = spawn(async move {
            let _turn = turn;
            let file = store.open().await?;
            // Nobody else sets it, for it is our turn.
            let _ = store.prepared.set(file);
            Ok(())
        });
        joined(opening).await
    }

    async fn open(&self) -> Result<FileId, QuotaError> {
        self.check_reachable().await?;
        if let Some(path) = self.address.path()
            && let Err(error) = make_private(path)
        {
            warn!(%error, database = %self.address, "others can read the quota database");
        }
        let kind = self.address.kind();
        // Only making the tables may take long.
        if !within(async { Ok(is_up_to_date(&self.pool, kind).await) }).await? {
            migrate(&self.pool, kind).await?;
        }
        within(self.claim()).await?;
        let file = self.address.file()?;
        // From now on a file that is not there is a fault, and not a new database.
        for pool in &self.pools {
            pool.set_connect_options(self.address.existing()?);
        }
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

/// The result of a task. A panic in it goes on here.
pub(crate) async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime shuts down, and this task with it.
            Err(_) => std::future::pending().await,
        },
    }
}
