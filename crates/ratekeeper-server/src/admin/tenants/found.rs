//! The places that know of a tenant: denials of the last hour, and the quota database.

use std::collections::BTreeSet;

use ratekeeper_limiter::Snapshot;
use ratekeeper_quota::{AuditDocument, AuditFilter, TenantRecord};
use ratekeeper_rules::TenantHash;

use super::place::Place;
use crate::access::Role;
use crate::admin::denials::{groups, in_words};
use crate::admin::named::Named;
use crate::admin::options::Nodes;
use crate::admin_json::{DenialGroup, DeniedRequest, ToldBy};
use crate::app::App;

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
    /// The denials whose domain and entry `is_tenant` takes; those of one domain alone if somebody named it.
    pub(super) async fn of(
        app: &App,
        snapshot: &Snapshot,
        place: Option<Place<'_>>,
        is_tenant: impl Fn(&str, &str) -> bool,
    ) -> Self {
        let place = place.filter(|place| place.is_named);
        let is_wanted = |domain: &str, entry: &str| {
            place.is_none_or(|place| place.has(domain)) && is_tenant(domain, entry)
        };
        let groups = groups(app, Nodes::All, |case| is_wanted(&case.domain, &case.key));
        let (mut groups, told_by) = groups.await;
        in_words(&mut groups, app, snapshot);
        let requests = app.config.denials.latest(REQUESTS_MAX, |denied| {
            is_wanted(&denied.domain, &denied.key)
        });
        Self {
            groups,
            told_by,
            requests,
        }
    }

    /// Drops what names no tenant of `place` if something does, or if the tenant `is_known` otherwise. Returns the
    /// entries of what was dropped.
    pub(super) fn keep_tenants(&mut self, place: Place<'_>, is_known: bool) -> BTreeSet<String> {
        let is_tenant = |domain: &str, entry: &str| place.value(domain, entry).is_some();
        let of_tenant = |group: &DenialGroup| is_tenant(&group.domain, &group.key);
        if !is_known && !self.groups.iter().any(of_tenant) {
            return BTreeSet::new();
        }
        let others = self.groups.iter().filter(|group| !of_tenant(group));
        let others = others.map(|group| group.key.to_string()).collect();
        self.groups.retain(of_tenant);
        self.requests
            .retain(|denied| is_tenant(&denied.domain, &denied.key));
        others
    }

    /// The value of the only tenant among them, if it is a secret and this node has denied it in the last hour.
    pub(super) fn secret(&self, app: &App, place: Option<Place<'_>>) -> Option<String> {
        let place = place?;
        let tenants = self.tenants(place);
        let entry = tenants.first().filter(|_| tenants.len() == 1)?;
        let now = app.limiter.clock().now();
        let cases = app
            .limiter
            .top()
            .cases(now, |case| *case.subject == **entry);
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

    /// The entries that were denied.
    pub(super) fn keys(&self) -> BTreeSet<&str> {
        self.groups.iter().map(|group| &*group.key).collect()
    }

    /// Those that name tenants of `place`.
    pub(super) fn tenants(&self, place: Place<'_>) -> BTreeSet<&str> {
        let groups = self.groups.iter();
        groups
            .filter(|group| place.value(&group.domain, &group.key).is_some())
            .map(|group| &*group.key)
            .collect()
    }
}

/// The keyed hash under which the quota database has the tenant, or would have it by its value; none without a database.
pub(super) fn hash(
    app: &App,
    place: Option<Place<'_>>,
    (record, value): (Option<&TenantRecord>, Option<&str>),
) -> Option<TenantHash> {
    if let Some(record) = record {
        return Some(record.id.hash);
    }
    let quotas = app.config.quotas.as_ref()?;
    place?;
    Some(quotas.store.key().hash(value?))
}

/// The value of the tenant, as far as anybody has told it.
pub(super) fn value(
    app: &App,
    named: &Named,
    found: &Found,
    record: Option<&TenantRecord>,
    place: Option<Place<'_>>,
) -> Option<String> {
    if let Named::Value(value) = named {
        return Some(value.clone());
    }
    let place = place.filter(|place| !place.is_secret())?;
    let of_denials = found.groups.iter();
    let of_denials = of_denials.filter_map(|group| place.value(&group.domain, &group.key));
    // What is shown is the value, unless that has characters which cannot be.
    let quotas = app.config.quotas.as_ref();
    let is_value = |record: &&TenantRecord| {
        quotas.is_some_and(|quotas| quotas.store.key().hash(&record.id.shown) == record.id.hash)
    };
    let of_record = record.filter(is_value).map(|record| &*record.id.shown);
    let mut values = of_denials.chain(of_record);
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
