//! `overrides:`, the limits that single tenants have.

use std::sync::Arc;

use hashbrown::HashMap;
use ratekeeper_core::Algorithm;

use super::{Around, terms};
use crate::parse::context::Context;
use crate::parse::fields::{At, Fields, not_a_map};
use crate::parse::limits::{LimitDefaults, ParsedLimit, limit_of};
use crate::report::Report;
use crate::rule::LEASE;
use crate::tenants::{OwnLimit, Pattern, Term};
use crate::yaml::Mark;
use crate::{CUSTOM, Enforce, Node, Position, Profile, Rule, RuleIndex};

/// The most overrides of one tenant: a check looks through them.
const OVERRIDES_MAX: usize = 256;

/// The overrides of one domain so far.
#[derive(Default)]
pub(super) struct Overrides {
    targets: HashMap<Box<str>, Target>,
    /// The rules of overrides, by what they are made of: tenants with the same limit share one.
    shared: HashMap<String, RuleIndex>,
}

/// The descriptor of an override.
#[derive(Clone)]
struct Target {
    pattern: Arc<Pattern>,
    id: Arc<str>,
    path: Arc<[Box<str>]>,
    /// The rule of the default plan whose policy the override takes over, if there is one.
    base: Option<RuleIndex>,
}

impl Overrides {
    /// Reads the overrides of one tenant, whose own term is `outer`.
    pub(super) fn read(
        &mut self,
        fields: &Fields<'_>,
        outer: Term,
        around: &Around<'_>,
        rules: &mut Vec<Rule>,
        report: &mut Report<'_>,
    ) -> Vec<OwnLimit> {
        let items = fields.list("overrides", report).unwrap_or_default();
        if let (Some(mark), true) = (fields.key_mark("overrides"), items.len() > OVERRIDES_MAX) {
            let message = format!("a tenant has at most {OVERRIDES_MAX} overrides");
            report.error(mark, message, "give it a plan of its own");
        }
        let mut limits: Vec<OwnLimit> = Vec::new();
        for item in items.iter().take(OVERRIDES_MAX) {
            if item.as_map().is_none() {
                not_a_map(item, report);
                continue;
            }
            let Some(fields) = Fields::new(item, Context::TenantOverride, report) else {
                continue;
            };
            let Some(own) = self.own_limit(&fields, outer, around, rules, report) else {
                continue;
            };
            let is_same = |other: &OwnLimit| {
                Arc::ptr_eq(&other.pattern, &own.pattern) && other.term.from == own.term.from
            };
            if limits.iter().any(is_same) {
                let message =
                    "this tenant has an override of the same descriptor from the same time on";
                report.error(fields.mark, message, "leave one of them out");
            }
            limits.push(own);
        }
        limits
    }

    fn own_limit(
        &mut self,
        fields: &Fields<'_>,
        outer: Term,
        around: &Around<'_>,
        rules: &mut Vec<Rule>,
        report: &mut Report<'_>,
    ) -> Option<OwnLimit> {
        let term = terms::term(fields, outer, report);
        let target = self.target(fields, around, rules, report);
        let base = target.as_ref().and_then(|target| target.base);
        let base = base.map(|base| &rules[base.get()]);
        let algorithm = base.and_then(Rule::limited).map(|limit| limit.algorithm());
        let algorithm = algorithm.or(around.domain.settings.policy.algorithm);
        let defaults = LimitDefaults {
            policy: &Default::default(),
            algorithm: algorithm.unwrap_or(match around.options.profile {
                Profile::Ratekeeper => Algorithm::SlidingWindow,
                Profile::Envoy => Algorithm::FixedWindow,
            }),
        };
        let limit = limit_of(fields, defaults, report)?;
        let target = target?;
        // Two limits that print alike are alike.
        let made_of = format!(
            "{}\0{:?}\0{:?}\0{}\0{:?}",
            target.id, limit.limit, limit.calendar, limit.window_text, limit.name
        );
        let rule = match self.shared.get(&made_of) {
            Some(rule) => *rule,
            None => {
                let rule = RuleIndex(u32::try_from(rules.len()).ok()?);
                rules.push(rule_of(limit, &target, base.cloned(), around, report));
                self.shared.insert(made_of, rule);
                rule
            }
        };
        Some(OwnLimit {
            term,
            pattern: target.pattern,
            rule,
        })
    }

    /// Reads `descriptor:` and finds its place among the rules.
    fn target(
        &mut self,
        fields: &Fields<'_>,
        around: &Around<'_>,
        rules: &[Rule],
        report: &mut Report<'_>,
    ) -> Option<Target> {
        let is_list = fields
            .get("descriptor")
            .is_some_and(|node| node.as_list().is_some());
        let texts: Vec<At<&str>> = match is_list {
            true => fields.texts("descriptor", report),
            false => fields.text("descriptor", report).into_iter().collect(),
        };
        if fields.has("descriptor") && texts.is_empty() {
            return None;
        }
        let mut parts = Vec::new();
        for At { value, mark } in texts.iter().filter(|at| !at.value.is_empty()) {
            let (key, value) = match value.split_once(':') {
                Some((key, value)) => (key, Some(value)),
                None => (*value, None),
            };
            if key.is_empty() {
                let help =
                    "write `descriptor: \"endpoint:POST /orders\"`, the key, a colon and the value";
                report.error(*mark, "the entry of a descriptor has no key", help);
                return None;
            }
            parts.push((key, value.filter(|value| !value.is_empty())));
        }
        let text: Vec<_> = texts.iter().map(|at| at.value).collect();
        let text: Box<str> = text.join("\0").into();
        let known = self.targets.entry(text);
        Some(
            known
                .or_insert_with(|| target(&parts, around, rules))
                .clone(),
        )
    }
}

/// The place of a descriptor's parts, which may be where no rule is.
fn target(parts: &[(&str, Option<&str>)], around: &Around<'_>, rules: &[Rule]) -> Target {
    let pattern = Arc::new(Pattern::new(parts.iter().copied()));
    let node = node_of(&around.domain.nodes, around.tenant_key(), parts);
    // Requests in flight are another kind of limit, which an override leaves alone.
    let is_rate = |index: &RuleIndex| {
        let limit = rules[index.get()].limited();
        limit.is_none_or(|limit| limit.algorithm() != Algorithm::Concurrency)
    };
    let base = node.and_then(|node| node.rules().iter().copied().find(is_rate));
    if let Some(index) = base {
        let rule = &rules[index.get()];
        let draft = around.drafts.get(index.get());
        let id = draft.map(|draft| draft.on_plan(&rule.id, CUSTOM));
        return Target {
            pattern,
            id: id.unwrap_or_default().into(),
            path: Arc::clone(&rule.path),
            base,
        };
    }
    let tenant = (around.tenant_key(), None);
    let shown = std::iter::once(tenant).chain(parts.iter().copied());
    let shown: Vec<String> = shown.map(|part| around.shown(part)).collect();
    let path = parts.iter().map(|(key, value)| match value {
        Some(value) => format!("{key}_{value}").into(),
        None => Box::from(*key),
    });
    let path: Vec<Box<str>> = std::iter::once(around.tenant_key().into())
        .chain(path)
        .collect();
    Target {
        pattern,
        id: format!("{}.{}@{CUSTOM}", around.domain.name, shown.join(".")).into(),
        path: path.into(),
        base: None,
    }
}

/// The node of `parts` below one that any tenant matches, else below one of a certain tenant's.
fn node_of<'n>(
    nodes: &'n [Node],
    tenant: &str,
    parts: &[(&str, Option<&str>)],
) -> Option<&'n Node> {
    let below = |node: &'n Node| {
        let mut at = Some(node);
        for (key, value) in parts {
            let is_it = |child: &&Node| child.key() == *key && child.value() == *value;
            at = at.and_then(|node| node.nodes().iter().find(is_it));
        }
        at
    };
    let here = |any: bool| {
        let mut here = nodes.iter();
        here.find_map(|node| {
            let fits = node.key() == tenant && node.value().is_none() == any;
            fits.then(|| below(node)).flatten()
        })
    };
    let deeper = || {
        let mut here = nodes.iter();
        here.find_map(|node| node_of(node.nodes(), tenant, parts))
    };
    here(true).or_else(|| here(false)).or_else(deeper)
}

/// The rule of an override: its own limit, and otherwise as the rule whose place it takes.
fn rule_of(
    limit: ParsedLimit,
    target: &Target,
    base: Option<Rule>,
    around: &Around<'_>,
    report: &Report<'_>,
) -> Rule {
    let base = base.unwrap_or_else(|| unruled(around, report.place(limit.mark)));
    Rule {
        id: Arc::clone(&target.id),
        path: Arc::clone(&target.path),
        place: report.place(limit.mark),
        limit: limit.limit,
        calendar: limit.calendar,
        unit: limit.unit,
        window_text: limit.window_text,
        name: limit.name,
        plan: Some(CUSTOM.into()),
        retry_after: None,
        ..base
    }
}

/// A rule of the domain that says nothing by itself.
fn unruled(around: &Around<'_>, place: Position) -> Rule {
    let policy = &around.domain.settings.policy;
    let unlimited = ParsedLimit::unlimited(Mark::START);
    Rule {
        id: "".into(),
        domain: Arc::clone(&around.domain.name),
        path: [].into(),
        place,
        limit: unlimited.limit,
        calendar: None,
        unit: None,
        window_text: "".into(),
        name: None,
        replaces: Vec::new(),
        shadow: false,
        quota_mode: false,
        enabled: policy.enabled.unwrap_or(true),
        enforce: policy.enforce.unwrap_or(Enforce::ALL),
        count_denied: policy
            .count_denied
            .unwrap_or(around.options.profile == Profile::Envoy),
        detailed_metric: false,
        value_to_metric: false,
        metadata: None,
        plan: None,
        consistency: policy.consistency,
        lease: LEASE,
        store: policy.store.clone(),
        on_store_failure: policy
            .on_store_failure
            .unwrap_or(around.options.on_store_failure),
        leaky_over_rls: policy.leaky_over_rls.unwrap_or_default(),
        retry_after: None,
    }
}
