//! `ratekeeper rules publish`: the limits, written for those who call the API.

mod html;
mod markdown;

use crate::cli::{RulesPublish, SlaForm};
use crate::{output, rules};
use anyhow::Result;
use ratekeeper_core::Limit;
use ratekeeper_rules::{Domain, Node, ReadOptions, Rule, RuleIndex, RuleSet, ServiceLevel, secret};
use serde::Serialize;
use std::process::ExitCode;

pub(crate) fn run(args: &RulesPublish) -> Result<ExitCode> {
    let options = args.reading.options()?;
    let loaded = rules::load(&args.rules, None, ReadOptions::default(), &options)?;
    let agreement = Agreement::of(&loaded.rules);
    let title = args.title.as_deref().unwrap_or("Service level agreement");
    let text = match args.format {
        SlaForm::Md => markdown::page(title, &agreement),
        SlaForm::Html => html::page(title, &agreement),
        SlaForm::Json => serde_json::to_string_pretty(&agreement)? + "\n",
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The limits that are enforced. Those that are off or in shadow promise nothing and are left out.
#[derive(Debug, Serialize)]
struct Agreement {
    service_levels: Vec<PublishedLevel>,
    domains: Vec<PublishedDomain>,
}

#[derive(Debug, Serialize)]
struct PublishedLevel {
    id: String,
    /// Empty for all.
    methods: Vec<String>,
    path: String,
    limits: Vec<PublishedLimit>,
}

#[derive(Debug, Serialize)]
struct PublishedDomain {
    name: String,
    rules: Vec<PublishedRule>,
}

#[derive(Debug, Serialize)]
struct PublishedRule {
    /// The conditions that a request has to meet: `each api_key`, `endpoint = POST /orders`. Secrets are fingerprints.
    applies_to: Vec<String>,
    limits: Vec<PublishedLimit>,
}

#[derive(Debug, Serialize)]
struct PublishedLimit {
    /// The limit's name in the `RateLimit-Policy` header.
    policy: String,
    /// The plan that it applies to, if not the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    plan: Option<String>,
    limit: u64,
    /// None for requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<String>,
    /// The most requests at once after idleness, where that differs from the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u64>,
    algorithm: &'static str,
    /// The share of callers that it is enforced for, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced_for: Option<String>,
    in_words: String,
}

impl Agreement {
    fn of(rules: &RuleSet) -> Self {
        let levels = rules.service_levels().iter().filter(|level| level.enabled);
        let levels = levels.map(|level| PublishedLevel::new(rules, level));
        let domains = rules.domains().map(|domain| {
            let mut published = Vec::new();
            for node in domain.nodes() {
                collect(rules, domain, &[], node, &mut published);
            }
            PublishedDomain {
                name: domain.name().to_owned(),
                rules: published,
            }
        });
        Self {
            service_levels: levels.filter(|level| !level.limits.is_empty()).collect(),
            domains: domains.filter(|domain| !domain.rules.is_empty()).collect(),
        }
    }
}

impl PublishedLevel {
    fn new(rules: &RuleSet, level: &ServiceLevel) -> Self {
        Self {
            id: level.id.to_string(),
            methods: level.methods.iter().map(ToString::to_string).collect(),
            path: level.pattern.as_str().to_owned(),
            limits: {
                let of_plans = level.by_plan.iter().flat_map(|(_, rules)| rules);
                let all: Vec<_> = level.rules.iter().chain(of_plans).copied().collect();
                limits(rules, &all)
            },
        }
    }
}

/// The rules of `node` and of all below it.
fn collect(
    rules: &RuleSet,
    domain: &Domain,
    above: &[String],
    node: &Node,
    published: &mut Vec<PublishedRule>,
) {
    let mut applies_to = above.to_vec();
    applies_to.push(entry(domain, node));
    let mut limits = limits(rules, node.rules());
    for (_, own) in node.by_plan() {
        // Requests in flight are limited alike on all plans.
        let rates = own
            .iter()
            .filter(|index| rules.rule(**index).plan.is_some());
        let rates: Vec<RuleIndex> = rates.copied().collect();
        limits.extend(self::limits(rules, &rates));
    }
    if !limits.is_empty() {
        published.push(PublishedRule {
            applies_to: applies_to.clone(),
            limits,
        });
    }
    for child in node.nodes() {
        collect(rules, domain, &applies_to, child, published);
    }
}

fn entry(domain: &Domain, node: &Node) -> String {
    let key = node.key();
    match node.value() {
        None => format!("each {key}"),
        Some(value) if value.contains('*') && node.share_threshold() => {
            format!("all {key} = {value} together")
        }
        Some(value) if value.contains('*') => format!("each {key} = {value}"),
        Some(value) if domain.is_secret(key) => format!("{key} = {}", secret::fingerprint(value)),
        Some(value) => format!("{key} = {value}"),
    }
}

fn limits(rules: &RuleSet, indexes: &[RuleIndex]) -> Vec<PublishedLimit> {
    let rules = indexes.iter().map(|index| rules.rule(*index));
    let is_told = |rule: &&Rule| rule.enabled && !rule.shadow && rule.enforce.hundredths() > 0;
    let limited = rules
        .filter(is_told)
        .filter_map(|rule| Some((rule, rule.limited()?)));
    limited
        .map(|(rule, limit)| PublishedLimit::new(rule, limit))
        .collect()
}

impl PublishedLimit {
    fn new(rule: &Rule, limit: &Limit) -> Self {
        let (plan, window) = (rule.plan.as_deref(), &rule.window_text);
        let algorithm = limit.algorithm();
        let is_rate = !algorithm.holds_permits();
        let burst =
            (algorithm.has_burst() && limit.capacity() != limit.quota()).then(|| limit.capacity());
        let mut in_words = match (is_rate, limit.quota()) {
            (_, 0) => "none".to_owned(),
            (true, quota) => format!("{quota} per {window}"),
            (false, quota) => format!("{quota} at a time"),
        };
        if let Some(burst) = burst {
            in_words.push_str(&format!(", at most {burst} at once"));
        }
        Self {
            policy: rule.name.as_deref().unwrap_or(&rule.id).to_owned(),
            plan: plan.map(str::to_owned),
            limit: limit.quota(),
            period: is_rate.then(|| window.to_string()),
            burst,
            algorithm: algorithm.name(),
            enforced_for: (!rule.enforce.is_all()).then(|| rule.enforce.to_string()),
            in_words,
        }
    }

    /// The limit, its plan and its share of callers in words.
    fn sentence(&self) -> String {
        let mut text = self.in_words.clone();
        if let Some(plan) = &self.plan {
            text = format!("{text} on the plan {plan}");
        }
        if let Some(share) = &self.enforced_for {
            text.push_str(&format!(", for {share} of callers"));
        }
        text
    }
}

/// The sentences that either page tells every reader. They have to hold whatever the settings say, which decide what
/// headers there are and whether a denied call counts.
const HOW: [&str; 2] = [
    "A call over a limit is answered 429. If waiting helps, Retry-After says how many seconds, unless that header is switched off. Where a call has several limits, all must allow it.",
    "Service levels are counted for each tenant, and for each method where one covers several; HEAD counts with GET unless it is listed. What else is limited is counted for each caller or thing that its row names.",
];

#[cfg(test)]
mod tests;
