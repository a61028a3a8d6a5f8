//! The plans and overrides that files give a tenant, which the quota database does not have: the base of its first change.

use ratekeeper_core::Timestamp;
use ratekeeper_quota::{HIDDEN, QuotaStore, TenantId, Written};
use ratekeeper_rules::{Dated, ListedTenant, OverrideDescriptor, RuleSet, TenantQuotas};

/// The tenant as files have it; `name` is its value, if it was named.
pub(super) fn listed(
    tenant: &TenantId,
    name: Option<&str>,
    (store, rules): (&QuotaStore, &RuleSet),
) -> Option<ListedTenant> {
    let domain = &tenant.domain;
    match name {
        Some(name) => rules.listed(domain, name),
        None => rules.listed_hash(domain, (store.key(), tenant.hash)),
    }
}

/// The warning about what files have given the tenant, and nobody does any more.
pub(super) fn lost(
    written: &Written,
    listed: Option<&ListedTenant>,
    now: Timestamp,
) -> Option<String> {
    let listed = listed.filter(|_| written.is_new)?;
    let after = &written.record.quotas;
    let mut parts = lost_plans(&listed.quotas, after, now);
    let overrides = listed.quotas.overrides.iter();
    let overrides = overrides.filter(|own| now < own.term().until);
    let stays = |descriptor: &OverrideDescriptor| {
        let mut own = after.overrides.iter();
        own.any(|own| own.descriptor == *descriptor)
    };
    let descriptors = overrides.map(|own| &own.descriptor);
    let mut descriptors: Vec<_> = descriptors.chain(&listed.unstorable).collect();
    descriptors.retain(|descriptor| !stays(descriptor));
    descriptors.dedup();
    parts.extend(descriptors.iter().map(|it| format!("an override of {it}")));
    if parts.is_empty() {
        return None;
    }
    let shown = &written.record.id.shown;
    let whom = if shown == HIDDEN {
        "this tenant"
    } else {
        shown
    };
    Some(format!(
        "files give {whom} {}: what files say does not count while the quota database has the tenant",
        parts.join(", ")
    ))
}

/// The plans of files, unless the tenant has plans of its own now.
fn lost_plans(listed: &TenantQuotas, after: &TenantQuotas, now: Timestamp) -> Vec<String> {
    if !after.plans.is_empty() {
        return Vec::new();
    }
    let plans = listed.plans.iter();
    let plans = plans.filter(|plan| now < plan.term().until);
    plans.map(|plan| format!("plan {}", plan.plan)).collect()
}
