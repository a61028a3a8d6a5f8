//! Checks that no rule matches, refused where the request asks for it.

use ratekeeper_limiter::Check;
use ratekeeper_rules::RuleSet;

use super::refusal::{Reason, Refusal};

/// The answer to a check that no rule matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unmatched {
    Allowed,
    Refused,
}

/// The rule names that a refusal may contain, which not every caller may see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RuleNames {
    Shown,
    Hidden,
}

/// Refuses `check` if one of its descriptors matches no rule, before anything is counted.
pub(super) fn refuse_unmatched(
    rules: &RuleSet,
    check: &Check<'_>,
    names: RuleNames,
) -> Result<(), Refusal> {
    for (number, descriptor) in check.descriptors().enumerate() {
        let domain = descriptor.domain;
        // A limit that the request brings along is its rule.
        if descriptor.terms.limit.is_some() || rules.matches(domain, descriptor.entries) {
            continue;
        }
        let nearest = match names {
            RuleNames::Shown => rules.nearest(domain, descriptor.entries),
            RuleNames::Hidden => None,
        };
        let meant =
            nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
        return Err(Refusal {
            reason: Reason::Unmatched,
            field: format!("descriptors[{number}]"),
            message: format!("no rule matches this descriptor{meant}"),
        });
    }
    Ok(())
}
