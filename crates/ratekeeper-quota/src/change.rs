//! Changing tenants.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{BadQuotas, ListedTenant, QuotaList, RuleSet, TenantHash, TenantQuotas};
use serde_json::Value;
use sqlx::{Any, AssertSqlSafe, Row, Transaction};

use crate::audit::Entry;
use crate::audited::AuditedTenant;
use crate::database::reading;
use crate::document::replaced;
use crate::rows::{self, Cell, Kept, stored};
use crate::store::{find, find_all, within, within_time};
use crate::{
    Deleted, Editor, HIDDEN, Precondition, QuotaError, QuotaStore, TenantId, TenantRecord, Written,
};

/// The longest that many tenants may take together; other changes wait for that long.
const PUT_ALL_MAX: Duration = Duration::from_secs(30);

/// A transaction that changes tenants. It holds the row of versions locked, so such transactions take place
/// one after the other.
pub(crate) struct Change {
    pub(crate) transaction: Transaction<'static, Any>,
    /// The number of the last change, in this transaction or before it.
    pub(crate) version: u64,
    pub(crate) audit_hash: String,
    pub(crate) now: Timestamp,
    /// The microseconds since 1970 by the database's clock.
    pub(crate) database_now: i64,
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
    /// The plans and overrides that files give it: what it has, as long as the database does not have it.
    pub listed: Option<ListedTenant>,
}

impl TenantPut {
    /// Quotas in place of all that the tenant has.
    #[must_use]
    pub const fn now(tenant: TenantId, quotas: TenantQuotas) -> Self {
        Self {
            tenant,
            quotas,
            begins: None,
            listed: None,
        }
    }

    /// The quotas of the tenant, of whom the database knew this.
    fn after(&self, known: Option<&Kept>, now: Timestamp) -> TenantQuotas {
        let has = known.filter(|kept| !kept.is_deleted);
        let has = has.map(|kept| &kept.record.quotas);
        let listed = self.listed.as_ref().map(|listed| &listed.quotas);
        let before = has.or(listed);
        TenantQuotas {
            epoch: known.map_or(0, |kept| kept.record.quotas.epoch),
            ..replaced(before, &self.quotas, self.begins, now)
        }
    }

    /// Checks what the tenant will have `after`, in which there is what it keeps until then. A mistake has the place that
    /// it has in what was sent.
    fn check_after(&self, after: &TenantQuotas, rules: &RuleSet) -> Result<(), BadQuotas> {
        let checked = after.check(&self.tenant.domain, rules);
        checked.map_err(|bad| self.as_sent(after, bad))
    }

    fn as_sent(&self, after: &TenantQuotas, mut bad: BadQuotas) -> BadQuotas {
        let (list, at) = match &mut bad {
            BadQuotas::BeginsTwice { list, at } | BadQuotas::EndsBeforeItBegins { list, at } => {
                (*list, at)
            }
            BadQuotas::NoPlan { at, .. } => (QuotaList::Plans, at),
            BadQuotas::NoLimit { at, .. } => (QuotaList::Overrides, at),
            _ => return bad,
        };
        let place = match list {
            QuotaList::Plans => place_in(&self.quotas.plans, after.plans.get(*at)),
            QuotaList::Overrides => place_in(&self.quotas.overrides, after.overrides.get(*at)),
        };
        // What it keeps was not sent.
        *at = place.unwrap_or(*at);
        bad
    }
}

fn place_in<T: PartialEq>(sent: &[T], part: Option<&T>) -> Option<usize> {
    sent.iter().position(|own| Some(own) == part)
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
    /// Gives a tenant plans and overrides, now or from a time on. If it has them already, nothing is written. `rules` say
    /// which plans and limits there are.
    ///
    /// # Errors
    /// The quotas are impossible, the tenant is not as `expected`, or the database cannot be used: nothing
    /// is half-written then.
    pub async fn put(
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
        check_each(puts, rules)?;
        let of_none = |source| PutAllError { at: None, source };
        self.prepare().await.map_err(of_none)?;
        let mut blamed = None;
        let written = within_time(PUT_ALL_MAX, async {
            let mut change = self.begin().await?;
            let mut all = Vec::with_capacity(puts.len());
            while all.len() < puts.len() {
                let some = distinct(&puts[all.len()..]);
                let put = change.put_several("put", some, Precondition::Any, (editor, rules));
                all.extend(put.await.map_err(|error| {
                    blamed = error.at.map(|at| all.len() + at);
                    error.source
                })?);
            }
            if all.iter().any(|written: &Written| written.is_changed) {
                self.commit(change).await?;
            }
            Ok(all)
        })
        .await;
        written.map_err(|source| PutAllError { at: blamed, source })
    }

    /// Checks that [`Self::put_all`] would take these, and changes nothing. The database is read for those that begin later:
    /// they come beside what the tenant keeps until then.
    ///
    /// # Errors
    /// As those of [`Self::put_all`].
    pub async fn check_all(&self, puts: &[TenantPut], rules: &RuleSet) -> Result<(), PutAllError> {
        check_each(puts, rules)?;
        let now = rows::now();
        let later = puts.iter().enumerate();
        let later: Vec<_> = later.filter(|(_, put)| put.begins > Some(now)).collect();
        let of = |at| move |source| PutAllError { at, source };
        if later.is_empty() {
            return Ok(());
        }
        self.prepare().await.map_err(of(None))?;
        for some in later.chunks(PUTS_MAX) {
            let wanted: Vec<_> = some.iter().map(|(_, put)| put.tenant.key()).collect();
            let found = within(async {
                let mut transaction = reading(&self.pool, self.address.kind()).await?;
                find_all(&mut transaction, &wanted).await
            });
            let found = found.await.map_err(of(None))?;
            let found: HashMap<_, _> = found
                .iter()
                .map(|kept| (kept.record.id.key(), kept))
                .collect();
            for (at, put) in some {
                let before = found.get(&put.tenant.key()).copied();
                let quotas = put.after(before, now);
                let checked = put.check_after(&quotas, rules);
                checked.map_err(|bad| of(Some(*at))(bad.into()))?;
            }
        }
        Ok(())
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
            let version = record.version;
            change.write([&record].into_iter(), true).await?;
            rows::delete_quotas(&mut change.transaction, &[&before.id]).await?;
            change
                .audit(&audited("delete", Some(&before), None, editor))
                .await?;
            self.commit(change).await?;
            Ok(Deleted {
                version,
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
            let found = find(&mut change.transaction, &tenant.domain, tenant.hash).await?;
            let is_deleted = found.as_ref().is_none_or(|kept| kept.is_deleted);
            let found = found.map(|kept| kept.record);
            let before = found.as_ref().filter(|_| !is_deleted);
            check(expected, before)?;
            // The trace of a deleted tenant tells its name and its epoch; the tenant itself is none any more.
            let quotas = found.as_ref().map(|record| record.quotas.clone());
            let mut quotas = quotas.unwrap_or_default();
            quotas.epoch = quotas.epoch.saturating_add(1);
            let id = named(tenant, found.as_ref());
            let record = change.next_record(&id, quotas, before);
            // A tenant without quotas of its own is not listed for having been reset.
            change.write([&record].into_iter(), is_deleted).await?;
            change
                .audit(&audited("reset", before, Some(&record), editor))
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
        let query = format!(
            "UPDATE quota_version SET version = version WHERE id = 1 RETURNING version, audit_hash, {} AS now",
            self.clock()
        );
        let row = sqlx::query(AssertSqlSafe(query))
            .fetch_one(&mut *transaction)
            .await?;
        Ok(Change {
            version: rows::whole(row.try_get("version")?, "quota_version")?,
            audit_hash: row.try_get("audit_hash")?,
            now: rows::now(),
            database_now: row.try_get("now")?,
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
        by: (&Editor, &RuleSet),
    ) -> Result<Written, QuotaError> {
        let put = std::slice::from_ref(put);
        let written = self.put_several(action, put, expected, by).await;
        let mut written = written.map_err(|error| error.source)?;
        written.pop().ok_or(QuotaError::NotFound)
    }

    /// Gives different tenants quotas; at most [`PUTS_MAX`].
    async fn put_several(
        &mut self,
        action: &'static str,
        puts: &[TenantPut],
        expected: Precondition,
        (editor, rules): (&Editor, &RuleSet),
    ) -> Result<Vec<Written>, PutAllError> {
        let of = |at| move |source| PutAllError { at, source };
        let wanted: Vec<_> = puts.iter().map(|put| put.tenant.key()).collect();
        let found = find_all(&mut self.transaction, &wanted).await;
        let found = found.map_err(of(None))?.into_iter();
        let mut found: HashMap<_, _> = found
            .map(|kept| ((kept.record.id.domain.clone(), kept.record.id.hash), kept))
            .collect();
        let (mut all, mut audited_all) = (Vec::with_capacity(puts.len()), Vec::new());
        for (at, put) in puts.iter().enumerate() {
            let before = found.remove(&(put.tenant.domain.clone(), put.tenant.hash));
            let (before, written) = self
                .outcome(put, before, expected, rules)
                .map_err(of(Some(at)))?;
            if written.is_changed {
                let entry = audited(action, before.as_ref(), Some(&written.record), editor);
                audited_all.push(self.next_row(&entry));
            }
            all.push(written);
        }
        self.write_changed(&all).await.map_err(of(None))?;
        self.write_rows(audited_all).await.map_err(of(None))?;
        Ok(all)
    }

    /// The tenant as it was, and as it will be.
    fn outcome(
        &self,
        put: &TenantPut,
        before: Option<Kept>,
        expected: Precondition,
        rules: &RuleSet,
    ) -> Result<(Option<TenantRecord>, Written), QuotaError> {
        let quotas = put.after(before.as_ref(), self.now);
        let known = before.as_ref().map(|kept| &kept.record);
        let (was_known, id) = (known.is_some(), named(&put.tenant, known));
        let before = before
            .filter(|kept| !kept.is_deleted)
            .map(|kept| kept.record);
        check(expected, before.as_ref())?;
        if put.begins.is_some() {
            // Together with what the tenant keeps, there may be too much.
            put.check_after(&quotas, rules)?;
        }
        let had = before.as_ref().map(|record| record.quotas.clone());
        let had = had.unwrap_or_default();
        let written = match &before {
            Some(record) if record.quotas == quotas => Written {
                record: record.clone(),
                before: had,
                was_known,
                is_new: false,
                is_changed: false,
            },
            _ => Written {
                record: self.next_record(&id, quotas, before.as_ref()),
                before: had,
                was_known,
                is_new: before.is_none(),
                is_changed: true,
            },
        };
        Ok((before, written))
    }

    /// Writes the tenants that changed, with their plans and overrides.
    async fn write_changed(&mut self, all: &[Written]) -> Result<(), QuotaError> {
        let changed = all.iter().filter(|written| written.is_changed);
        let records = changed.clone().map(|written| &written.record);
        self.write(records.clone(), false).await?;
        let known = changed.filter(|written| !written.is_new);
        let known: Vec<_> = known.map(|written| &written.record.id).collect();
        rows::delete_quotas(&mut self.transaction, &known).await?;
        rows::insert_quotas(&mut self.transaction, records).await
    }

    fn next_record(
        &self,
        tenant: &TenantId,
        quotas: TenantQuotas,
        before: Option<&TenantRecord>,
    ) -> TenantRecord {
        TenantRecord {
            id: named(tenant, before),
            quotas,
            version: self.version + 1,
            created_at: before.map_or(self.now, |before| before.created_at),
            updated_at: self.now,
        }
    }

    /// Writes the rows of tenants.
    async fn write<'a>(
        &mut self,
        records: impl Iterator<Item = &'a TenantRecord>,
        is_deleted: bool,
    ) -> Result<(), QuotaError> {
        // By the clock that says when the trace goes: a node whose clock is wrong would have it dropped early.
        let deleted_at = is_deleted.then_some(self.database_now);
        let row = |record: &TenantRecord| {
            [
                record.id.domain.clone().into(),
                record.id.hash.to_string().into(),
                record.id.shown.clone().into(),
                Cell::Number(Some(i64::from(record.quotas.epoch))),
                Cell::Number(Some(stored(record.version))),
                Cell::Number(Some(stored(record.created_at.as_micros()))),
                Cell::Number(Some(stored(record.updated_at.as_micros()))),
                Cell::Number(deleted_at),
            ]
        };
        let head = "INSERT INTO tenant (domain, api_key, shown, epoch, version, created_at, updated_at, deleted_at)";
        let tail = " ON CONFLICT (domain, api_key) DO UPDATE SET shown = excluded.shown, epoch = excluded.epoch, \
                    version = excluded.version, created_at = excluded.created_at, \
                    updated_at = excluded.updated_at, deleted_at = excluded.deleted_at";
        let rows = records.map(row).collect();
        rows::insert(&mut self.transaction, head, tail, rows).await?;
        Ok(())
    }
}

/// The most tenants that are changed by one set of statements: as many as have prepared ones.
const PUTS_MAX: usize = rows::ROWS_MAX;

/// Checks each by itself.
fn check_each(puts: &[TenantPut], rules: &RuleSet) -> Result<(), PutAllError> {
    let mut all = puts.iter().enumerate();
    all.try_for_each(|(at, put)| {
        let checked = put.quotas.check(&put.tenant.domain, rules);
        checked.map_err(|bad| PutAllError {
            at: Some(at),
            source: bad.into(),
        })
    })
}

/// The first puts, up to one for a tenant that is among them already.
fn distinct(puts: &[TenantPut]) -> &[TenantPut] {
    let mut seen = HashSet::new();
    let puts_max = puts.iter().take(PUTS_MAX);
    let most = puts_max.take_while(|put| seen.insert(put.tenant.key()));
    &puts[..most.count()]
}

/// The tenant, with the name that is `known` of it, be it of one that was deleted: a hash alone does not say what the value
/// looks like.
fn named(tenant: &TenantId, known: Option<&TenantRecord>) -> TenantId {
    let mut id = tenant.clone();
    if let Some(known) = known.filter(|_| id.shown == HIDDEN) {
        id.shown.clone_from(&known.id.shown);
    }
    id
}

/// The entry of the audit trail for one tenant.
fn audited<'a>(
    action: &'static str,
    before: Option<&'a TenantRecord>,
    after: Option<&'a TenantRecord>,
    editor: &'a Editor,
) -> Entry<'a> {
    let id = after.or(before).map(|record| &record.id);
    Entry {
        action,
        domain: id.map_or("", |id| &id.domain),
        subject: id.map(|id| id.hash.to_string().into()).unwrap_or_default(),
        before: before.map(described),
        after: after.map(described),
        editor,
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
    // Texts and numbers alone: nothing in there can fail.
    serde_json::to_value(AuditedTenant::of(record)).unwrap_or_default()
}
