//! Compiles `adjust:` of all files, once the rules of all domains are known.

use std::sync::Arc;

use super::domain::DomainBuilder;
use crate::adjust::WINDOW_MAX;
use crate::mark::At;
use crate::parse::adjust::ParsedAdjust;
use crate::parse::plans::plan_index;
use crate::report::Report;
use crate::tenants::node_of;
use crate::{AdjustPolicy, Node, PlanIndex, Rule, RuleIndex};

/// Puts the policies of all files into their domains.
pub(super) fn compile(
    files: Vec<Option<At<ParsedAdjust>>>,
    of_file: &[Option<usize>],
    domains: &mut [DomainBuilder],
    reports: &mut [Report<'_>],
    rules: &[Rule],
) {
    let files = files.into_iter().zip(of_file).zip(reports);
    for ((parsed, domain), report) in files {
        let domain = domain.and_then(|at| domains.get_mut(at));
        let (Some(At { value, mark }), Some(domain)) = (parsed, domain) else {
            continue;
        };
        if domain.adjust.is_some() {
            let message = "`adjust` of this domain is in two files";
            report.error(mark, message, "keep one of them");
            continue;
        }
        let Some(tenant) = &domain.settings.tenant else {
            let message = "`adjust` needs to know which entry names the tenant";
            let help = "write `tenant: api_key`, the key of that entry, at the top of the file";
            report.error(mark, message, help);
            continue;
        };
        let key = &*tenant.value;
        let Some(node) = node_of(&domain.nodes, key, &[], None) else {
            let message = format!("there is no descriptor `{key}` whose limits could be raised");
            let help = format!("write `- key: {key}` with a `rate_limit` under `descriptors:`");
            report.error(mark, message, help);
            continue;
        };
        let known = domain.settings.plans.as_ref();
        let known = known.map(|at| at.value.as_slice()).unwrap_or_default();
        let mut plans: Vec<(PlanIndex, RuleIndex)> = Vec::new();
        for name in value.plans.iter().map(At::as_str) {
            let Some(plan) = plan_index(name, known, report) else {
                continue;
            };
            match adjustable(node, plan, rules) {
                Ok(rule) if plans.iter().all(|(other, _)| *other != plan) => {
                    plans.push((plan, rule))
                }
                Ok(_) => {
                    let message = format!("plan '{}' is there twice", name.value);
                    report.error(name.mark, message, "leave one of them out");
                }
                Err(why) => report.error(name.mark, why.to_string(), why.help()),
            }
        }
        domain.adjust = Some(Arc::new(AdjustPolicy {
            mode: value.mode,
            plans,
            raise_at_percent: value.raise_at,
            step_percent: value.step,
            steps_max: value.steps,
            lower_after: value.lower_after,
        }));
    }
}

/// The reason why the limit of a plan cannot be raised.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum NotAdjustable {
    #[error("this is the default plan; tenants are on it without an entry")]
    Default,
    #[error("the tenant's descriptor has no limit on this plan")]
    None,
    #[error("the tenant's descriptor has several limits on this plan")]
    Several,
    #[error("the limit of this plan follows a calendar, is strict, or has sub_windows")]
    Special,
    #[error("the window of this plan's limit is longer than 31 days")]
    TooLong,
}

impl NotAdjustable {
    const fn help(self) -> &'static str {
        match self {
            Self::Default => "name plans that tenants are put on",
            Self::None => "leave the plan out",
            Self::Several => "an override takes the place of all of them: leave the plan out",
            Self::Special => "an override cannot say that: leave the plan out",
            Self::TooLong => "leave the plan out",
        }
    }
}

/// The rule of the only rate that `node` has on a plan.
fn adjustable(node: &Node, plan: PlanIndex, rules: &[Rule]) -> Result<RuleIndex, NotAdjustable> {
    if plan == PlanIndex::DEFAULT {
        return Err(NotAdjustable::Default);
    }
    let rates = node.rules_on(plan).iter().copied().filter_map(|index| {
        let rule = rules.get(index.get())?;
        let limit = rule.limited()?;
        (!limit.algorithm().holds_permits()).then_some((index, rule, limit))
    });
    let rates: Vec<_> = rates.collect();
    let (index, rule, limit) = match rates.as_slice() {
        [] => return Err(NotAdjustable::None),
        [one] => *one,
        _ => return Err(NotAdjustable::Several),
    };
    // What a synced counter is cut into is no property of the limit.
    let is_cut = limit.sub_windows() > 0 && rule.consistency != Some(crate::Consistency::Synced);
    if rule.calendar.is_some() || limit.is_strict() || is_cut {
        return Err(NotAdjustable::Special);
    }
    match limit.window() > WINDOW_MAX {
        true => Err(NotAdjustable::TooLong),
        false => Ok(index),
    }
}
