//! `slas:`, the service levels of an HTTP API.

use std::rc::Rc;

use ratekeeper_core::{Algorithm, MAX_COUNT, Micros};

use super::context::Context;
use super::fields::{At, Fields};
use super::limits::{parse_id, read_form};
use super::plans::plan_text;
use super::policy::Policy;
use crate::RuleLimit;
use crate::draft::{BuiltLimit, LimitDefaults, LimitDraft};
use crate::http_token::is_token;
use crate::report::Report;
use crate::slas::PathPattern;
use crate::yaml::{Kind, Mark, Node, Resolved, Scalar};
use ratekeeper_core::duration::parse_duration;

/// A service level from a file, checked.
#[derive(Debug)]
pub(crate) struct ParsedLevel {
    pub(crate) mark: Mark,
    pub(crate) id: At<Box<str>>,
    pub(crate) methods: Vec<Box<str>>,
    /// The whole path, base included.
    pub(crate) pattern: PathPattern,
    pub(crate) shadow: bool,
    pub(crate) policy: Policy,
    pub(crate) tiers: Vec<BuiltLimit>,
    /// The tiers of plans. Their names are looked up once all domains are known.
    pub(crate) plans: Vec<PlanTiers>,
}

/// The tiers of one plan.
#[derive(Debug)]
pub(crate) struct PlanTiers {
    pub(crate) plan: At<Box<str>>,
    pub(crate) tiers: Vec<BuiltLimit>,
}

/// The settings around a list of service levels.
#[derive(Clone, Copy)]
pub(crate) struct LevelContext<'a> {
    pub(crate) base: Option<&'a PathPattern>,
    /// The policy at the top of the file.
    pub(crate) policy: &'a Policy,
}

/// Reads a list of service levels; errors have been reported.
pub(super) fn parse_service_levels(
    items: &[Rc<Node>],
    around: LevelContext<'_>,
    report: &mut Report<'_>,
) -> Vec<ParsedLevel> {
    let mut levels = Vec::new();
    for item in items {
        let fields = Fields::item(item, Context::ServiceLevel, report);
        levels.extend(fields.and_then(|fields| parse_level(&fields, around, report)));
    }
    levels
}

fn parse_level(
    fields: &Fields<'_>,
    around: LevelContext<'_>,
    report: &mut Report<'_>,
) -> Option<ParsedLevel> {
    let id = parse_level_id(fields, report);
    let policy = Policy::parse(fields, report).within(around.policy);
    let shadow = fields.boolean("shadow_mode", report);
    let tiers = parse_tiers(fields, &policy, report);
    let plans = parse_plans(fields, &policy, report);
    let (methods, pattern) = parse_match(fields, around.base, report)?;
    Some(ParsedLevel {
        mark: fields.mark,
        id: id?,
        methods,
        pattern: pattern?,
        shadow: shadow.is_some_and(|at| at.value),
        policy,
        tiers,
        plans,
    })
}

fn parse_level_id(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<At<Box<str>>> {
    if !fields.has("id") {
        report.error(
            fields.mark,
            "a service level needs an id",
            "write `id: get-product`",
        );
    }
    let id = parse_id(fields, report)?;
    if id.value.contains('*') {
        let message = format!("the id '{}' of a service level has a `*`", id.value);
        report.error(id.mark, message, "write another sign for it");
        return None;
    }
    Some(id)
}

/// Reads methods and path, under `match:` or beside the id.
fn parse_match(
    fields: &Fields<'_>,
    base: Option<&PathPattern>,
    report: &mut Report<'_>,
) -> Option<(Vec<Box<str>>, Option<PathPattern>)> {
    let nested = match fields.get("match") {
        Some(node) => Some(Fields::new(node, Context::ServiceMatch, report)?),
        None => None,
    };
    let outer = ["methods", "pathPattern"]
        .into_iter()
        .find_map(|key| fields.key_mark(key));
    if let (Some(_), Some(mark)) = (nested, outer) {
        report.error(
            mark,
            "methods and pathPattern stand under `match` or beside it, not both",
            "move it into `match:`",
        );
    }
    let fields = nested.unwrap_or(*fields);
    let methods = parse_methods(&fields, report);
    let pattern = parse_pattern(&fields, base, report);
    Some((methods, pattern))
}

/// Reads `methods:`, in upper case; empty if there are none.
pub(super) fn parse_methods(fields: &Fields<'_>, report: &mut Report<'_>) -> Vec<Box<str>> {
    let mut methods: Vec<Box<str>> = Vec::new();
    for At { value, mark } in fields.texts("methods", report) {
        if is_token(value.as_bytes()) {
            methods.push(value.to_ascii_uppercase().into());
        } else {
            report.error(
                mark,
                format!("'{value}' is not an HTTP method"),
                "write `methods: [GET, POST]`",
            );
        }
    }
    methods
}

fn parse_pattern(
    fields: &Fields<'_>,
    base: Option<&PathPattern>,
    report: &mut Report<'_>,
) -> Option<PathPattern> {
    let Some(At { value, mark }) = fields.text("pathPattern", report) else {
        if !fields.has("pathPattern") {
            report.error(
                fields.mark,
                "there is no `pathPattern`",
                "write `pathPattern: /product/*`",
            );
        }
        return None;
    };
    let pattern = PathPattern::parse(value);
    let whole = pattern.and_then(|pattern| match base {
        Some(base) => pattern.below(base),
        None => Ok(pattern),
    });
    match whole {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            let help = "a path such as `/product/*`: `*` is one segment, `**` the rest, `{name}` a variable";
            report.error(mark, error.to_string(), help);
            None
        }
    }
}

fn parse_tiers(fields: &Fields<'_>, policy: &Policy, report: &mut Report<'_>) -> Vec<BuiltLimit> {
    let items = fields.list("tiers", report).unwrap_or_default();
    if items.is_empty()
        && fields
            .get("tiers")
            .is_none_or(|node| node.as_list().is_some())
    {
        let mark = fields.key_mark("tiers").unwrap_or(fields.mark);
        report.error(
            mark,
            "a service level needs at least one tier",
            "write `tiers: [ { period: 10, threshold: 1000 } ]`",
        );
    }
    tiers_of(items, policy, report)
}

/// Reads `plans:`, each with a tier or a list of them.
fn parse_plans(fields: &Fields<'_>, policy: &Policy, report: &mut Report<'_>) -> Vec<PlanTiers> {
    let Some(node) = fields.get("plans") else {
        return Vec::new();
    };
    let help = "write `plans: { pro: [ { period: 10, threshold: 5000 } ] }`";
    let Some(pairs) = node.as_map() else {
        let message = format!(
            "`plans` of a service level must be a mapping, not {}",
            node.kind_name()
        );
        report.error(node.mark, message, help);
        return Vec::new();
    };
    let mut plans = Vec::new();
    for pair in pairs {
        let Some(plan) = plan_text(&pair.key, report) else {
            continue;
        };
        let one = [Rc::clone(&pair.value)];
        let items = pair.value.as_list().unwrap_or(&one);
        if items.is_empty() {
            let message = format!("the plan '{}' has no tier", plan.value);
            report.error(plan.mark, message, help);
        }
        let plan = plan.map(Into::into);
        let tiers = tiers_of(items, policy, report);
        plans.push(PlanTiers { plan, tiers });
    }
    plans
}

/// Reads tiers, which must differ in algorithm or period.
fn tiers_of(items: &[Rc<Node>], policy: &Policy, report: &mut Report<'_>) -> Vec<BuiltLimit> {
    let mut tiers: Vec<BuiltLimit> = Vec::new();
    for item in items {
        let Some(tier) = parse_tier(item, policy, report) else {
            continue;
        };
        let counted = |tier: &BuiltLimit| match tier.limit {
            RuleLimit::Limited(limit) => Some((limit.algorithm(), limit.window())),
            RuleLimit::Unlimited => None,
        };
        let twin = tiers.iter().find(|other| counted(other) == counted(&tier));
        if let Some(twin) = twin {
            let message = format!("a tier of the same period is on line {}", twin.mark.line);
            report.error(tier.mark, message, "keep the smaller one");
        }
        tiers.push(tier);
    }
    tiers
}

fn parse_tier(item: &Node, outer: &Policy, report: &mut Report<'_>) -> Option<BuiltLimit> {
    let fields = Fields::item(item, Context::Tier, report)?;
    let policy = Policy::parse(&fields, report);
    let draft = LimitDraft {
        algorithm: fields.read("algorithm", |_, _| policy.algorithm, report),
        window: fields.read("period", parse_period, report),
        limit: fields.read_count("threshold", MAX_COUNT, report),
        policy,
        ..read_form(&fields, report)
    };
    if !draft.window.is_set() {
        let help = "write `period: 10`: seconds";
        report.error(fields.mark, "a tier needs a `period`", help);
    }
    if !draft.limit.is_set() {
        let help = "write `threshold: 1000`: calls a period";
        report.error(fields.mark, "a tier needs a `threshold`", help);
    }
    if !draft.window.is_set() || !draft.limit.is_set() {
        return None;
    }
    let around = LimitDefaults {
        policy: outer,
        algorithm: Algorithm::FixedWindow,
    };
    draft.build(around, report)
}

/// Reads a period: whole seconds, or a duration with its unit.
fn parse_period(fields: &Fields<'_>, report: &mut Report<'_>) -> Option<Micros> {
    let node = fields.get("period")?;
    let period = match &node.kind {
        Kind::Scalar(Scalar {
            resolved: Resolved::Int(seconds),
            ..
        }) => u64::try_from(*seconds).ok().map(Micros::from_secs),
        Kind::Scalar(scalar) => parse_duration(&scalar.text).ok(),
        _ => None,
    };
    let period = period.filter(|period| !period.is_zero());
    if period.is_none() {
        report.error(
            node.mark,
            "`period` is at least 1 second",
            "write `period: 10`, or `period: 500ms`",
        );
    }
    period
}
