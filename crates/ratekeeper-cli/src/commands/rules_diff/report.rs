//! The differences, for people and as JSON. `docs/rules-tests.md` has the fields, which later versions only add to.

use super::loosened;
use crate::output::{self, count, within_line};
use ratekeeper_rules::{Change, ChangeKind, RuleSet};
use serde::Serialize;
use std::fmt::Write as _;

/// The version of the fields: it changes if one is renamed, removed or means something else.
const SCHEMA: u32 = 1;

/// The differences between two sets of rules.
#[derive(Serialize)]
pub(super) struct Report {
    schema: u32,
    same: bool,
    rules: Vec<Difference>,
    /// The differences that are of no rule, in words.
    others: Vec<String>,
    /// The limits that are lifted, in words.
    warnings: Vec<String>,
    /// The reason why nothing was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// A rule that differs.
#[derive(Serialize)]
struct Difference {
    rule: String,
    /// `added`, `removed`, `adjusted` (it keeps its usage) or `starts_afresh` (its counters start from zero).
    change: &'static str,
    /// The limit before; null for a new rule.
    from: Option<String>,
    /// The limit after; null for a rule that is removed.
    to: Option<String>,
    /// Other properties that changed.
    others: Vec<String>,
    #[serde(skip)]
    line: String,
}

impl Report {
    pub(super) fn of(old: &RuleSet, new: &RuleSet) -> Self {
        let changes = new.changes_since(old);
        let rules: Vec<_> = changes.iter().map(Difference::of).collect();
        let others = new.other_changes_since(old);
        Self {
            schema: SCHEMA,
            same: rules.is_empty() && others.is_empty(),
            rules,
            others,
            warnings: loosened::all(old, new),
            error: None,
        }
    }

    /// The report where there is nothing to compare.
    pub(super) fn failed(error: &anyhow::Error) -> Self {
        Self {
            schema: SCHEMA,
            same: false,
            rules: Vec::new(),
            others: Vec::new(),
            warnings: Vec::new(),
            error: Some(output::with_causes(error)),
        }
    }

    pub(super) const fn has_warnings(&self) -> bool {
        !self.warnings.is_empty()
    }

    pub(super) const fn is_same(&self) -> bool {
        self.same
    }

    /// For people: a line for each difference, then the warnings and a summary.
    pub(super) fn text(&self) -> String {
        if self.same {
            return "no difference\n".to_owned();
        }
        let mut text = String::new();
        for difference in &self.rules {
            let sign = match difference.change {
                "added" => '+',
                "removed" => '-',
                "starts_afresh" => '!',
                _ => '~',
            };
            let _ = writeln!(text, "{sign} {}", within_line(&difference.line));
        }
        for other in &self.others {
            let _ = writeln!(text, "~ {}", within_line(other));
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {}", within_line(warning));
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    fn summary(&self) -> String {
        let of = |change: &str| {
            let rules = self.rules.iter().filter(|it| it.change == change);
            rules.count()
        };
        let mut parts = vec![
            format!("{} new", of("added")),
            format!("{} removed", of("removed")),
            format!("{} changed", of("adjusted")),
            format!("{} from zero", of("starts_afresh")),
        ];
        if !self.others.is_empty() {
            parts.push(count(self.others.len(), "other difference"));
        }
        if !self.warnings.is_empty() {
            parts.push(count(self.warnings.len(), "warning"));
        }
        format!("rules: {}", parts.join(", "))
    }
}

impl Difference {
    fn of(change: &Change) -> Self {
        let (kind, from, to, others) = match &change.kind {
            ChangeKind::Added { limit } => ("added", None, Some(limit), &[][..]),
            ChangeKind::Removed { limit } => ("removed", Some(limit), None, &[][..]),
            ChangeKind::Adjusted { from, to, others } => {
                ("adjusted", Some(from), Some(to), &others[..])
            }
            ChangeKind::StartsAfresh { from, to } => {
                ("starts_afresh", Some(from), Some(to), &[][..])
            }
            // The crate of the rules may add kinds.
            _ => ("changed", None, None, &[][..]),
        };
        Self {
            rule: change.rule.to_string(),
            change: kind,
            from: from.cloned(),
            to: to.cloned(),
            others: others.to_vec(),
            line: change.to_string(),
        }
    }
}
