//! Compiles service levels into nodes and rules of their own domain.

use super::descriptors::{Compiler, Owner, Path};
use super::service_levels::ParsedLevel;
use crate::matching::Children;
use crate::slas::{LEVEL_KEYS, ServiceLevel};
use crate::{Node, RuleIndex};

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
        let level = ServiceLevel {
            id: parsed.id.value.clone(),
            enabled: parsed.policy.enabled != Some(false),
            methods: parsed.methods,
            pattern: parsed.pattern,
            rules: Vec::new(),
            place: self.report.place(parsed.mark),
        };
        let owner = Owner {
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
        let first = self.rules.len();
        let is_list = parsed.tiers.len() > 1;
        self.rules_of(parsed.tiers, is_list, &owner);
        let rules = first..self.rules.len();
        let rules: Vec<_> = rules
            .filter_map(|at| u32::try_from(at).ok().map(RuleIndex))
            .collect();
        let by_method = node(method_key.into(), method_key, rules.clone(), Vec::new());
        let by_level = node(composite, level_key, Vec::new(), vec![by_method]);
        (ServiceLevel { rules, ..level }, by_level)
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
        children: Children::new(children),
    }
}
