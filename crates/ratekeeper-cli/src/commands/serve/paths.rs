//! Paths that a service may read as one, and the rules as two.

use crate::settings::RulesSettings;
use ratekeeper_rules::{PathFolding, Profile, RuleSet};
use tracing::warn;

/// Warns if a rule goes by a path and the settings tell paths apart that many services serve alike.
///
/// envoyproxy/ratelimit does so too, and sees no paths but those that its proxy sends: under its profile only a
/// gateway is worth a warning.
pub(super) fn warn_if_told_apart(settings: &RulesSettings, rules: &RuleSet, is_gateway: bool) {
    let is_of_interest = is_gateway || settings.options.profile == Profile::Ratekeeper;
    if !is_of_interest || !rules.goes_by_path() {
        return;
    }
    let PathFolding {
        ignores_case,
        ignores_trailing_slash,
    } = settings.options.path_folding;
    for (is_ignored, setting, other) in [
        (ignores_case, "ignore_path_case", "/Orders"),
        (ignores_trailing_slash, "ignore_trailing_slash", "/orders/"),
    ] {
        if !is_ignored {
            warn!(
                "{setting} is false: a rule for /orders does not limit {other}, which many services treat the same"
            );
        }
    }
}
