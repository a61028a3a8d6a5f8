//! The rules of an override.

use crate::{PlanIndex, RuleIndex};

/// The rules of an override: one, and others on plans whose limits regions share in another way. [`None`] where the override is
/// not in force, as the rules do not allow it there.
#[derive(Clone, Debug)]
pub(crate) struct OwnRules {
    first: Option<RuleIndex>,
    others: Box<[(PlanIndex, Option<RuleIndex>)]>,
}

impl OwnRules {
    /// The rule on each plan that has one of its own; that on the default plan is for all others too.
    pub(crate) fn new(rules: impl Iterator<Item = (PlanIndex, Option<RuleIndex>)>) -> Self {
        let is_first = |(plan, _): &(PlanIndex, _)| *plan == PlanIndex::DEFAULT;
        let (first, others): (Vec<_>, Vec<_>) = rules.partition(is_first);
        Self {
            first: first.into_iter().find_map(|(_, rule)| rule),
            others: others.into(),
        }
    }

    /// The rule of a tenant on `plan`.
    #[inline]
    pub(crate) fn on(&self, plan: PlanIndex) -> Option<&RuleIndex> {
        let other = self.others.iter().find(|(other, _)| *other == plan);
        match other {
            Some((_, rule)) => rule.as_ref(),
            None => self.first.as_ref(),
        }
    }

    /// Returns true if there is none on some plan.
    pub(crate) fn are_partial(&self) -> bool {
        self.first.is_none() || self.others.iter().any(|(_, rule)| rule.is_none())
    }

    /// The rules, each with a plan that it is for.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PlanIndex, RuleIndex)> {
        let first = (PlanIndex::DEFAULT, self.first);
        let all = std::iter::once(first).chain(self.others.iter().copied());
        all.filter_map(|(plan, rule)| Some((plan, rule?)))
    }
}
