//! The latest loads of the rules, as operators are told about them.

use std::collections::VecDeque;
use std::sync::Arc;

use ratekeeper_rules::{Change, ChangeKind};
use serde::Serialize;
use utoipa::ToSchema;

/// The most loads that are kept.
const LOADS_MAX: usize = 20;

/// The most changes of one load that are logged and kept one by one.
pub(super) const CHANGES_MAX: usize = 50;

/// The most bytes of one change's text.
const TEXT_MAX: usize = 512;

/// The latest loads, the last first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReloadHistory(VecDeque<Arc<ReloadEntry>>);

impl ReloadHistory {
    pub(super) fn record(&mut self, entry: ReloadEntry) {
        self.0.truncate(LOADS_MAX - 1);
        self.0.push_front(Arc::new(entry));
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &ReloadEntry> {
        self.0.iter().map(|entry| &**entry)
    }
}

/// A load of the rules while the service ran.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct ReloadEntry {
    /// The time of the load.
    #[serde(serialize_with = "crate::admin_json::moments::serialize")]
    #[schema(value_type = String, format = DateTime)]
    pub(super) at: u64,
    /// `accepted` or `refused`.
    pub(super) result: &'static str,
    /// The mistakes, with file, line and column; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    /// The number of rules that changed, of which `changes` has the first 50.
    pub(super) changes_total: usize,
    pub(super) changes: Vec<ChangedRule>,
}

impl ReloadEntry {
    pub(super) fn accepted(at: u64, changes: &[Change]) -> Self {
        let listed = changes.iter().take(CHANGES_MAX);
        Self {
            at,
            result: "accepted",
            error: None,
            changes_total: changes.len(),
            changes: listed.map(ChangedRule::from).collect(),
        }
    }

    pub(super) const fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn refused(at: u64, error: &str) -> Self {
        Self {
            at,
            result: "refused",
            error: Some(error.to_owned()),
            changes_total: 0,
            changes: Vec::new(),
        }
    }
}

/// A rule that a load changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, ToSchema)]
pub(crate) struct ChangedRule {
    /// The rule's id.
    rule: String,
    /// `added`, `removed`, `adjusted` (it keeps its usage) or `starts_afresh` (its counters start from zero).
    change: &'static str,
    /// The limit before; absent for a new rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    /// The limit after; absent for a rule that is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    /// Other properties that changed: `on_store_failure local -> deny`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    others: Vec<String>,
}

impl From<&Change> for ChangedRule {
    fn from(change: &Change) -> Self {
        let cut = |text: &String| Some(cut(text).to_owned());
        let (kind, from, to, others) = match &change.kind {
            ChangeKind::Added { limit } => ("added", None, cut(limit), &[][..]),
            ChangeKind::Removed { limit } => ("removed", cut(limit), None, &[][..]),
            ChangeKind::Adjusted { from, to, others } => {
                ("adjusted", cut(from), cut(to), &others[..])
            }
            ChangeKind::StartsAfresh { from, to } => ("starts_afresh", cut(from), cut(to), &[][..]),
            // The crate of the rules may add kinds.
            _ => ("changed", None, None, &[][..]),
        };
        Self {
            rule: self::cut(&change.rule).to_owned(),
            change: kind,
            from,
            to,
            others: others
                .iter()
                .map(|other| self::cut(other).to_owned())
                .collect(),
        }
    }
}

/// As much of a text as a log line or an answer has room for.
pub(super) fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_loads_are_kept() {
        let mut history = ReloadHistory::default();
        for at in 0..100 {
            history.record(ReloadEntry::refused(at, "no"));
        }
        let times: Vec<_> = history.entries().map(|entry| entry.at).collect();
        assert_eq!(times, (80..100).rev().collect::<Vec<_>>());
    }

    #[test]
    fn texts_are_cut() {
        let change = Change::added("r".repeat(600).into(), "é".repeat(600));
        let entry = ReloadEntry::accepted(1, &vec![change; 60]);
        assert_eq!(
            (entry.changes_total, entry.changes.len()),
            (60, CHANGES_MAX)
        );
        let first = &entry.changes[0];
        assert_eq!(first.rule.len(), TEXT_MAX);
        assert_eq!(first.to.as_ref().map(String::len), Some(TEXT_MAX));
    }
}
