//! The truth of signals: what readiness, the breaker and the log told.

use super::{Evidence, MISSED_SHARE, NODES};
use crate::look::Look;
use crate::verdict::Readiness;

/// Returns true if more looks are wrong than a change that has just happened can explain.
pub(super) fn is_too_many(told: Readiness) -> bool {
    told.clean > 2 && told.clean * MISSED_SHARE > told.looks
}

/// Returns true if a look at the node during the fault found a breaker open.
pub(super) fn is_seen_open(evidence: &Evidence, node: usize) -> bool {
    let mut looks = evidence.looks.iter();
    looks.any(|look| look.node == node && look.is_open && evidence.span.has(look.at))
}

/// Returns true if every node reports `text`, in readiness or in its log.
pub(super) fn is_told(evidence: &Evidence, text: &str) -> bool {
    let in_readiness = |node: usize| {
        let mut looks = evidence.looks.iter();
        looks.any(|look| look.node == node && look.at >= evidence.span.struck && look.tells(text))
    };
    let in_log =
        |node: usize| !text.is_empty() && evidence.logs[node].to_lowercase().contains(text);
    (0..NODES).all(|node| in_readiness(node) || in_log(node))
}

/// The fault that nodes still report after recovery, if any.
pub(super) fn still(last: &[Look]) -> Option<String> {
    let fault = last.iter().find_map(|look| look.faults.first());
    if let Some(fault) = fault {
        return Some(format!("readyz still says: {}", fault.replace('|', " ")));
    }
    let is_open = last.iter().any(|look| look.is_open);
    is_open.then(|| "circuit still open".to_owned())
}
