//! Reading and changing tenants.

use std::future::Future;
use std::sync::Arc;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{RuleSet, TenantHash, TenantKey, TenantQuotas};
use serde_json::{Value, json};
use sqlx::{Any, AnyPool, Row, Transaction};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::audit::Entry;
use crate::database::{OPERATION_MAX, migrate, reading};
use crate::rows::{self, Kept, stored, tenant_columns};
use crate::{DatabaseAddress, Editor, Precondition, QuotaError, TenantId, TenantRecord, Written};

/// Tenants in a database. Clones share its connections.
#[derive(Clone, Debug)]
pub struct QuotaStore {
    pub(crate) pool: AnyPool,
    pub(crate) address: DatabaseAddress,
    key: TenantKey,
    /// Set once the tables are known to be up to date and to belong to the key.
    prepared: Arc<OnceCell<()>>,
}

/// A change under way. The row of versions is locked, so changes take place one after the other.
pub(crate) struct Change {
    pub(crate) transaction: Transaction<'static, Any>,
    pub(crate) version: u64,
    pub(crate) audit_hash: String,
    pub(crate) now: Timestamp,
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
        Ok(Self {
            pool: address.pool()?,
            address,
            key,
            prepared: Arc::default(),
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

    /// Brings the tables up to date, and checks that they belong to the key; both once.
    ///
    /// # Errors
    /// The database cannot be used, has newer tables, or the hashes of another key.
    pub async fn prepare(&self) -> Result<(), QuotaError> {
        let prepare = || async {
            migrate(&self.pool, self.address.kind()).await?;
            self.claim().await
        };
        within(self.prepared.get_or_try_init(prepare))
            .await
            .map(|_| ())
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

    /// Gives a tenant these plans and overrides in place of all that it had; `quotas.epoch` is ignored.
    /// If it has them already, nothing is written. `rules` say which plans and limits there are.
    ///
    /// # Errors
    /// The quotas are impossible, the tenant is not as `expected`, or the database cannot be used: nothing
    /// is half-written then.
    pub async fn put(
        &self,
        tenant: &TenantId,
        quotas: &TenantQuotas,
        expected: Precondition,
        editor: &Editor,
        rules: &RuleSet,
    ) -> Result<Written, QuotaError> {
        quotas.check(&tenant.domain, rules)?;
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            let before = find(&mut change.transaction, &tenant.domain, tenant.hash).await?;
            let epoch = before.as_ref().map_or(0, |kept| kept.record.quotas.epoch);
            let before = before
                .filter(|kept| !kept.is_deleted)
                .map(|kept| kept.record);
            check(expected, before.as_ref())?;
            let quotas = TenantQuotas {
                epoch,
                ..quotas.clone()
            };
            if let Some(record) = before.as_ref().filter(|record| record.quotas == quotas) {
                return Ok(Written {
                    record: record.clone(),
                    is_new: false,
                    is_changed: false,
                });
            }
            let record = change.next_record(tenant, quotas, before.as_ref());
            change.write(&record, false).await?;
            rows::replace_quotas(&mut change.transaction, tenant, &record.quotas).await?;
            self.finish(change, "put", before.as_ref(), Some(&record), editor)
                .await?;
            Ok(Written {
                is_new: before.is_none(),
                is_changed: true,
                record,
            })
        })
        .await
    }

    /// Deletes the plans and overrides of a tenant, which is then on the default plan, and returns what it
    /// had.
    ///
    /// # Errors
    /// The database does not have the tenant, it is not as `expected`, or the database cannot be used.
    pub async fn delete(
        &self,
        domain: &str,
        tenant: TenantHash,
        expected: Precondition,
        editor: &Editor,
    ) -> Result<TenantRecord, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            let before = find(&mut change.transaction, domain, tenant).await?;
            let before = before
                .filter(|kept| !kept.is_deleted)
                .map(|kept| kept.record);
            check(expected, before.as_ref())?;
            let before = before.ok_or(QuotaError::NotFound)?;
            let bare = TenantQuotas {
                epoch: before.quotas.epoch,
                ..TenantQuotas::default()
            };
            let record = change.next_record(&before.id, bare, Some(&before));
            change.write(&record, true).await?;
            rows::replace_quotas(&mut change.transaction, &record.id, &record.quotas).await?;
            self.finish(change, "delete", Some(&before), None, editor)
                .await?;
            Ok(before)
        })
        .await
    }

    /// Forgets the usage of a tenant by beginning its next epoch, whether or not the database has it.
    /// Requests in flight stay counted.
    ///
    /// # Errors
    /// The tenant is not as `expected`, or the database cannot be used.
    pub async fn reset(
        &self,
        tenant: &TenantId,
        expected: Precondition,
        editor: &Editor,
    ) -> Result<TenantRecord, QuotaError> {
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            let before = find(&mut change.transaction, &tenant.domain, tenant.hash).await?;
            let is_deleted = before.as_ref().is_none_or(|kept| kept.is_deleted);
            let before = before.map(|kept| kept.record);
            let known = before.as_ref().filter(|_| !is_deleted);
            check(expected, known)?;
            let quotas = before.as_ref().map(|record| record.quotas.clone());
            let mut quotas = quotas.unwrap_or_default();
            quotas.epoch = quotas.epoch.saturating_add(1);
            let record = change.next_record(tenant, quotas, before.as_ref());
            // A tenant without quotas of its own is not listed for having been reset.
            change.write(&record, is_deleted).await?;
            self.finish(change, "reset", before.as_ref(), Some(&record), editor)
                .await?;
            Ok(record)
        })
        .await
    }

    /// Locks the row of versions and takes the next number.
    pub(crate) async fn begin(&self) -> Result<Change, QuotaError> {
        let mut transaction = self.pool.begin().await?;
        let row = sqlx::query(
            "UPDATE quota_version SET version = version + 1 WHERE id = 1 RETURNING version, audit_hash",
        )
        .fetch_one(&mut *transaction)
        .await?;
        Ok(Change {
            version: rows::whole(row.try_get("version")?, "quota_version")?,
            audit_hash: row.try_get("audit_hash")?,
            now: rows::now(),
            transaction,
        })
    }

    async fn finish(
        &self,
        change: Change,
        action: &'static str,
        before: Option<&TenantRecord>,
        after: Option<&TenantRecord>,
        editor: &Editor,
    ) -> Result<(), QuotaError> {
        let id = after.or(before).map(|record| &record.id);
        let entry = Entry {
            action,
            domain: id.map_or("", |id| &id.domain),
            subject: &id.map(|id| id.hash.to_string()).unwrap_or_default(),
            before: before.map(described),
            after: after.map(described),
            editor,
        };
        self.commit(change, &entry).await
    }
}

impl Change {
    fn next_record(
        &self,
        tenant: &TenantId,
        quotas: TenantQuotas,
        before: Option<&TenantRecord>,
    ) -> TenantRecord {
        let mut id = tenant.clone();
        // A hash alone does not say what the value looks like; an earlier change may have.
        if let Some(before) = before.filter(|_| id.shown == "…") {
            id.shown.clone_from(&before.id.shown);
        }
        TenantRecord {
            id,
            quotas,
            version: self.version,
            created_at: before.map_or(self.now, |before| before.created_at),
            updated_at: self.now,
        }
    }

    /// Writes the row of a tenant.
    async fn write(&mut self, record: &TenantRecord, is_deleted: bool) -> Result<(), QuotaError> {
        let deleted_at = is_deleted.then(|| stored(self.now.as_micros()));
        sqlx::query(
            "INSERT INTO tenant (domain, api_key, shown, epoch, version, created_at, updated_at, deleted_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
             ON CONFLICT (domain, api_key) DO UPDATE SET shown = excluded.shown, epoch = excluded.epoch, \
             version = excluded.version, created_at = excluded.created_at, \
             updated_at = excluded.updated_at, deleted_at = excluded.deleted_at",
        )
        .bind(record.id.domain.clone())
        .bind(record.id.hash.to_string())
        .bind(record.id.shown.clone())
        .bind(i64::from(record.quotas.epoch))
        .bind(stored(record.version))
        .bind(stored(record.created_at.as_micros()))
        .bind(stored(record.updated_at.as_micros()))
        .bind(deleted_at)
        .execute(&mut *self.transaction)
        .await?;
        Ok(())
    }
}

/// The tenant with this hash, or the trace of one.
async fn find(
    transaction: &mut Transaction<'_, Any>,
    domain: &str,
    tenant: TenantHash,
) -> Result<Option<Kept>, QuotaError> {
    let row = sqlx::query(concat!(
        "SELECT ",
        tenant_columns!(),
        " FROM tenant t WHERE t.domain = $1 AND t.api_key = $2"
    ))
    .bind(domain.to_owned())
    .bind(tenant.to_string())
    .fetch_optional(&mut **transaction)
    .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let mut found = [rows::kept(&row)?];
    rows::add_quotas(transaction, &mut found).await?;
    let [kept] = found;
    Ok(Some(kept))
}

fn check(expected: Precondition, current: Option<&TenantRecord>) -> Result<(), QuotaError> {
    let current = current.map(|record| record.version);
    match expected.holds(current) {
        true => Ok(()),
        false => Err(QuotaError::Changed { current }),
    }
}

/// A tenant in the audit trail.
fn described(record: &TenantRecord) -> Value {
    let end = |term: &ratekeeper_rules::Term| rows::ends(term);
    let plans = record.quotas.plans.iter();
    let plans = plans.map(|(term, plan)| {
        json!({ "plan": plan, "effective_at": term.from.as_micros(), "expires_at": end(term) })
    });
    let overrides = record.quotas.overrides.iter();
    let overrides = overrides.map(|(term, quota)| {
        json!({ "limit": quota, "effective_at": term.from.as_micros(), "expires_at": end(term) })
    });
    json!({
        "shown": record.id.shown,
        "version": record.version,
        "epoch": record.quotas.epoch,
        "plans": plans.collect::<Vec<_>>(),
        "overrides": overrides.collect::<Vec<_>>(),
    })
}

/// Runs an operation, and gives up once it takes too long: its transaction is rolled back then.
pub(crate) async fn within<T>(
    operation: impl Future<Output = Result<T, QuotaError>>,
) -> Result<T, QuotaError> {
    let ended = timeout(OPERATION_MAX, operation).await;
    ended.unwrap_or(Err(QuotaError::TooSlow(OPERATION_MAX)))
}
