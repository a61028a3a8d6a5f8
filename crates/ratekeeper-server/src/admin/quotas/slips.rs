//! Warnings about a change of a tenant that looks like a slip: the change is made, and the answer says so.

use ratekeeper_core::Timestamp;
use ratekeeper_quota::{HIDDEN, QuotaStore, Written};
use ratekeeper_rules::{Dated, Domain, Entry, LEVEL_KEYS, OverrideDescriptor, RuleSet, nearest};

/// The warnings about a change that was `written`; `name` is the tenant's value, if it was named.
pub(super) async fn warnings(
    written: &Written,
    name: Option<&str>,
    store: &QuotaStore,
    rules: &RuleSet,
    now: Timestamp,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if !written.is_changed {
        return warnings;
    }
    if !written.was_known {
        warnings.extend(unseen(written, name, store, rules).await);
    }
    let (before, after) = (&written.before, &written.record.quotas);
    for plan in after
        .plans
        .iter()
        .filter(|plan| !before.plans.contains(plan))
    {
        warnings.extend(ended(&format!("plan {}", plan.plan), plan, now));
    }
    let domain = rules.domain(&written.record.id.domain);
    for own in after
        .overrides
        .iter()
        .filter(|own| !before.overrides.contains(own))
    {
        let descriptor = &own.descriptor;
        warnings.extend(ended(&format!("override of {descriptor}"), own, now));
        warnings.extend(domain.and_then(|domain| no_rule(descriptor, domain, rules)));
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

/// The warning about a descriptor that no rule has: it is a limit of this tenant alone.
fn no_rule(descriptor: &OverrideDescriptor, domain: &Domain, rules: &RuleSet) -> Option<String> {
    let tenant = domain.tenant()?;
    // Below another entry, the rules do not begin with the tenant's.
    let begins_with_tenant = domain.nodes().iter().any(|node| node.key() == tenant);
    let parts = descriptor
        .iter()
        .map(|entry| entry.split_once(':').unwrap_or((entry, "")));
    let own = Entry {
        key: tenant,
        value: "",
    };
    let parts = parts.map(|(key, value)| Entry { key, value });
    let entries: Vec<Entry<'_>> = std::iter::once(own).chain(parts).collect();
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
