//! The state of nodes as text, for pipes and scripts, and the pieces of text that the screen has too.

use super::nodes::Nodes;
use super::view::{Link, Row, View};
use crate::output::{count, table, within_line};
use ratekeeper_server::admin_json::{KeyEntry, NodeState};

/// The most rules in the text; `ratekeeper rules list` has all.
const RULES_MAX: usize = 20;

/// The state as text.
pub(super) fn text(nodes: &Nodes) -> String {
    nodes.with_shown(|view| match &view.state {
        Some(state) => text_of(nodes, view, state),
        None => String::new(),
    })
}

fn text_of(nodes: &Nodes, view: &View, state: &NodeState) -> String {
    let mut text = format!("{}\n\n{}\n", head(view), decisions(state));
    if nodes.are_many() {
        let mut rows = vec![NODE_HEADS.map(str::to_owned).to_vec()];
        rows.extend(nodes.ordered().into_iter().map(node));
        text.push_str(&format!("\nNodes\n{}\n", table(&rows, 2)));
    }
    for line in health(state) {
        text.push_str(&format!("{line}\n"));
    }
    text.push_str("\nDenied most in the last minute\n");
    match state.top.is_empty() {
        true => text.push_str("  none\n"),
        false => text.push_str(&table(&keys(&state.top), 2)),
    }
    if !state.top_shadowed.is_empty() {
        text.push_str(
            "\nWould have been denied most in the last hour, were their rules enforced\n",
        );
        text.push_str(&table(&keys(&state.top_shadowed), 2));
    }
    let shown = view.rows.len().min(RULES_MAX);
    text.push_str(&format!("\nRules ({shown} of {})\n", state.rules_total));
    let mut rows = vec![RULE_HEADS.map(str::to_owned).to_vec()];
    rows.extend(view.rows.iter().take(RULES_MAX).map(rule));
    text.push_str(&table(&rows, 2));
    text
}

/// The columns of nodes.
pub(super) const NODE_HEADS: [&str; 6] =
    ["NODE", "STATE", "ALLOWED/S", "DENIED/S", "P99", "FAULTS"];

/// The columns of a node.
pub(super) fn node(view: &View) -> Vec<String> {
    let name = within_line(view.name()).into_owned();
    let Some(state) = view.live() else {
        let why = match view.link {
            Link::Connecting | Link::Live => "connecting",
            Link::Ended => "shuts down",
            Link::Lost(..) => "away",
            Link::Refused(..) => "refused",
        };
        let mut row = vec![name, why.to_owned()];
        row.resize(NODE_HEADS.len(), "-".to_owned());
        return row;
    };
    let second = state.second;
    vec![
        name,
        within_line(&state.node.state).into_owned(),
        second.allowed.to_string(),
        second.denied.to_string(),
        micros(second.p99_us),
        state.faults.len().to_string(),
    ]
}

fn micros(time: Option<f64>) -> String {
    time.map_or("-".to_owned(), |time| format!("{time:.0} us"))
}

/// The columns of rules.
pub(super) const RULE_HEADS: [&str; 7] = [
    "RULE",
    "LIMIT",
    "MODE",
    "ALLOWED/S",
    "DENIED/S",
    "ALLOWED",
    "DENIED",
];

/// The columns of a rule.
pub(super) fn rule(row: &Row) -> Vec<String> {
    let Row { rule, last } = row;
    vec![
        within_line(&rule.id).into_owned(),
        within_line(&rule.limit).into_owned(),
        within_line(&rule.mode).into_owned(),
        last.allowed.to_string(),
        (last.denied + last.shadow_denied).to_string(),
        rule.counts.allowed.to_string(),
        (rule.counts.denied + rule.counts.shadow_denied).to_string(),
    ]
}

/// The node, and how long it has run.
pub(super) fn head(view: &View) -> String {
    let Some(state) = &view.state else {
        return format!("ratekeeper at {}", within_line(&view.address));
    };
    let node = &state.node;
    let name = match node.name.is_empty() {
        true => &view.address,
        false => &node.name,
    };
    let [name, version, state_of_it] =
        [name, &node.version, &node.state].map(|text| within_line(text));
    let head = format!("{name}  {version}  {state_of_it}");
    match node.started_at {
        // Several nodes have no start.
        0 => head,
        start => format!("{head}  up {}", span(state.second.at.saturating_sub(start))),
    }
}

/// Decisions in the last second, and how long they took.
pub(super) fn decisions(state: &NodeState) -> String {
    let second = state.second;
    let mut line = format!(
        "{} allowed/s, {} denied/s, {} shadow-denied/s, p50 {}, p99 {}",
        second.allowed,
        second.denied,
        second.shadow_denied,
        micros(second.p50_us),
        micros(second.p99_us),
    );
    if second.degraded > 0 {
        line.push_str(&format!(", {} by failure modes/s", second.degraded));
    }
    if second.shed > 0 {
        line.push_str(&format!(", {} shed/s", second.shed));
    }
    if second.unmatched > 0 {
        line.push_str(&format!(", {} unmatched/s pass", second.unmatched));
    }
    if second.unknown_domain > 0 {
        line.push_str(&format!(
            ", {} of unknown domains/s pass",
            second.unknown_domain
        ));
    }
    line
}

/// The health of the node, one fact a line, the worst first.
pub(super) fn health(state: &NodeState) -> Vec<String> {
    let mut lines: Vec<String> = state
        .faults
        .iter()
        .map(|fault| format!("FAULT  {}", within_line(fault)))
        .collect();
    if let Some(error) = &state.config.error {
        lines.push(format!("RULES REFUSED  {}", within_line(error)));
    }
    for breaker in &state.breakers {
        let errors = count(
            usize::try_from(breaker.errors).unwrap_or(usize::MAX),
            "error",
        );
        lines.push(format!(
            "breaker {}  {}, {errors}",
            within_line(&breaker.shard),
            within_line(&breaker.state)
        ));
    }
    for (store, share) in state
        .degraded_ratio
        .iter()
        .filter(|(_, share)| **share > 0.0)
    {
        let name = if store.is_empty() { "default" } else { store };
        lines.push(format!(
            "store {}  {:.0} % by failure modes",
            within_line(name),
            share * 100.0
        ));
    }
    let store = &state.store;
    let place = match store.is_shared {
        true => "in Redis",
        false => "in memory",
    };
    lines.push(match store.capacity {
        0 => format!("counters  {place}"),
        capacity => format!("counters  {} of {capacity}, {place}", store.counters),
    });
    let owed = &state.owed;
    if owed.owed > 0 {
        lines.push(format!(
            "owed  {} hits, {} posted, {} dropped",
            owed.owed, owed.posted, owed.dropped
        ));
    }
    let leases = &state.leases;
    if leases.leases > 0 || leases.over_admission_bound > 0 {
        lines.push(format!(
            "leases  {}, over-admission at most {}",
            leases.leases, leases.over_admission_bound
        ));
    }
    lines.push(format!("rules  loaded {} times", state.config.accepted));
    lines
}

/// The keys of a list, with the count of each.
pub(super) fn keys(keys: &[KeyEntry]) -> Vec<Vec<String>> {
    let row = |key: &KeyEntry| {
        let count = match key.error {
            0 => key.count.to_string(),
            error => format!("{} ±{error}", key.count),
        };
        let own = [&key.key, &key.rule].map(|text| within_line(text).into_owned());
        [&[count], &own[..]].concat()
    };
    keys.iter().map(row).collect()
}

/// A span of time for people: `3d 4h`, `12m 5s`.
fn span(secs: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")];
    let first = UNITS.iter().position(|(unit, _)| secs >= *unit);
    let Some(first) = first else {
        return "0s".to_owned();
    };
    let mut left = secs;
    let parts = UNITS[first..].iter().take(2).map(|(unit, name)| {
        let part = format!("{}{name}", left / unit);
        left %= unit;
        part
    });
    parts.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_two_units() {
        assert_eq!(span(0), "0s");
        assert_eq!(span(59), "59s");
        assert_eq!(span(725), "12m 5s");
        assert_eq!(span(3 * 86_400 + 4 * 3_600 + 59), "3d 4h");
    }
}
