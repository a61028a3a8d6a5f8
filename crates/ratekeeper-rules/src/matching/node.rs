//! A node: one descriptor of a file.

use super::Children;
use crate::{PlanIndex, RuleIndex};

/// A descriptor of a file: its pattern, its rules, and the nodes below it.
#[derive(Debug)]
pub struct Node {
    pub(crate) pattern: Box<str>,
    pub(crate) key: Box<str>,
    pub(crate) rules: Vec<RuleIndex>,
    /// The rules of the plans that have limits of their own here.
    pub(crate) by_plan: Box<[(PlanIndex, Box<[RuleIndex]>)]>,
    /// The concurrency limit of this node; it is among the rules of every plan.
    pub(crate) permits: Option<RuleIndex>,
    pub(crate) share_threshold: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) children: Children,
}

impl Node {
    /// The composite as written: `key`, or `key_value`, either with `*` in it.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The part of [`Self::pattern`] that the file has as `key:`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The part of [`Self::pattern`] that the file has as `value:`, if any.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.pattern.get(self.key.len() + 1..)
    }

    /// The rules of the default plan at this node, one for each limit. Empty if the file has no
    /// limit here.
    #[must_use]
    pub fn rules(&self) -> &[RuleIndex] {
        &self.rules
    }

    /// The rules of a plan at this node: its own, else those of the default plan.
    #[must_use]
    pub fn rules_on(&self, plan: PlanIndex) -> &[RuleIndex] {
        if plan == PlanIndex::DEFAULT {
            return &self.rules;
        }
        // A node has the limits of a handful of plans: a scan is as fast as anything.
        let own = self.by_plan.iter().find(|(owner, _)| *owner == plan);
        own.map_or(&self.rules, |(_, rules)| rules)
    }

    /// The plans that have limits of their own here, with their rules, in the order of the domain's
    /// plans. A concurrency limit holds for every plan, and is among the rules of each.
    pub fn by_plan(&self) -> impl Iterator<Item = (PlanIndex, &[RuleIndex])> {
        self.by_plan.iter().map(|(plan, rules)| (*plan, &**rules))
    }

    /// Returns true if all values that match the pattern share one counter.
    #[must_use]
    pub const fn share_threshold(&self) -> bool {
        self.share_threshold
    }

    /// Returns true if metrics count decisions by this entry's value.
    #[must_use]
    pub const fn value_to_metric(&self) -> bool {
        self.value_to_metric
    }

    /// The nodes directly below, in the order of the file.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.children.nodes()
    }
}
