//! Indexes into a rule set.

/// An index into [`RuleSet::rules`](crate::RuleSet::rules).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleIndex(pub u32);

impl RuleIndex {
    /// The index as a `usize`.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// An index into [`Domain::plans`](crate::Domain::plans).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PlanIndex(pub u16);

impl PlanIndex {
    /// The default plan.
    pub const DEFAULT: Self = Self(0);

    /// The index as a `usize`.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}
