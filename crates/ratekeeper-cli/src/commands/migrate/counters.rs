//! The counters that start afresh.

use crate::output::within_line;
use ratekeeper_core::duration::format_duration;
use ratekeeper_rules::RuleSet;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The most rules that a line names.
const NAMED_MAX: usize = 3;

/// All of them do: by window, with what that means.
pub(super) fn text(rules: &RuleSet) -> String {
    let mut by_window: BTreeMap<_, Vec<&str>> = BTreeMap::new();
    for rule in rules.rules() {
        if let Some(limit) = rule.limited() {
            by_window.entry(limit.window()).or_default().push(&rule.id);
        }
    }
    let mut text = "# Counters\n\nAll start afresh, under keys of their own: in the window of the change, a caller can pass up to \
                    its limit once more. Long windows matter; change shortly before they end.\n\n\
                    | window | rules | such as |\n|---|---|---|\n"
        .to_owned();
    for (window, ids) in by_window.iter().rev() {
        let named = ids.iter().take(NAMED_MAX).map(|id| within_line(id));
        let mut named: Vec<_> = named.collect();
        if ids.len() > NAMED_MAX {
            named.push("…".into());
        }
        let named = named.join(", ");
        let _ = writeln!(
            text,
            "| {} | {} | {named} |",
            format_duration(*window),
            ids.len()
        );
    }
    text.push('\n');
    text
}
