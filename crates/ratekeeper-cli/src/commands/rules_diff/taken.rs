//! New descriptors that take requests from limits, and have none for them.

use super::loosened::{Side, domains};
use super::requests::{Request, is_same};
use ratekeeper_rules::{Domain, Rule, Visit, Walk};
use std::collections::{BTreeMap, BTreeSet};

/// Says of each descriptor that `before` does not have, and whose requests meet no limit, which one they met. Limits that are
/// `told` of already are left out.
pub(super) fn all(before: &Side<'_>, after: &Side<'_>, told: &BTreeSet<&str>) -> Vec<String> {
    let mut warnings = BTreeMap::new();
    for domain in domains(after.rules) {
        let Some(old) = before.rules.domain(domain.name()) else {
            continue;
        };
        for (request, _) in Request::all(after.rules, domain) {
            let (walk, old_walk) = (request.walk(domain), request.walk(old));
            if !is_new(&walk, &old_walk) {
                continue;
            }
            // It may have kept further entries from the limits below the place where they were before.
            let further = old_walk.leaf().map(|leaf| {
                let below = request.all_below((before.rules, old), leaf.node);
                below.into_iter().map(|(request, _)| request)
            });
            for request in std::iter::once(request).chain(further.into_iter().flatten()) {
                let sides = [(before, old), (after, domain)];
                if let Some((place, warning)) = warning(&request, sides, told) {
                    warnings.entry(place).or_insert(warning);
                }
            }
        }
    }
    warnings.into_values().collect()
}

/// Returns true if the last place that one request finds in `walk` is not one of `old`.
fn is_new(walk: &Walk<'_>, old: &Walk<'_>) -> bool {
    let same = walk.iter().zip(old.iter());
    let same = same.take_while(|(now, before)| is_same(now, before));
    same.count() < walk.len()
}

/// The place that takes `request` from a limit, and a warning of that.
fn warning(
    request: &Request,
    [(before, old), (after, new)]: [(&Side<'_>, &Domain); 2],
    told: &BTreeSet<&str>,
) -> Option<(String, String)> {
    let walk = request.walk(new);
    if !is_new(&walk, &request.walk(old)) {
        return None;
    }
    // Without plans, that of no name.
    let plans = old.plans().iter().map(|plan| Some(&**plan));
    let mut plans = plans.chain([None]);
    let (held, now) = plans.find_map(|plan| {
        let held = request.rules((before.rules, old), plan);
        let mut held = held.into_iter().filter(|rule| before.denies(rule));
        let held = held.find(|rule| !told.contains(&*rule.id))?;
        let now = request.rules((after.rules, new), plan);
        let is_free = !now.iter().any(|rule| after.denies(rule));
        is_free.then_some((held, now))
    })?;
    let last = walk.last()?;
    let why = reason(last, walk.is_complete(), &now, after)?;
    let place = format!("{}.{}", new.name(), shown(&walk, new));
    let warning = format!("{place}: new, {why}; {} held for its requests", held.id);
    Some((place, warning))
}

/// Says why the rules that requests meet at a place deny none of them; [`None`] if that is told of the rule.
fn reason(last: &Visit<'_>, is_end: bool, now: &[&Rule], after: &Side<'_>) -> Option<String> {
    match now.first() {
        Some(rule) if rule.enabled && rule.limited().is_none() => None,
        Some(rule) => Some(format!("and {}", after.why_not(rule)?)),
        None if !is_end && !last.node.rules().is_empty() => {
            Some("without a limit for further entries".to_owned())
        }
        None => Some("without a limit of its own".to_owned()),
    }
}

/// The place for people. Secret values are hidden.
fn shown(walk: &Walk<'_>, domain: &Domain) -> String {
    let nodes = walk.iter().map(|visit| visit.node);
    let parts = nodes.map(|node| domain.composite(node.key(), node.value()));
    parts.collect::<Vec<_>>().join(".")
}
