//! Decisions by rule.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use ratekeeper_limiter::{ListedRule, REMAINING_BOUNDS, RuleCounts, RuleSwitch, Snapshot};
use ratekeeper_rules::FailureMode;

use super::family::{Label, count_of, counter, histogram};

/// The counts of one rule.
#[derive(Debug)]
pub(super) struct RuleRow {
    pub(super) domain: Box<str>,
    pub(super) rule: Box<str>,
    pub(super) plan: Box<str>,
    pub(super) failure_mode: FailureMode,
    pub(super) counts: RuleCounts,
    pub(super) switch: Option<RuleSwitch>,
    /// Of rules whose values may become labels.
    pub(super) details: Vec<(Box<str>, RuleCounts)>,
}

impl RuleRow {
    pub(super) fn labels(&self) -> [Label<'_>; 2] {
        [("domain", &self.domain), ("rule", &self.rule)]
    }
}

pub(super) fn rows(snapshot: &Snapshot) -> Vec<RuleRow> {
    let row = |ListedRule {
                   rule,
                   switch,
                   stats,
                   ..
               }: ListedRule<'_>| RuleRow {
        switch,
        domain: (*stats.domain).into(),
        rule: (*stats.rule).into(),
        plan: stats.plan.clone(),
        failure_mode: rule.on_store_failure,
        counts: stats.counts(),
        details: stats.details(),
    };
    snapshot.listed().map(row).collect()
}

/// Encodes decisions, and the shares that remained after them.
pub(super) fn encode(rules: &[RuleRow], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    decisions(rules, encoder)?;
    remaining(rules, encoder)
}

fn decisions(rules: &[RuleRow], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Decisions by rule: allow, deny, or shadow_deny for a denial that was not enforced";
    let mut metric = counter(encoder, "ratelimit_decisions", help)?;
    for row in rules {
        let RuleCounts {
            allowed,
            denied,
            shadow_denied,
            ..
        } = row.counts;
        for (decision, count) in [
            ("allow", allowed),
            ("deny", denied),
            ("shadow_deny", shadow_denied),
        ] {
            let labels = [
                ("domain", &*row.domain),
                ("rule", &row.rule),
                ("decision", decision),
            ];
            count_of(&mut metric, labels, count)?;
        }
    }
    let mut metric = counter(encoder, "ratelimit_denied", "Denials by rule")?;
    for row in rules {
        count_of(&mut metric, row.labels(), row.counts.denied)?;
    }
    if rules.iter().all(|row| row.details.is_empty()) {
        return Ok(());
    }
    let help = "Decisions by value, for rules with detailed_metric or value_to_metric";
    let mut metric = counter(encoder, "ratelimit_value_decisions", help)?;
    for row in rules {
        for (value, counts) in &row.details {
            for (decision, count) in [("allow", counts.allowed), ("deny", counts.denied)] {
                let [domain, rule] = row.labels();
                let labels = [domain, rule, ("value", value), ("decision", decision)];
                count_of(&mut metric, labels, count)?;
            }
        }
    }
    Ok(())
}

fn remaining(rules: &[RuleRow], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Share of the limit that remained after each decision";
    let mut metric =
        encoder.encode_descriptor("ratelimit_remaining", help, None, MetricType::Histogram)?;
    for row in rules {
        let [domain, rule] = row.labels();
        let labels = [domain, rule, ("plan", &*row.plan)];
        let bounds = REMAINING_BOUNDS.iter().copied().zip(row.counts.remaining);
        let buckets: Vec<_> = bounds.chain([(f64::INFINITY, 0)]).collect();
        #[expect(clippy::cast_precision_loss, reason = "figures of metrics are doubles")]
        let sum = row.counts.remaining_sum_ppm as f64 / 1e6;
        histogram(&mut metric.encode_family(&labels)?, sum, &buckets)?;
    }
    Ok(())
}
