//! The places of requests, without what makes no difference to what they meet: large rules have many that are alike.

use super::loosened::{Side, rules_at};
use ratekeeper_rules::{Domain, Evaluation, Node, Walk};
use std::fmt::Write as _;

/// A text that is the same for two places where requests meet rules that deny as often, however they go on.
pub(super) fn text(walk: &Walk<'_>, domain: &Domain, side: &Side<'_>) -> String {
    let mut text = String::new();
    if domain.evaluation() == Evaluation::Path {
        for visit in walk.iter() {
            add_rules(visit.node, side, &mut text);
        }
    }
    if let Some(leaf) = walk.leaf() {
        add_below(leaf.node, side, &mut text);
    }
    text
}

fn add_below(node: &Node, side: &Side<'_>, text: &mut String) {
    for node in node.nodes() {
        let _ = write!(text, "{:?}{:?}", node.key(), node.value());
        add_rules(node, side, text);
        text.push('(');
        add_below(node, side, text);
        text.push(')');
    }
}

/// Adds which of a node's rules deny, and how often: nothing else of them counts.
fn add_rules(node: &Node, side: &Side<'_>, text: &mut String) {
    let counts: Vec<_> = node
        .by_plan()
        .map(|(plan, rules)| (plan, rules.len()))
        .collect();
    let _ = write!(text, "{counts:?}");
    for index in rules_at(node) {
        let rule = side.rules.rule(*index);
        let how = (
            side.why_not(rule),
            rule.enabled,
            rule.enforce,
            rule.quota_mode,
        );
        let _ = write!(text, "{how:?}");
    }
    text.push(';');
}
