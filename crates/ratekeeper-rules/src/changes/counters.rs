//! The identity of a rule's counters, in words: where it differs, usage starts afresh.

use super::OwnCounters;
use super::surroundings::Surroundings;
use crate::{Consistency, Rule, RuleLimit};

/// The parts of the rule that identify its counters, in words.
pub(super) fn counted(rule: &Rule, around: &Surroundings<'_>, own: OwnCounters) -> String {
    let mut parts = vec![limit_in_words(rule)];
    // What is on this node alone is in no store.
    match (rule.consistency, &rule.store) {
        (Some(Consistency::Local), _) if own == OwnCounters::AmongOthers => {}
        (Some(Consistency::Local), _) => parts.push("on each node".to_owned()),
        (_, Some(store)) => parts.push(format!("in the store '{store}'")),
        _ => {}
    }
    parts.extend(around.subject.map(|key| format!("by {key}")));
    let together = around.together.iter();
    parts.extend(together.map(|pattern| format!("{pattern} counted together")));
    parts.join(", ")
}

/// The parts of a limit that identify a counter, in words.
fn limit_in_words(rule: &Rule) -> String {
    match &rule.limit {
        RuleLimit::Unlimited => "unlimited".to_owned(),
        // A permit's timeout is not a window.
        RuleLimit::Limited(limit) if limit.algorithm().holds_permits() => {
            limit.algorithm().name().to_owned()
        }
        RuleLimit::Limited(limit) => {
            let name = limit.algorithm().name();
            let synced = match rule.sync_terms() {
                Some(_) => ", synced",
                None => "",
            };
            match limit.sub_windows() {
                0 => format!("{name} of {}{synced}", rule.window_text),
                parts => format!("{name} of {} in {parts} parts{synced}", rule.window_text),
            }
        }
    }
}
