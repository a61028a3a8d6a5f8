//! The plans of a tenant, and `effective_at` and `expires_at`.

use ratekeeper_core::Timestamp;

use super::Around;
use crate::PlanIndex;
use crate::parse::context::Context;
use crate::parse::fields::{At, Fields, not_a_map};
use crate::parse::plans::plan_index;
use crate::report::Report;
use crate::tenants::Term;
use crate::time::{self, NotATime};

/// Reads `plan:`, one or a list of them with their terms.
pub(super) fn plans(
    fields: &Fields<'_>,
    term: Term,
    around: &Around<'_>,
    report: &mut Report<'_>,
) -> Vec<(Term, PlanIndex)> {
    let Some(node) = fields.get("plan") else {
        return Vec::new();
    };
    let Some(items) = node.as_list() else {
        let name = fields.text("plan", report);
        let plan = name.and_then(|name| plan_index(name, around.plans(), report));
        return plan.map(|plan| (term, plan)).into_iter().collect();
    };
    let mut plans: Vec<(Term, PlanIndex)> = Vec::new();
    for item in items {
        if item.as_map().is_none() {
            not_a_map(item, report);
            continue;
        }
        let Some(fields) = Fields::new(item, Context::TenantPlan, report) else {
            continue;
        };
        let own = self::term(&fields, term, report);
        let Some(name) = fields.text("name", report) else {
            if !fields.has("name") {
                report.error(fields.mark, "there is no plan", "write `name: pro`");
            }
            continue;
        };
        if plans.iter().any(|(other, _)| other.from == own.from) {
            let message = "this tenant has a plan from the same time on";
            report.error(
                fields.mark,
                message,
                "give one of them another `effective_at`",
            );
        }
        plans.extend(plan_index(name, around.plans(), report).map(|plan| (own, plan)));
    }
    plans
}

/// Reads the term of a mapping; what it leaves out is as in `outer`.
pub(super) fn term(fields: &Fields<'_>, outer: Term, report: &mut Report<'_>) -> Term {
    let from = moment(fields, "effective_at", report);
    let until = moment(fields, "expires_at", report);
    let term = Term {
        from: from.map_or(outer.from, |at| at.value),
        until: until.map_or(outer.until, |at| at.value),
    };
    if let Some(at) = until.or(from)
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

fn moment(fields: &Fields<'_>, key: &str, report: &mut Report<'_>) -> Option<At<Timestamp>> {
    let At { value, mark } = fields.text(key, report)?;
    let value = match time::parse(value) {
        Ok(value) => value,
        Err(NotATime::Unreadable) => {
            let message = format!("`{key}` is neither a date nor a date and time of RFC 3339");
            let help = format!(
                "write `{key}: 2027-01-31T00:00:00Z`, with `Z` or the offset from UTC, or `{key}: 2027-01-31`, which is \
                 its start in UTC"
            );
            report.error(mark, message, help);
            return None;
        }
        Err(NotATime::TooLate) => {
            let message = format!("`{key}` is too late: times end in June 2255");
            report.error(mark, message, "leave it out if it never comes");
            return None;
        }
    };
    Some(At { value, mark })
}
