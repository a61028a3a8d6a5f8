//! `?strict=true`: a check that no rule matches is refused instead of allowed.

use http::StatusCode;
use ratekeeper_limiter::Check;
use ratekeeper_rules::RuleSet;

use crate::http::ApiError;

/// Tells whether the refusal may name rules, which not every caller may see.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    Told,
    Kept,
}

/// Refuses `check` if one of its descriptors matches no rule, before anything is counted.
pub(super) fn refuse_unmatched(
    rules: &RuleSet,
    check: &Check<'_>,
    names: Names,
) -> Result<(), ApiError> {
    for (number, descriptor) in check.descriptors.iter().enumerate() {
        let domain = descriptor.domain.unwrap_or(check.domain);
        // A limit that the request brings along is its rule.
        if descriptor.limit.is_some() || rules.matches(domain, descriptor.entries) {
            continue;
        }
        let nearest = match names {
            Names::Told => rules.nearest(domain, descriptor.entries),
            Names::Kept => None,
        };
        let meant =
            nearest.map_or_else(String::new, |nearest| format!("; did you mean {nearest}?"));
        let message = format!("no rule matches this descriptor{meant}");
        let error = ApiError::other(StatusCode::BAD_REQUEST, "UNMATCHED", message);
        return Err(error.at(format!("descriptors[{number}]")));
    }
    Ok(())
}
