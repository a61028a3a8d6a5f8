//! An explanation for people.

use crate::output::{self, within_line};
use ratekeeper_limiter::{
    DOMAINS_SHOWN, ExplainedDescriptor, ExplainedLimit, ExplainedNode, Explanation,
};
use std::fmt::Write as _;

/// The whole explanation, a line for each node and each limit.
pub(crate) fn text(explanation: &Explanation) -> String {
    let mut text = String::new();
    let answer = if explanation.allowed {
        "would be allowed"
    } else {
        "would be denied"
    };
    let how = match explanation.evaluation.as_str() {
        "" => "without rules".to_owned(),
        evaluation => format!("evaluation: {evaluation}"),
    };
    let domain = within_line(&explanation.domain);
    let _ = writeln!(text, "domain {domain} ({how}): {answer}");
    if !explanation.domains.is_empty() {
        let known = explanation.domains.join(", ");
        let more = if explanation.domains.len() < DOMAINS_SHOWN {
            ""
        } else {
            ", …"
        };
        let _ = writeln!(text, "there are rules for {}{more}", within_line(&known));
    }
    for each in &explanation.descriptors {
        descriptor(&mut text, each);
    }
    text
}

fn descriptor(text: &mut String, descriptor: &ExplainedDescriptor) {
    let domain = match &descriptor.domain {
        Some(domain) => format!("{domain}: "),
        None => String::new(),
    };
    let entries = format!("{domain}{}", descriptor.entries.join(", "));
    let _ = writeln!(text, "\n[{}]", within_line(&entries));
    if let Some(plan) = &descriptor.plan {
        let _ = writeln!(text, "  plan: {}", within_line(plan));
    }
    for each in &descriptor.nodes {
        node(text, each);
    }
    if let Some(note) = &descriptor.note {
        let _ = writeln!(text, "  {}", within_line(note));
    }
}

fn node(text: &mut String, node: &ExplainedNode) {
    let none = if node.limits.is_empty() {
        ": no limit here"
    } else {
        ""
    };
    let pattern = within_line(&node.pattern);
    let _ = writeln!(text, "  {pattern} ({}){none}", node.how);
    let row = |limit: &ExplainedLimit| {
        vec![
            answer(limit),
            limit.limit.clone(),
            limit.rule.clone(),
            limit.place.clone(),
            note(limit),
        ]
    };
    let rows: Vec<Vec<String>> = node.limits.iter().map(row).collect();
    text.push_str(&output::table(&rows, 4));
}

/// The limit's store, unless it is the default one, and its note.
fn note(limit: &ExplainedLimit) -> String {
    let store = limit
        .store
        .as_ref()
        .map(|store| format!("in store {store}"));
    let notes = store.into_iter().chain(limit.note.clone());
    notes.collect::<Vec<_>>().join("; ")
}

/// The limit's answer, such as `deny, retry in 350 ms`; a dash for a limit that does not take part.
fn answer(limit: &ExplainedLimit) -> String {
    let mut text = match limit.answer.as_str() {
        "" => "-".to_owned(),
        answer => answer.to_owned(),
    };
    if limit.answer == "allow"
        && let Some(remaining) = limit.remaining
    {
        let _ = write!(text, ", {remaining} left");
    }
    if let Some(debt) = limit.debt {
        let _ = write!(text, ", {debt} in debt");
    }
    if let Some(retry) = limit.retry_after_ms {
        let _ = write!(text, ", retry in {}", wait(retry));
    }
    text
}

/// Milliseconds as people say them.
fn wait(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", ms.div_ceil(60_000)),
        _ => format!("{} h", ms.div_ceil(3_600_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_said_in_the_unit_that_fits() {
        assert_eq!(wait(350), "350 ms");
        assert_eq!(wait(12_345), "12.3 s");
        assert_eq!(wait(150_000), "3 min");
        assert_eq!(wait(36_000_000), "10 h");
    }

    #[test]
    fn an_explanation_reads_from_the_answer_down() {
        let explanation: Explanation = serde_json::from_value(serde_json::json!({
            "domain": "api", "known": true, "evaluation": "path", "allowed": false,
            "descriptors": [{
                "entries": ["tenant=a", "endpoint=x"],
                "nodes": [{
                    "pattern": "tenant", "how": "key only",
                    "limits": [{
                        "rule": "api.tenant", "place": "r.yaml:3:5", "limit": "5 per 1s, sliding_window",
                        "counts": true, "answer": "deny", "remaining": 0, "reset_after_ms": 900, "retry_after_ms": 350,
                    }],
                }],
            }],
        }))
        .expect("it has the shape of an explanation");
        assert_eq!(
            text(&explanation),
            "domain api (evaluation: path): would be denied\n\n[tenant=a, endpoint=x]\n  tenant (key only)\n    \
             deny, retry in 350 ms  5 per 1s, sliding_window  api.tenant  r.yaml:3:5\n"
        );
    }
}
