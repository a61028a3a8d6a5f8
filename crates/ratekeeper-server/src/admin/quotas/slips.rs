//! Warnings about a change of a tenant that looks like a slip: the change is made, and the answer says so.

use ratekeeper_core::Timestamp;
use ratekeeper_quota::{HIDDEN, QuotaStore, Written};
use ratekeeper_rules::{
    Dated, Domain, Entry, LEVEL_KEYS, ListedTenant, OverrideDescriptor, RuleSet, WHOLE_TENANT,
    nearest,
};

use super::listed::lost;

/// The warnings about a change that was `written`; `name` is the tenant's value, if it was named, and `listed` what files
/// give it.
pub(super) async fn warnings(
    written: &Written,
    (name, listed): (Option<&str>, Option<&ListedTenant>),
    store: &QuotaStore,
    rules: &RuleSet,
    now: Timestamp,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if !written.is_changed {
        return warnings;
    }
    if !written.was_known && listed.is_none() {
        warnings.extend(unseen(written, name, store, rules).await);
    }
    warnings.extend(lost(written, listed, now));
    let id = &written.record.id;
    if let Some(name) = name.filter(|name| rules.is_tenant_in_no_path(&id.domain, name)) {
        let shown = if id.shown == HIDDEN {
            "this tenant"
        } else {
            name
        };
        warnings.push(format!(
            "no service level finds {shown} by its path: names in paths are compared in lower case"
        ));
    }
    let (before, after) = (&written.before, &written.record.quotas);
    for plan in after
        .plans
        .iter()
        .filter(|plan| !before.plans.contains(plan))
    {
        warnings.extend(ended(&format!("plan {}", plan.plan), plan, now));
    }
    let domain = rules.domain(&id.domain);
    for own in after
        .overrides
        .iter()
        .filter(|own| !before.overrides.contains(own))
    {
        let descriptor = &own.descriptor;
        warnings.extend(ended(&format!("override of {descriptor}"), own, now));
        let slip = domain.and_then(|domain| {
            own_entry(descriptor, domain).or_else(|| no_rule(descriptor, domain, rules))
        });
        warnings.extend(slip);
    }
    warnings
}

fn ended(what: &str, part: &impl Dated, now: Timestamp) -> Option<String> {
    let (_, until) = part.dates();
    let until = until.filter(|until| until.0 <= now)?;
    Some(format!("{what} ended at {until}: it never holds"))
}

/// The warning about a tenant that the database did not have and that has not called.
async fn unseen(
    written: &Written,
    name: Option<&str>,
    store: &QuotaStore,
    rules: &RuleSet,
) -> Option<String> {
    let id = &written.record.id;
    // A database that is away has no warnings either.
    if store.has_called(&id.domain, id.hash).await.unwrap_or(true) {
        return None;
    }
    let is_shown = name.is_some() && id.shown != HIDDEN;
    let shown = if is_shown { &*id.shown } else { "this tenant" };
    let mut text = format!("{shown} is new, and has made no call so far");
    let domain = rules.domain(&id.domain)?;
    let is_secret = domain.tenant().is_some_and(|key| domain.is_secret(key));
    if let Some(name) = name.filter(|_| !is_secret) {
        let names = store.names_like(&id.domain, name).await.unwrap_or_default();
        if let Some(nearest) = nearest(name, names.iter().map(String::as_str)) {
            text.push_str(&format!("; did you mean {nearest}?"));
        }
    }
    Some(text)
}

/// The warning about a descriptor with the entry that names the tenant, which comes before all that overrides are for.
fn own_entry(descriptor: &OverrideDescriptor, domain: &Domain) -> Option<String> {
    let tenant = domain.tenant()?;
    let entries = entries(descriptor, tenant);
    let is_own = entries.iter().skip(1).any(|entry| entry.key == tenant);
    // Rules may have the key twice.
    (is_own && !domain.walk(&entries).is_complete()).then(|| format!(
        "override of {descriptor}: {tenant} is the tenant's own entry, and an override names the entries behind it: it \
         never holds; leave that entry out, or write {WHOLE_TENANT} for the tenant as a whole"
    ))
}

/// The entries of a request that has a tenant's and, behind it, those of a descriptor.
fn entries<'a>(descriptor: &'a OverrideDescriptor, tenant: &'a str) -> Vec<Entry<'a>> {
    let own = Entry {
        key: tenant,
        value: "",
    };
    let parts = descriptor
        .iter()
        .map(|entry| entry.split_once(':').unwrap_or((entry, "")));
    let parts = parts.map(|(key, value)| Entry { key, value });
    std::iter::once(own).chain(parts).collect()
}

/// The warning about a descriptor that no rule has: it is a limit of this tenant alone.
fn no_rule(descriptor: &OverrideDescriptor, domain: &Domain, rules: &RuleSet) -> Option<String> {
    let tenant = domain.tenant()?;
    // Below another entry, the rules do not begin with the tenant's.
    let begins_with_tenant = domain.nodes().iter().any(|node| node.key() == tenant);
    let entries = entries(descriptor, tenant);
    let is_level = entries
        .get(1)
        .is_some_and(|entry| entry.key == LEVEL_KEYS[0]);
    if entries.len() == 1 || !begins_with_tenant || is_level {
        return None;
    }
    let walk = domain.walk(&entries);
    if walk.is_complete() {
        return None;
    }
    // Rules for certain tenants alone say nothing of this one.
    let missing = entries.get(walk.len()).filter(|_| !walk.is_empty())?;
    let nodes = walk
        .last()
        .map_or_else(|| domain.nodes(), |visit| visit.node.nodes());
    // A pattern, or a key alone, is for every value that the key may have.
    let is_pattern = missing.value.is_empty() || missing.value.contains('*');
    if is_pattern && nodes.iter().any(|node| node.key() == missing.key) {
        return None;
    }
    let mut text =
        format!("no rule has {descriptor}: it limits this tenant alone, beside the rules");
    if let Some(nearest) = rules.nearest(domain.name(), &entries) {
        text.push_str(&format!("; did you mean {nearest}?"));
    }
    Some(text)
}
