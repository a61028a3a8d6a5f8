//! Changing tenants.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{RuleSet, TenantHash, TenantQuotas, Term};
use serde_json::{Value, json};
use sqlx::{Any, Row, Transaction};

use crate::audit::Entry;
use crate::rows::{self, stored};
use crate::store::{find, within};
use crate::{
    Deleted, Editor, Precondition, QuotaError, QuotaStore, TenantId, TenantRecord, Written,
};

/// A transaction that changes tenants. It holds the row of versions locked, so such transactions take place
/// one after the other.
pub(crate) struct Change {
    pub(crate) transaction: Transaction<'static, Any>,
    /// The number of the last change, in this transaction or before it.
    pub(crate) version: u64,
    pub(crate) audit_hash: String,
    pub(crate) now: Timestamp,
}

/// The quotas that a tenant is to have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenantPut {
    /// The tenant.
    pub tenant: TenantId,
    /// Its plans and overrides; the epoch is ignored.
    pub quotas: TenantQuotas,
    /// The time from which on it has them. If that is still to come, it keeps what it has until then;
    /// otherwise, as without a time, they take the place of all that it has.
    pub begins: Option<Timestamp>,
}

impl TenantPut {
    /// Quotas in place of all that the tenant has.
    #[must_use]
    pub const fn now(tenant: TenantId, quotas: TenantQuotas) -> Self {
        Self {
            tenant,
            quotas,
            begins: None,
        }
    }

    /// The quotas of a tenant that has `before`.
    fn after(&self, before: Option<&TenantQuotas>, now: Timestamp) -> TenantQuotas {
        let mut after = self.quotas.clone();
        after.epoch = before.map_or(0, |before| before.epoch);
        if let (Some(begins), Some(before)) = (self.begins.filter(|at| *at > now), before) {
            // What has ended by now is of no use any more.
            let kept = |term: &Term| {
                let until = term.until.min(begins);
                let kept = Term { until, ..*term };
                (kept.from < until && now < until).then_some(kept)
            };
            let plans = before.plans.iter();
            let plans = plans.filter_map(|(term, plan)| Some((kept(term)?, plan.clone())));
            after.plans = plans.chain(after.plans).collect();
            let overrides = before.overrides.iter();
            let overrides = overrides.filter_map(|(term, own)| Some((kept(term)?, own.clone())));
            after.overrides = overrides.chain(after.overrides).collect();
        }
        // As the database gives them back.
        after.plans.sort_by_key(|(term, _)| term.from);
        after
    }
}

/// The reason why none of several tenants was changed.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct PutAllError {
    /// The place of the tenant that is to blame; [`None`] if it is none of them.
    pub at: Option<usize>,
    /// The reason.
    pub source: QuotaError,
}

impl QuotaStore {
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
        let put = TenantPut::now(tenant.clone(), quotas.clone());
        self.put_from(&put, expected, editor, rules).await
    }

    /// Gives a tenant plans and overrides, now or from a time on. If it has them already, nothing is written.
    ///
    /// # Errors
    /// As those of [`Self::put`].
    pub async fn put_from(
        &self,
        put: &TenantPut,
        expected: Precondition,
        editor: &Editor,
        rules: &RuleSet,
    ) -> Result<Written, QuotaError> {
        put.quotas.check(&put.tenant.domain, rules)?;
        self.prepare().await?;
        within(async {
            let mut change = self.begin().await?;
            let written = change.put("put", put, expected, (editor, rules)).await?;
            if written.is_changed {
                self.commit(change).await?;
            }
            Ok(written)
        })
        .await
    }

    /// Gives several tenants plans and overrides, all of them or none.
    ///
    /// # Errors
    /// As those of [`Self::put`], with the tenant to blame.
    pub async fn put_all(
        &self,
        puts: &[TenantPut],
        editor: &Editor,
        rules: &RuleSet,
    ) -> Result<Vec<Written>, PutAllError> {
        let of = |at| {
            move |source| PutAllError {
                at: Some(at),
                source,
            }
        };
        for (at, put) in puts.iter().enumerate() {
            let checked = put.quotas.check(&put.tenant.domain, rules);
            checked.map_err(|bad| of(at)(bad.into()))?;
        }
        let of_none = |source| PutAllError { at: None, source };
        self.prepare().await.map_err(of_none)?;
        let mut blamed = None;
        let written = within(async {
            let mut change = self.begin().await?;
            let mut all = Vec::with_capacity(puts.len());
            for (at, put) in puts.iter().enumerate() {
                let put = change.put("put", put, Precondition::Any, (editor, rules));
                let put = put.await;
                if matches!(put, Err(QuotaError::Invalid(_))) {
                    blamed = Some(at);
                }
                all.push(put?);
            }
            if all.iter().any(|written: &Written| written.is_changed) {
                self.commit(change).await?;
            }
            Ok(all)
        })
        .await;
        written.map_err(|source| PutAllError { at: blamed, source })
    }

    /// Deletes the plans and overrides of a tenant, which is then on the default plan.
    ///
    /// # Errors
    /// The database does not have the tenant, it is not as `expected`, or the database cannot be used.
    pub async fn delete(
        &self,
        domain: &str,
        tenant: TenantHash,
        expected: Precondition,
        editor: &Editor,
    ) -> Result<Deleted, QuotaError> {
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
            change.note("delete", Some(&before), None, editor).await?;
            self.commit(change).await?;
            Ok(Deleted {
                version: record.version,
                record: before,
            })
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
            change
                .note("reset", before.as_ref(), Some(&record), editor)
                .await?;
            self.commit(change).await?;
            Ok(record)
        })
        .await
    }

    /// Begins a transaction that changes tenants.
    pub(crate) async fn begin(&self) -> Result<Change, QuotaError> {
        let mut transaction = self.pool.begin().await?;
        // Writes what is there already: that locks the row.
        let row = sqlx::query(
            "UPDATE quota_version SET version = version WHERE id = 1 RETURNING version, audit_hash",
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
}

impl Change {
    /// Gives a tenant quotas; `action` is the kind of change in the audit trail.
    pub(crate) async fn put(
        &mut self,
        action: &'static str,
        put: &TenantPut,
        expected: Precondition,
        (editor, rules): (&Editor, &RuleSet),
    ) -> Result<Written, QuotaError> {
        let tenant = &put.tenant;
        let before = find(&mut self.transaction, &tenant.domain, tenant.hash).await?;
        let had = before.as_ref().map(|kept| &kept.record.quotas);
        let quotas = put.after(had, self.now);
        let before = before
            .filter(|kept| !kept.is_deleted)
            .map(|kept| kept.record);
        check(expected, before.as_ref())?;
        // Together with what the tenant keeps, there may be too much.
        quotas.check(&tenant.domain, rules)?;
        if let Some(record) = before.as_ref().filter(|record| record.quotas == quotas) {
            return Ok(Written {
                record: record.clone(),
                is_new: false,
                is_changed: false,
            });
        }
        let record = self.next_record(tenant, quotas, before.as_ref());
        self.write(&record, false).await?;
        rows::replace_quotas(&mut self.transaction, tenant, &record.quotas).await?;
        self.note(action, before.as_ref(), Some(&record), editor)
            .await?;
        Ok(Written {
            is_new: before.is_none(),
            is_changed: true,
            record,
        })
    }

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
            version: self.version + 1,
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

    /// Adds the row of the audit trail for one tenant.
    async fn note(
        &mut self,
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
        self.record(&entry).await
    }
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
    let end = |term: &Term| rows::ends(term);
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
