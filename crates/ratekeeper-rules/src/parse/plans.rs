//! The limits of a descriptor's plans.

use super::limits::Limited;
use crate::draft::{BuiltLimit, LimitDefaults};
use crate::format::PlanLimit;
use crate::format::mapping::{Mapping, read_item, read_mapping};
use crate::mark::{At, Mark};
use crate::nearest::nearest;
use crate::report::Report;
use crate::yaml::{Kind, Node, Resolved, Scalar};
use crate::{PlanIndex, RuleLimit};

/// The `plans:` of a descriptor.
#[derive(Default)]
pub(super) struct ParsedPlans {
    /// The limits of the default plan and their position, if it is listed here as well.
    pub(super) default: Option<At<PlanLimits>>,
    /// The limits of the other plans, in the order of the domain's plans.
    pub(super) others: Vec<(PlanIndex, PlanLimits)>,
}

/// The limits of one plan.
pub(super) struct PlanLimits {
    pub(super) limits: Vec<BuiltLimit>,
    /// True if the file has a list of them, even of one.
    pub(super) is_list: bool,
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
    for pair in pairs {
        let Some(name) = plan_text(&pair.key, report) else {
            continue;
        };
        let Some(plan) = plan_index(name, known, report) else {
            continue;
        };
        let limits = PlanLimits {
            limits: parse_limits::<PlanLimit>(&pair.value, around, report),
            is_list: pair.value.as_list().is_some(),
        };
        if plan == PlanIndex::DEFAULT {
            plans.default = Some(pair.key.at(limits));
        } else {
            plans.others.push((plan, limits));
        }
    }
    plans.others.sort_by_key(|&(plan, _)| plan);
    plans
}

/// The name of a plan, as a key of a mapping.
pub(super) fn plan_text<'t>(key: &'t Node, report: &mut Report<'_>) -> Option<At<&'t str>> {
    let Kind::Scalar(Scalar {
        text,
        resolved: Resolved::Text,
        ..
    }) = &key.kind
    else {
        report.error(key.mark, "the name of a plan is text", "quote it");
        return None;
    };
    Some(key.at(text))
}

/// The plan of that name; one that the domain does not have is reported.
pub(crate) fn plan_index(
    name: At<&str>,
    known: &[Box<str>],
    report: &mut Report<'_>,
) -> Option<PlanIndex> {
    let At { value: text, mark } = name;
    let index = known.iter().position(|name| **name == *text);
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
        report.error(mark, format!("the domain has no plan '{text}'"), help);
    }
    // More plans than the index has room for have been reported.
    index.and_then(|index| u16::try_from(index).ok().map(PlanIndex))
}

/// Reads a limit or a list of limits; two of one list must differ in algorithm or window.
pub(super) fn parse_limits<M: Mapping + Limited>(
    node: &Node,
    around: LimitDefaults<'_>,
    report: &mut Report<'_>,
) -> Vec<BuiltLimit> {
    let Some(items) = node.as_list() else {
        let limit = read_mapping::<M>(node, report);
        let limit = limit.and_then(|at| M::draft(at, report).build(around, report));
        return limit.into_iter().collect();
    };
    if items.is_empty() {
        report.error(
            node.mark,
            "there is no limit in this list",
            "write `- { window: 1s, limit: 5 }`",
        );
    }
    let mut limits: Vec<BuiltLimit> = Vec::new();
    for item in items {
        let limit = read_item::<M>(item, report);
        let Some(limit) = limit.and_then(|at| M::draft(at, report).build(around, report)) else {
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

fn same_counter(one: &BuiltLimit, other: &BuiltLimit) -> bool {
    let algorithm = |limit: &BuiltLimit| match limit.limit {
        RuleLimit::Limited(limit) => Some(limit.algorithm()),
        RuleLimit::Unlimited => None,
    };
    algorithm(one) == algorithm(other) && one.window_text == other.window_text
}

fn same_window(twin: Mark, limit: &BuiltLimit, report: &mut Report<'_>) {
    let message = format!(
        "this list has a limit of the same algorithm and window ({}) on line {}",
        limit.window_text, twin.line
    );
    report.error(limit.mark, message, "keep the smaller one");
}
