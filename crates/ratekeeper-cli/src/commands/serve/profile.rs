//! The profile that rules are read by, for people.

use crate::settings::RulesSettings;
use ratekeeper_rules::Profile;
use tracing::warn;

/// The profile's name, as settings spell it.
pub(super) fn name(rules: &RulesSettings) -> &'static str {
    match rules.options.profile {
        Profile::Envoy => "envoy",
        _ => "ratekeeper",
    }
}

/// Lines of the banner: which profile holds, what that means, and what to do if another one was meant.
pub(super) fn shown(rules: &RulesSettings) -> String {
    let means = match rules.options.profile {
        Profile::Envoy => {
            "envoyproxy/ratelimit's own: fixed_window unless a rule says otherwise, denied requests are counted"
        }
        _ => "sliding_window unless a rule says otherwise, denied requests are not counted",
    };
    let mut text = format!("profile {}: {means}\n", name(rules));
    if let Some(variables) = &rules.profile_unsaid {
        text.push_str(&format!(
            "  {variables} of envoyproxy/ratelimit set, but no profile: for its semantics set RATEKEEPER_PROFILE=envoy\n"
        ));
    }
    text
}

/// Logs that envoyproxy/ratelimit's variables are heeded and its semantics are not.
pub(super) fn warn_if_unsaid(rules: &RulesSettings) {
    if let Some(variables) = &rules.profile_unsaid {
        warn!(
            %variables,
            "variables of envoyproxy/ratelimit are set and no profile is, so rules have Ratekeeper's own semantics: \
             sliding_window unless a rule says otherwise, denied requests are not counted; set RATEKEEPER_PROFILE=envoy \
             for the other's, or RATEKEEPER_PROFILE=ratekeeper to confirm these"
        );
    }
}
