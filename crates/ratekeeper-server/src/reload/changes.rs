//! What a change of the rules does to usage.

use std::collections::HashMap;
use std::sync::Arc;

use ratekeeper_core::{Algorithm, Micros};
use ratekeeper_rules::{Rule, RuleSet};

/// The ids of rules that were there before and whose counters start afresh in `new`, because
/// they count in another way: the algorithm, the window, its sub-windows or its calendar.
/// Limits, bursts and rates may change without that.
#[must_use]
pub fn fresh_counters(old: &RuleSet, new: &RuleSet) -> Vec<Arc<str>> {
    let before: HashMap<&str, &Rule> = old.rules().iter().map(|rule| (&*rule.id, rule)).collect();
    new.rules()
        .iter()
        .filter(|rule| {
            before
                .get(&*rule.id)
                .is_some_and(|old| counts_apart(old, rule))
        })
        .map(|rule| Arc::clone(&rule.id))
        .collect()
}

fn counts_apart(old: &Rule, new: &Rule) -> bool {
    match (way_of_counting(old), way_of_counting(new)) {
        (Some(a), Some(b)) => a != b || old.calendar != new.calendar,
        // What has no limit has no counter.
        _ => false,
    }
}

fn way_of_counting(rule: &Rule) -> Option<(Algorithm, Micros, u32)> {
    let limit = rule.limited()?;
    Some((limit.algorithm(), limit.window(), limit.sub_windows()))
}
