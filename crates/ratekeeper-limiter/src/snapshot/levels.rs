//! Service levels as switches leave them: one none of whose rules takes part leaves its requests to less specific ones.

use std::sync::Arc;

use ratekeeper_rules::{CUSTOM, Rule, RuleIndex, RuleSet, SERVICE_LEVELS, ServiceLevel};

use crate::switch::{RuleMode, Switches};

/// The rules with those service levels enabled of which a rule takes part. One that its file has off stays off in shadow: its
/// requests are held to the level below, which shadow is not to lift.
pub(super) fn switched(rules: &Arc<RuleSet>, switches: &Switches) -> Arc<RuleSet> {
    let takes_part = |index: &RuleIndex| {
        let rule = rules.rule(*index);
        match RuleMode::of(rule, switches.get(&rule.id)) {
            RuleMode::Enforced => true,
            RuleMode::Shadow => rule.enabled,
            RuleMode::Disabled => false,
        }
    };
    rules.switching_levels(|level| of_level(level).any(takes_part))
}

/// The rules of a service level, for all plans.
fn of_level(level: &ServiceLevel) -> impl Iterator<Item = &RuleIndex> {
    let of_plans = level.by_plan.iter().flat_map(|(_, rules)| rules);
    level.rules.iter().chain(of_plans)
}

/// The modes of rules, by their switches and by the service levels in force.
pub(super) struct Modes<'a> {
    switches: &'a Switches,
    /// The paths of the rules of service levels that are off.
    off: Vec<&'a [Box<str>]>,
}

impl<'a> Modes<'a> {
    /// Those of `rules`, whose service levels have been [switched](switched).
    pub(super) fn new(rules: &'a RuleSet, switches: &'a Switches) -> Self {
        let levels = rules.service_levels().iter();
        let off = levels.filter(|level| !level.enabled);
        let off = off.filter_map(|level| of_level(level).next());
        Self {
            switches,
            off: off.map(|index| &*rules.rule(*index).path).collect(),
        }
    }

    /// A tenant's own limit for a service level takes no part without it.
    pub(super) fn of(&self, rule: &Rule) -> RuleMode {
        let is_own = rule.plan.as_deref() == Some(CUSTOM) && *rule.domain == *SERVICE_LEVELS;
        match is_own && self.off.contains(&&*rule.path) {
            true => RuleMode::Disabled,
            false => RuleMode::of(rule, self.switches.get(&rule.id)),
        }
    }
}
