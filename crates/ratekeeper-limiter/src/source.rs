//! The origins of limits.

use ratekeeper_rules::RuleIndex;

/// The origin of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LimitSource {
    /// A rule of the snapshot.
    Rule(RuleIndex),
    /// The request itself.
    Override,
}
