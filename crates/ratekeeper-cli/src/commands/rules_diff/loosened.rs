//! The limits that a change lifts.

use ratekeeper_rules::{CUSTOM, Enforce, Rule, RuleIndex, RuleSet};
use std::collections::{HashMap, HashSet};

/// Says of each rule that denies under `old` and would not under `new` why, by id.
pub(super) fn all(old: &RuleSet, new: &RuleSet) -> Vec<String> {
    let (before, after) = (Rules::of(old), Rules::of(new));
    let mut warnings = Vec::new();
    for rule in before.by_id.values().filter(|rule| before.denies(rule)) {
        let id = &rule.id;
        match after.by_id.get(&**id) {
            None if after.has_other(rule) => {}
            None => warnings.push(format!("{id}: removed, and no limit is left in its place")),
            Some(now) => {
                let why = after.why_not(now).map(|why| format!("{id}: it {why} now"));
                warnings.extend(why);
            }
        }
    }
    let is_new = |rule: &&&Rule| !before.by_id.contains_key(&*rule.id);
    for rule in after.by_id.values().filter(is_new) {
        if rule.enabled && rule.limited().is_none() {
            warnings.push(format!("{}: new, and lets everything pass", rule.id));
        }
    }
    warnings.sort();
    warnings
}

struct Rules<'a> {
    by_id: HashMap<&'a str, &'a Rule>,
    /// The ids of the rules whose service level is disabled.
    off: HashSet<&'a str>,
}

impl<'a> Rules<'a> {
    fn of(rules: &'a RuleSet) -> Self {
        let levels = rules.service_levels().iter().filter(|level| !level.enabled);
        let off = levels.flat_map(|level| {
            let of_plans = level.by_plan.iter().flat_map(|(_, rules)| rules);
            level.rules.iter().chain(of_plans)
        });
        // Limits that single tenants have share their ids, and are told by the tenants that change.
        let is_shared = |rule: &&Rule| rule.plan.as_deref() != Some(CUSTOM);
        let shared = rules.rules().iter().filter(is_shared);
        let id = |index: &RuleIndex| &*rules.rule(*index).id;
        Self {
            by_id: shared.map(|rule| (&*rule.id, rule)).collect(),
            off: off.map(id).collect(),
        }
    }

    fn denies(&self, rule: &Rule) -> bool {
        self.why_not(rule).is_none()
    }

    /// The reason why the rule denies nobody.
    fn why_not(&self, rule: &Rule) -> Option<&'static str> {
        if rule.limited().is_none() {
            Some("is unlimited")
        } else if !rule.enabled || self.off.contains(&*rule.id) {
            Some("is disabled")
        } else if rule.shadow {
            Some("is in shadow, and denies nobody")
        } else if rule.enforce == Enforce::NONE {
            Some("is enforced for 0%, and denies nobody")
        } else {
            None
        }
    }

    /// Returns true if another rule in the place of `gone` denies.
    fn has_other(&self, gone: &Rule) -> bool {
        let is_there = |rule: &&&Rule| {
            (&rule.domain, &rule.path, &rule.plan) == (&gone.domain, &gone.path, &gone.plan)
        };
        let mut there = self.by_id.values().filter(is_there);
        there.any(|rule| self.denies(rule))
    }
}
