//! The limits of a descriptor's plans.

use super::context::Context;
use super::fields::{At, not_a_map};
use super::limits::{LimitDefaults, ParsedLimit, parse_limit};
use super::nearest::nearest;
use crate::report::Report;
use crate::yaml::{Kind, Mark, Node, Resolved, Scalar};
use crate::{PlanLimit, RuleLimit};

/// The `plans:` of a descriptor.
#[derive(Default)]
pub(super) struct ParsedPlans {
    /// The limits of the default plan and their position, if it is listed here as well.
    pub(super) default: Option<At<Vec<ParsedLimit>>>,
    /// The limits of the other plans, in the order of the domain's plans.
    pub(super) others: Vec<PlanLimit>,
}

/// Reads `plans:`; `known` are the domain's plans, of which the first is the default.
pub(super) fn parse_plans(
    node: &Node,
    known: &[Box<str>],
    around: LimitDefaults<'_>,
    report: &mut Report<'_>,
) -> ParsedPlans {
    let Some(pairs) = node.as_map() else {
        let message = format!(
            "`plans` of a descriptor must be a mapping, not {}",
            node.kind_name()
        );
        report.error(
            node.mark,
            message,
            "write `plans: { pro: { unit: minute, requests_per_unit: 1000 } }`",
        );
        return ParsedPlans::default();
    };
    let mut plans = ParsedPlans::default();
    let mut others = Vec::new();
    for pair in pairs {
        let Some(plan) = plan_index(&pair.key, known, report) else {
            continue;
        };
        let limits = parse_limits(&pair.value, Context::PlanLimit, around, report);
        match known.get(plan) {
            Some(_) if plan == 0 => {
                plans.default = Some(At {
                    value: limits,
                    mark: pair.key.mark,
                })
            }
            Some(name) => others.extend(
                limits
                    .into_iter()
                    .map(|limit| (plan, plan_limit(name, limit, report))),
            ),
            None => {}
        }
    }
    if let (false, Some(pair)) = (others.is_empty(), pairs.first()) {
        let message = "no tenant can be on another plan than the default one in this version; \
                       the limits of the others are checked and wait";
        report.warn(pair.key.mark, message, None);
    }
    others.sort_by_key(|&(plan, _)| plan);
    plans.others = others.into_iter().map(|(_, limit)| limit).collect();
    plans
}

fn plan_index(key: &Node, known: &[Box<str>], report: &mut Report<'_>) -> Option<usize> {
    let Kind::Scalar(Scalar {
        text,
        resolved: Resolved::Text,
        ..
    }) = &key.kind
    else {
        report.error(key.mark, "the name of a plan is text", "quote it");
        return None;
    };
    let index = known.iter().position(|name| name == text);
    if index.is_none() {
        let help = match nearest(text, known.iter().map(|name| &**name)) {
            Some(name) => format!("did you mean `{name}`?"),
            None if known.is_empty() => {
                format!(
                    "write `plans: [free, {text}]` at the top of the file; the first is the default"
                )
            }
            None => format!("the plans are {}", known.join(", ")),
        };
        report.error(key.mark, format!("the domain has no plan '{text}'"), help);
    }
    index
}

fn plan_limit(plan: &str, limit: ParsedLimit, report: &Report<'_>) -> PlanLimit {
    PlanLimit {
        plan: plan.into(),
        limit: limit.limit,
        calendar: limit.calendar,
        unit: limit.unit,
        window_text: limit.window_text,
        name: limit.name,
        store: limit.policy.store,
        consistency: limit.policy.consistency,
        place: report.place(limit.mark),
    }
}

/// Reads a limit or a list of limits; two of one list must differ in algorithm or window.
pub(super) fn parse_limits(
    node: &Node,
    context: Context,
    around: LimitDefaults<'_>,
    report: &mut Report<'_>,
) -> Vec<ParsedLimit> {
    let Some(items) = node.as_list() else {
        return parse_limit(node, context, around, report)
            .into_iter()
            .collect();
    };
    if items.is_empty() {
        report.error(
            node.mark,
            "there is no limit in this list",
            "write `- { window: 1s, limit: 5 }`",
        );
    }
    let mut limits: Vec<ParsedLimit> = Vec::new();
    for item in items {
        if item.as_map().is_none() {
            not_a_map(item, report);
            continue;
        }
        let Some(limit) = parse_limit(item, context, around, report) else {
            continue;
        };
        if items.len() > 1 && limit.limit == RuleLimit::Unlimited {
            report.error(
                limit.mark,
                "unlimited stands alone, not in a list",
                "leave it out",
            );
        }
        if let Some(twin) = limits.iter().find(|earlier| same_counter(earlier, &limit)) {
            same_window(twin.mark, &limit, report);
        }
        limits.push(limit);
    }
    limits
}

fn same_counter(one: &ParsedLimit, other: &ParsedLimit) -> bool {
    let algorithm = |limit: &ParsedLimit| match limit.limit {
        RuleLimit::Limited(limit) => Some(limit.algorithm()),
        RuleLimit::Unlimited => None,
    };
    algorithm(one) == algorithm(other) && one.window_text == other.window_text
}

fn same_window(twin: Mark, limit: &ParsedLimit, report: &mut Report<'_>) {
    let message = format!(
        "this list has a limit of the same algorithm and window ({}) on line {}",
        limit.window_text, twin.line
    );
    report.error(limit.mark, message, "keep the smaller one");
}
