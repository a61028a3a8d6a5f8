//! The plans of a tenant, and `effective_at` and `expires_at`.

use std::rc::Rc;

use ratekeeper_core::Timestamp;

use super::Around;
use crate::PlanIndex;
use crate::draft::Field;
use crate::format::TenantPlan;
use crate::format::mapping::{Value as _, read_item};
use crate::format::values::Text;
use crate::mark::At;
use crate::parse::plans::plan_index;
use crate::report::Report;
use crate::tenants::Term;
use crate::yaml::Node;

/// Reads `plan:`, one or a list of them with their terms.
pub(super) fn plans(
    node: &Rc<Node>,
    term: Term,
    around: &Around<'_>,
    report: &mut Report<'_>,
) -> Vec<(Term, PlanIndex)> {
    let Some(items) = node.as_list() else {
        let name = Text::read("plan", node, report);
        let plan = name.and_then(|name| plan_index(node.at(&name), around.plans(), report));
        return plan.map(|plan| (term, plan)).into_iter().collect();
    };
    let mut plans: Vec<(Term, PlanIndex)> = Vec::new();
    for item in items {
        let Some(At { value: keys, mark }) = read_item::<TenantPlan>(item, report) else {
            continue;
        };
        let own = self::term(&keys.effective_at, &keys.expires_at, term, report);
        let Some(name) = keys.name.at() else {
            if !keys.name.is_set() {
                report.error(mark, "there is no plan", "write `name: pro`");
            }
            continue;
        };
        if plans.iter().any(|(other, _)| other.from == own.from) {
            let message = "this tenant has a plan from the same time on";
            report.error(mark, message, "give one of them another `effective_at`");
        }
        let name = name.map(|name| &**name);
        plans.extend(plan_index(name, around.plans(), report).map(|plan| (own, plan)));
    }
    plans
}

/// The term from `from` until `until`; what is left out is as in `outer`.
pub(super) fn term(
    from: &Field<Timestamp>,
    until: &Field<Timestamp>,
    outer: Term,
    report: &mut Report<'_>,
) -> Term {
    let term = Term {
        from: from.copied().unwrap_or(outer.from),
        until: until.copied().unwrap_or(outer.until),
    };
    if let Some(at) = until.at().or(from.at())
        && term.until <= term.from
    {
        let message = "this ends before it begins";
        report.error(
            at.mark,
            message,
            "`expires_at` is later than `effective_at`",
        );
    }
    term
}
