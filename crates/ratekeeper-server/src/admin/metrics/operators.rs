//! Rules that operators have switched, and requests and calls of senders who are none.

use std::fmt;

use ratekeeper_limiter::RuleSwitch;

use super::rules::RuleRow;
use crate::figures::families::{Families, by};

pub(super) fn encode(
    rules: &[RuleRow],
    refused: [(&'static str, u64); 3],
    callers_refused: [(&'static str, u64); 2],
    families: &mut Families<'_>,
) -> fmt::Result {
    let counts = RuleSwitch::ALL.map(|to| {
        let rules = rules.iter().filter(|row| row.switch == Some(to));
        (to.name(), rules.count() as u64)
    });
    let help = "Rules with a run-time switch, by its position";
    families.gauges("ratelimit_rules_switched", help, by("switch", counts))?;
    let switched = rules.iter().filter_map(|row| {
        let [domain, rule] = row.labels();
        Some(([domain, rule, ("switch", row.switch?.name())], 1_u64))
    });
    let mut switched = switched.peekable();
    if switched.peek().is_some() {
        let help = "1 for each rule with a run-time switch";
        families.gauges("ratelimit_rule_switched", help, switched)?;
    }
    let help = "Requests to the admin API refused because of their sender";
    families.counters("ratelimit_admin_refusals", help, by("reason", refused))?;
    let help = "Tokens of callers refused on the listeners for checks";
    families.counters(
        "ratelimit_caller_refusals",
        help,
        by("reason", callers_refused),
    )
}
