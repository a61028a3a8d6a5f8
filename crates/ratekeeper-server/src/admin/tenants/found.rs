//! The places that know of a tenant: denials of the last hour, and the quota database.

use std::collections::BTreeSet;

use ratekeeper_limiter::Snapshot;
use ratekeeper_quota::{AuditDocument, AuditFilter, QuotaError, TenantId, TenantRecord};
use ratekeeper_rules::{Domain, TenantHash};

use crate::access::Role;
use crate::admin::denials::{groups, in_words};
use crate::admin::named::Named;
use crate::admin::options::Nodes;
use crate::admin::quotas::tenant;
use crate::admin_json::{DenialGroup, ToldBy};
use crate::app::App;
use crate::logs::denials::DeniedRequest;

/// The most changes of the audit trail in an answer.
const CHANGES_MAX: u64 = 10;

/// The most denied requests in an answer.
const REQUESTS_MAX: usize = 20;

/// The denials that bear on a tenant.
pub(super) struct Found {
    pub(super) groups: Vec<DenialGroup>,
    pub(super) told_by: ToldBy,
    pub(super) requests: Vec<DeniedRequest>,
}

impl Found {
    pub(super) async fn of(app: &App, snapshot: &Snapshot, named: &Named) -> Self {
        let is_tenant = named.test(snapshot);
        let (mut groups, told_by) = groups(app, Nodes::All, |case| is_tenant(&case.key)).await;
        in_words(&mut groups, app, snapshot);
        let requests = app
            .config
            .denials
            .latest(REQUESTS_MAX, |denied| is_tenant(&denied.key));
        Self {
            groups,
            told_by,
            requests,
        }
    }

    /// The value of the only tenant among them, if it is a secret and this node has denied it in the last hour.
    pub(super) fn secret(&self, app: &App, place: Option<(&Domain, &str)>) -> Option<String> {
        let (_, key) = place?;
        let keys = self.keys();
        let entry = keys.first().filter(|_| keys.len() == 1)?;
        entry.strip_prefix(key)?.strip_prefix(':')?;
        let now = app.limiter.clock().now();
        let cases = app
            .limiter
            .top()
            .cases(now, |case| &*case.subject == *entry);
        cases
            .iter()
            .find_map(|case| case.secret.as_ref())
            .map(|secret| secret.reveal().to_owned())
    }

    /// The groups of one kind, at most so many.
    pub(super) fn of_kind(&self, kind: &str, most: usize) -> Vec<DenialGroup> {
        let of_kind = self.groups.iter().filter(|group| group.kind == kind);
        of_kind.take(most).cloned().collect()
    }

    /// The entries that name the tenants among them.
    pub(super) fn keys(&self) -> BTreeSet<&str> {
        self.groups.iter().map(|group| &*group.key).collect()
    }
}

/// The tenant in the quota database, if that is there and has it.
pub(super) async fn kept(
    app: &App,
    snapshot: &Snapshot,
    place: Option<(&Domain, &str)>,
    named: &Named,
    missing: &mut Vec<String>,
) -> Option<TenantRecord> {
    let quotas = app.config.quotas.as_ref()?;
    let (domain, _) = place?;
    let id: Result<Option<TenantId>, QuotaError> = match named {
        Named::Value(text) | Named::Hash(text) => {
            let id = tenant(quotas, snapshot.rules(), Some(domain.name()), text);
            Ok(id.ok())
        }
        Named::Fingerprint(_) => Ok(None),
        Named::Ending(end) => {
            let ids = quotas.store.ending_in(domain.name(), end).await;
            ids.map(|ids| match ids.as_slice() {
                [only] => Some(TenantId::of_hash(domain.name(), *only)),
                _ => None,
            })
        }
    };
    let record = match id {
        Ok(Some(id)) => quotas.store.get(&id.domain, id.hash).await,
        Ok(None) => return None,
        Err(error) => Err(error),
    };
    record.unwrap_or_else(|error| {
        missing.push(format!("no plans and no changes: {error}"));
        None
    })
}

/// The keyed hash under which the quota database has the tenant, or would have it by its value; none without a database.
pub(super) fn hash(
    app: &App,
    snapshot: &Snapshot,
    place: Option<(&Domain, &str)>,
    (record, value): (Option<&TenantRecord>, Option<&str>),
) -> Option<TenantHash> {
    if let Some(record) = record {
        return Some(record.id.hash);
    }
    let quotas = app.config.quotas.as_ref()?;
    let (domain, _) = place?;
    let id = tenant(quotas, snapshot.rules(), Some(domain.name()), value?);
    id.ok().map(|id| id.hash)
}

/// The value of the tenant, as far as anybody has told it.
pub(super) fn value(
    named: &Named,
    found: &Found,
    record: Option<&TenantRecord>,
    place: Option<(&Domain, &str)>,
) -> Option<String> {
    if let Named::Value(value) = named {
        return Some(value.clone());
    }
    let (domain, key) = place?;
    if domain.is_secret(key) {
        return None;
    }
    let of_denials = found.groups.iter().map(|group| &*group.key);
    let of_denials = of_denials.filter_map(|entry| entry.strip_prefix(key)?.strip_prefix(':'));
    let mut values = of_denials.chain(record.map(|record| &*record.id.shown));
    values.next().map(str::to_owned)
}

/// The latest changes of a tenant, for those who may read the trail.
pub(super) async fn changes(
    app: &App,
    role: Role,
    record: Option<&TenantRecord>,
    missing: &mut Vec<String>,
) -> Vec<AuditDocument> {
    let (Some(quotas), Some(record)) = (app.config.quotas.as_ref(), record) else {
        return Vec::new();
    };
    if role < Role::Admin {
        missing.push("no changes: the audit trail needs the role admin".to_owned());
        return Vec::new();
    }
    let filter = AuditFilter {
        after: 0,
        before: None,
        tenant: Some((record.id.domain.clone(), record.id.hash)),
        newest_first: true,
    };
    match quotas.store.audit_of(&filter, CHANGES_MAX).await {
        Ok(rows) => rows.into_iter().map(AuditDocument::from).collect(),
        Err(error) => {
            missing.push(format!("no changes: {error}"));
            Vec::new()
        }
    }
}
