//! `slas:`, the service levels of an HTTP API.

use std::rc::Rc;

use ratekeeper_core::Algorithm;

use super::limits::read_id;
use super::plans::plan_text;
use crate::RuleLimit;
use crate::draft::quota::Quota;
use crate::draft::{BuiltLimit, Field, LimitDefaults, LimitDraft};
use crate::format::mapping::read_item;
use crate::format::{ServiceLevel as Level, Tier};
use crate::http_token::is_token;
use crate::mark::{At, Mark};
use crate::policy::Policy;
use crate::report::Report;
use crate::slas::PathPattern;
use crate::yaml::Node;

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
        let level = read_item::<Level>(item, report);
        levels.extend(level.and_then(|level| parse_level(level, around, report)));
    }
    levels
}

fn parse_level(
    at: At<Level>,
    around: LevelContext<'_>,
    report: &mut Report<'_>,
) -> Option<ParsedLevel> {
    let At {
        value: mut level,
        mark,
    } = at;
    let id = level_id(&mut level, mark, report);
    let own = Policy {
        algorithm: level.algorithm.copied(),
        enabled: level.enabled.copied(),
        enforce: level.enforce.copied(),
        ..Policy::of_counting(&level.counting, report)
    };
    let policy = own.within(around.policy);
    let tiers = level_tiers(&level, mark, &policy, report);
    let plans = match level.plans.get() {
        Some(node) => parse_plans(node, &policy, report),
        None => Vec::new(),
    };
    let shadow = level.shadow_mode.copied().unwrap_or_default();
    let (methods, pattern) = parse_match(level, mark, around.base, report)?;
    Some(ParsedLevel {
        mark,
        id: id?,
        methods,
        pattern: pattern?,
        shadow,
        policy,
        tiers,
        plans,
    })
}

fn level_id(level: &mut Level, mark: Mark, report: &mut Report<'_>) -> Option<At<Box<str>>> {
    if !level.id.is_set() {
        let help = "write `id: get-product`";
        report.error(mark, "a service level needs an id", help);
    }
    let id = read_id(&mut level.id, report)?;
    if id.value.contains('*') {
        let message = format!("the id '{}' of a service level has a `*`", id.value);
        report.error(id.mark, message, "write another sign for it");
        return None;
    }
    Some(id)
}

/// Reads methods and path, under `match:` or beside the id.
fn parse_match(
    level: Level,
    mark: Mark,
    base: Option<&PathPattern>,
    report: &mut Report<'_>,
) -> Option<(Vec<Box<str>>, Option<PathPattern>)> {
    let outer = level.methods.key().or(level.path_pattern.key());
    let mut calls = level.calls;
    let (mut methods, path, mark) = match (calls.is_set(), calls.take()) {
        (false, _) => (level.methods, level.path_pattern, mark),
        (true, nested) => {
            let At { value, mark } = *nested?;
            if let Some(mark) = outer {
                report.error(
                    mark,
                    "methods and pathPattern stand under `match` or beside it, not both",
                    "move it into `match:`",
                );
            }
            (value.methods, value.path_pattern, mark)
        }
    };
    let methods = check_methods(methods.take().unwrap_or_default(), report);
    let pattern = parse_pattern(&path, mark, base, report);
    Some((methods, pattern))
}

/// Checks `methods:`, and puts them into upper case, each once; empty if there are none.
pub(super) fn check_methods(written: Vec<At<Box<str>>>, report: &mut Report<'_>) -> Vec<Box<str>> {
    let mut methods: Vec<Box<str>> = Vec::new();
    for At { value, mark } in written {
        if is_token(value.as_bytes()) {
            let method = value.to_ascii_uppercase().into();
            if !methods.contains(&method) {
                methods.push(method);
            }
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
    path: &Field<Box<str>>,
    mark: Mark,
    base: Option<&PathPattern>,
    report: &mut Report<'_>,
) -> Option<PathPattern> {
    if !path.is_set() {
        let help = "write `pathPattern: /product/*`";
        report.error(mark, "there is no `pathPattern`", help);
    }
    let At { value, mark } = path.at()?;
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

fn level_tiers(
    level: &Level,
    mark: Mark,
    policy: &Policy,
    report: &mut Report<'_>,
) -> Vec<BuiltLimit> {
    let items = level.tiers.get().map_or(&[][..], Vec::as_slice);
    if items.is_empty() && (!level.tiers.is_set() || level.tiers.get().is_some()) {
        let mark = level.tiers.key().unwrap_or(mark);
        report.error(
            mark,
            "a service level needs at least one tier",
            "write `tiers: [ { period: 10, threshold: 1000 } ]`",
        );
    }
    tiers_of(items, policy, report)
}

/// Reads `plans:`, each with a tier or a list of them.
fn parse_plans(node: &Node, policy: &Policy, report: &mut Report<'_>) -> Vec<PlanTiers> {
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
        let Some(twin) = twin else {
            tiers.push(tier);
            continue;
        };
        let line = twin.mark.line;
        let (message, help) = match twin.limit == tier.limit {
            true => (
                format!("the same tier is on line {line} already"),
                "leave one of them out",
            ),
            false => (
                format!("a tier of the same period is on line {line}"),
                "keep the smaller one",
            ),
        };
        report.error(tier.mark, message, help);
    }
    tiers
}

fn parse_tier(item: &Node, outer: &Policy, report: &mut Report<'_>) -> Option<BuiltLimit> {
    let At { value: tier, mark } = read_item::<Tier>(item, report)?;
    if !tier.period.is_set() {
        let help = "write `period: 10`: seconds";
        report.error(mark, "a tier needs a `period`", help);
    }
    if !tier.threshold.is_set() {
        let help = "write `threshold: 1000`: calls a period";
        report.error(mark, "a tier needs a `threshold`", help);
    }
    if !tier.period.is_set() || !tier.threshold.is_set() {
        return None;
    }
    let draft = LimitDraft {
        policy: Policy {
            algorithm: tier.algorithm.copied(),
            ..Policy::default()
        },
        algorithm: tier.algorithm,
        quota: Quota {
            window: tier.period,
            limit: tier.threshold,
            form: tier.form,
            ..Quota::default()
        },
        ..LimitDraft::at(mark)
    };
    let around = LimitDefaults {
        policy: outer,
        algorithm: Algorithm::FixedWindow,
    };
    draft.build(around, report)
}
