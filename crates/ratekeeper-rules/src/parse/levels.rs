//! Compiles service levels into nodes and rules of their own domain.

use std::sync::Arc;

use super::descriptors::{Compiler, Owner, Path};
use super::plans::plan_index;
use super::service_levels::{ParsedLevel, PlanTiers};
use crate::draft::BuiltLimit;
use crate::matching::Children;
use crate::slas::{LEVEL_KEYS, ServiceLevel};
use crate::{Evaluation, Node, PlanIndex, RuleIndex};

/// Matches any caller, whichever kind of identity names it.
const ANYBODY: &str = "*";

impl Compiler<'_, '_, '_> {
    /// Makes rules from the tiers of `parsed`, and the node below the caller's that leads to them.
    pub(crate) fn service_level(&mut self, parsed: ParsedLevel) -> (ServiceLevel, Node) {
        let [level_key, method_key] = LEVEL_KEYS;
        let composite: Box<str> = format!("{level_key}_{}", parsed.id.value).into();
        let path = [ANYBODY.into(), composite.clone(), method_key.into()]
            .into_iter()
            .fold(Path::default(), |path, part: Box<str>| {
                path.to(part.clone(), part)
            })
            .counting_each();
        let enabled = parsed.policy.enabled != Some(false);
        let level = ServiceLevel {
            id: parsed.id.value.clone(),
            enabled,
            written_enabled: enabled,
            methods: parsed.methods,
            pattern: parsed.pattern,
            rules: Vec::new(),
            by_plan: Vec::new(),
            place: self.report.place(parsed.mark),
        };
        let mut owner = Owner {
            path: &path,
            policy: parsed.policy,
            id: Some(parsed.id),
            shadow: parsed.shadow,
            quota_mode: false,
            detailed_metric: false,
            value_to_metric: false,
            metadata: None,
            plan: None,
        };
        let rules = self.tiers(parsed.tiers, &owner);
        let mut by_plan = Vec::new();
        for (plan, tiers) in self.plans_of_level(parsed.plans) {
            let name = self.around.plans.get(plan.get());
            owner.plan = name.map(|name| Arc::from(&**name));
            by_plan.push((plan, self.tiers(tiers, &owner)));
        }
        let mut by_method = node(method_key.into(), method_key, rules.clone(), Vec::new());
        let boxed = |(plan, rules): &(PlanIndex, Vec<RuleIndex>)| (*plan, rules.as_slice().into());
        by_method.by_plan = by_plan.iter().map(boxed).collect();
        let by_level = node(composite, level_key, Vec::new(), vec![by_method]);
        let level = ServiceLevel {
            rules,
            by_plan,
            ..level
        };
        (level, by_level)
    }

    fn tiers(&mut self, tiers: Vec<BuiltLimit>, owner: &Owner<'_>) -> Vec<RuleIndex> {
        let first = self.rules.len();
        let is_list = tiers.len() > 1;
        self.rules_of(tiers, is_list, owner);
        let rules = first..self.rules.len();
        rules
            .filter_map(|at| u32::try_from(at).ok().map(RuleIndex))
            .collect()
    }

    /// The tiers of the plans other than the default one, in the order of the plans.
    fn plans_of_level(&mut self, plans: Vec<PlanTiers>) -> Vec<(PlanIndex, Vec<BuiltLimit>)> {
        let mut found: Vec<(PlanIndex, Vec<BuiltLimit>)> = Vec::new();
        for PlanTiers { plan, tiers } in plans {
            match plan_index(plan.as_str(), self.around.plans, self.report) {
                Some(PlanIndex::DEFAULT) => {
                    let message = "the default plan's limits are there twice: `tiers` has them";
                    self.report
                        .error(plan.mark, message, "leave one of them out");
                }
                Some(index) => found.push((index, tiers)),
                None => {}
            }
        }
        found.sort_by_key(|(plan, _)| *plan);
        found
    }
}

/// The node that matches any caller, above the nodes of all service levels.
pub(crate) fn anybody(levels: Vec<Node>) -> Node {
    node(ANYBODY.into(), ANYBODY, Vec::new(), levels)
}

fn node(pattern: Box<str>, key: &str, rules: Vec<RuleIndex>, children: Vec<Node>) -> Node {
    Node {
        pattern,
        key: key.into(),
        rules,
        by_plan: [].into(),
        permits: None,
        share_threshold: false,
        value_to_metric: false,
        children: Children::new(children, Evaluation::Leaf),
    }
}
