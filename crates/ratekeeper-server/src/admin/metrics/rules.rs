//! Decisions by rule.

use std::fmt;

use ratekeeper_core::Limit;
use ratekeeper_limiter::{REMAINING_BOUNDS, RuleCounts, RuleSwitch};
use ratekeeper_rules::FailureMode;

use crate::figures::families::{Families, Label};
use crate::figures::rule_counts::CountedRule;

/// The counts of one rule.
#[derive(Debug)]
pub(super) struct RuleRow {
    pub(super) domain: Box<str>,
    pub(super) rule: Box<str>,
    pub(super) plan: Box<str>,
    pub(super) failure_mode: FailureMode,
    pub(super) counts: RuleCounts,
    pub(super) switch: Option<RuleSwitch>,
    /// Of post-paid buckets.
    pub(super) max_debt: Option<u64>,
    /// Of rules whose values may become labels.
    pub(super) details: Vec<(Box<str>, RuleCounts)>,
}

impl RuleRow {
    pub(super) fn labels(&self) -> [Label<'_>; 2] {
        [("domain", &self.domain), ("rule", &self.rule)]
    }
}

pub(super) fn rows(walked: &[CountedRule<'_>]) -> Vec<RuleRow> {
    let row = |CountedRule { listed, counts }: &CountedRule<'_>| RuleRow {
        switch: listed.switch,
        domain: (*listed.stats.domain).into(),
        rule: (*listed.stats.rule).into(),
        plan: listed.plan.into(),
        failure_mode: listed.rule.on_store_failure,
        counts: *counts,
        max_debt: listed.rule.limited().and_then(Limit::max_debt),
        details: listed.stats.details(),
    };
    walked.iter().map(row).collect()
}

/// Encodes decisions, and the shares that remained after them.
pub(super) fn encode(rules: &[RuleRow], families: &mut Families<'_>) -> fmt::Result {
    let decisions = rules.iter().flat_map(|row| {
        let [domain, rule] = row.labels();
        let counts = by_decision(&row.counts);
        counts.map(|(decision, count)| ([domain, rule, ("decision", decision)], count))
    });
    let help = "Decisions by rule: allow, deny, or shadow_deny for a denial that was not enforced";
    families.counters("ratelimit_decisions", help, decisions)?;
    let denied = rules.iter().map(|row| (row.labels(), row.counts.denied));
    families.counters("ratelimit_denied", "Denials by rule", denied)?;
    let cut = rules.iter().filter(|row| row.max_debt.is_some());
    let cut = cut.map(|row| (row.labels(), row.counts.debt_cut));
    let mut cut = cut.peekable();
    if cut.peek().is_some() {
        let help = "Hits beyond max_debt, which were not charged, by rule";
        families.counters("ratelimit_debt_cut_hits", help, cut)?;
    }
    let details = rules.iter().flat_map(|row| {
        row.details.iter().flat_map(|(value, counts)| {
            let [domain, rule] = row.labels();
            by_decision(counts).map(|(decision, count)| {
                let labels = [domain, rule, ("value", &**value), ("decision", decision)];
                (labels, count)
            })
        })
    });
    let mut details = details.peekable();
    if details.peek().is_some() {
        let help = "Decisions by value, for rules with detailed_metric or value_to_metric";
        families.counters("ratelimit_value_decisions", help, details)?;
    }
    let remaining = rules.iter().map(|row| {
        let [domain, rule] = row.labels();
        let bounds = REMAINING_BOUNDS.iter().copied().zip(row.counts.remaining);
        let buckets = bounds.chain([(f64::INFINITY, 0)]).collect();
        #[expect(clippy::cast_precision_loss, reason = "figures of metrics are doubles")]
        let sum = row.counts.remaining_sum_ppm as f64 / 1e6;
        ([domain, rule, ("plan", &*row.plan)], (sum, buckets))
    });
    let help = "Share of the limit that remained after each decision";
    families.histograms("ratelimit_remaining", help, remaining)
}

fn by_decision(counts: &RuleCounts) -> [(&'static str, u64); 3] {
    [
        ("allow", counts.allowed),
        ("deny", counts.denied),
        ("shadow_deny", counts.shadow_denied),
    ]
}
