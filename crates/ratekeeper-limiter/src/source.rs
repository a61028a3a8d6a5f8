//! The origins of limits.

use ratekeeper_rules::{FailureMode, RuleIndex};

/// The origin of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitSource {
    /// A rule of the snapshot.
    Rule(RuleIndex),
    /// The request itself.
    Override,
    /// The request itself, apart from all rules, with the answer if the store gives none.
    Own(FailureMode),
}
