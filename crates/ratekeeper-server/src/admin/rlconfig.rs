//! `/rlconfig`: the limits in force, a line each, in the incumbent's form where it has one.

use std::fmt::Write;

use ratekeeper_rules::{Rule, RuleLimit, RuleSet};

/// All rules with a limit, in the order of the files.
pub(super) fn text(rules: &RuleSet) -> String {
    let mut out = String::new();
    for rule in rules.rules() {
        // Writing to a string cannot fail.
        let _ = line(&mut out, rule);
    }
    out
}

fn line(out: &mut String, rule: &Rule) -> std::fmt::Result {
    write!(out, "{}: ", rule.id)?;
    match (&rule.limit, rule.unit) {
        (RuleLimit::Unlimited, _) => write!(out, "unlimited")?,
        (RuleLimit::Limited(limit), Some(unit)) => {
            write!(
                out,
                "unit={} requests_per_unit={}",
                unit.name(),
                limit.quota()
            )?;
        }
        (RuleLimit::Limited(limit), None) => {
            write!(out, "window={} limit={}", rule.window_text, limit.quota())?;
        }
    }
    if let RuleLimit::Limited(limit) = &rule.limit {
        write!(out, ", algorithm: {}", limit.algorithm().name())?;
        if limit.algorithm().has_burst() {
            write!(out, ", burst: {}", limit.capacity())?;
        }
    }
    write!(
        out,
        ", shadow_mode: {}, quota_mode: {}",
        rule.shadow, rule.quota_mode
    )?;
    if !rule.enabled {
        write!(out, ", enabled: false")?;
    }
    if !rule.enforce.is_all() {
        write!(out, ", enforce: {}", rule.enforce)?;
    }
    writeln!(out)
}
