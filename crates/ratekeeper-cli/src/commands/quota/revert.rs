//! `ratekeeper quota revert`: a tenant's plans and overrides as they were, by the audit trail.

use super::changes::changes;
use super::live::print_tenant;
use super::tenant::{KnownTenant, is_outdated, path};
use crate::cli::{QuotaRevert, TenantArgs};
use crate::commands::admin::query;
use crate::output::{self, within_line};
use anyhow::{Context, Result, bail};
use ratekeeper_core::Timestamp;
use ratekeeper_limiter::Clock;
use ratekeeper_quota::{AuditDocument, QuotaDocument};
use ratekeeper_rules::{Dated as _, TenantOverride, TenantPlan, TenantQuotas, Term};
use serde::Deserialize;
use serde_json::{Value, json};
use std::process::ExitCode;

/// The times that it is tried while others change the same tenant.
const ATTEMPTS_MAX: u32 = 5;

/// The changes that are asked for at once.
const PAGE: &str = "200";

/// A page of the audit trail, the newest change first.
#[derive(Deserialize)]
struct Page {
    changes: Vec<AuditDocument>,
    next_cursor: Option<u64>,
}

pub(super) fn revert(args: &QuotaRevert) -> Result<ExitCode> {
    let mut attempt = 1;
    loop {
        let now = KnownTenant::read(&args.tenant)?;
        let then = match args.to {
            Some(version) => state_at(&args.tenant, version)?,
            None => {
                let then = state_before_last(&args.tenant)?;
                beside_policy(then, &now.quotas, Clock::new().now())?
            }
        };
        let written = match &then {
            Some(then) => now.put(&args.tenant, then).map(Some),
            None if now.version.is_none() => {
                bail!("{} is not in the database", args.tenant.tenant)
            }
            None => take_away(&args.tenant, &now).map(|()| None),
        };
        match written {
            Err(error) if is_outdated(&error) && attempt < ATTEMPTS_MAX => attempt += 1,
            Err(error) => return Err(error),
            Ok(Some(answer)) => return print_tenant(&args.tenant, &now, &answer),
            Ok(None) => return print_gone(&args.tenant, &now),
        }
    }
}

fn take_away(args: &TenantArgs, now: &KnownTenant) -> Result<()> {
    let path = path(args, "");
    let _: Value = args.access.ask_if("DELETE", &path, "", now.condition())?;
    Ok(())
}

fn print_gone(args: &TenantArgs, before: &KnownTenant) -> Result<ExitCode> {
    let name = within_line(&args.tenant);
    // It is done, whatever comes of the question.
    let listed = KnownTenant::read(args).map(|known| known.quotas);
    let listed = listed.unwrap_or_default();
    let has = match listed == TenantQuotas::default() {
        true => "no plan or overrides of its own any more",
        false => "what files give it, and nothing of its own any more",
    };
    let answer = json!({ "tenant": args.tenant, "deleted": true });
    output::answer(args.access.json, &answer, || {
        let changes = changes(&before.quotas, &listed);
        let list: String = changes
            .iter()
            .map(|change| format!("  {change}\n"))
            .collect();
        Ok(format!("{name} has {has}\n{list}"))
    })
}

/// The state before the last change of plans and overrides; [`None`] if the tenant was not there.
fn state_before_last(args: &TenantArgs) -> Result<Option<QuotaDocument>> {
    // The steps of a policy are its own to undo.
    let found = find(args, |row| row.action != "adjust")?;
    let Some(last) = found else {
        bail!(
            "the audit trail has no change of {}'s plans and overrides",
            args.tenant
        );
    };
    document(last.before)
}

/// The state with the steps of a policy that the tenant has `now`, in place of those that it had then: they come and go by
/// themselves. They are those of the same plan, which is in force at `time` in both and ends them, and none stand beside a limit
/// that somebody has set for the tenant as a whole.
fn beside_policy(
    then: Option<QuotaDocument>,
    now: &TenantQuotas,
    time: Timestamp,
) -> Result<Option<QuotaDocument>> {
    let Some(then) = then else {
        return Ok(None);
    };
    let mut quotas = then.quotas()?;
    quotas.overrides.retain(|own| own.steps.is_none());
    let is_whole = |own: &TenantOverride| own.descriptor.is_empty();
    let plans = [&quotas, now].map(|quotas| in_force(quotas, time));
    if let [Some(plan), Some(raised)] = plans
        && plan.plan == raised.plan
        && !quotas.overrides.iter().any(is_whole)
    {
        let until = plan.term().until;
        let is_step = |own: &&TenantOverride| own.steps.is_some() && own.term().contains(time);
        let steps = now.overrides.iter().filter(is_step);
        let steps = steps.map(|own| {
            let from = own.term().from;
            own.clone().during(Term { from, until })
        });
        let steps: Vec<_> = steps.collect();
        quotas.overrides.extend(steps);
    }
    Ok(Some(QuotaDocument::of(&quotas)))
}

/// The plan that counts at `time`: of several, that which began last.
fn in_force(quotas: &TenantQuotas, time: Timestamp) -> Option<&TenantPlan> {
    let plans = quotas.plans.iter();
    let plans = plans.filter(|plan| plan.term().contains(time));
    plans.max_by_key(|plan| plan.term().from)
}

/// The state after change number `version`, or the one before it.
fn state_at(args: &TenantArgs, version: u64) -> Result<Option<QuotaDocument>> {
    let Some(row) = find(args, |row| row.version <= version)? else {
        bail!(
            "{} was not in the database at change {version}; `quota delete` takes it out",
            args.tenant
        );
    };
    if row.version < version {
        refuse_later(args, version)?;
    }
    document(row.after)
}

/// Refuses the number of a change that nobody has made yet.
fn refuse_later(args: &TenantArgs, version: u64) -> Result<()> {
    let page: Page = args.access.ask("GET", "/admin/v1/audit?limit=1", "")?;
    match page.changes.first() {
        Some(last) if last.version < version => {
            bail!(
                "there is no change {version} yet, the last one is {}",
                last.version
            )
        }
        _ => Ok(()),
    }
}

fn document(state: Option<Value>) -> Result<Option<QuotaDocument>> {
    let document = state.map(serde_json::from_value).transpose();
    document.context("the audit trail of this service tells states in another form")
}

/// The newest change of the tenant's plans and overrides that is so.
fn find(
    args: &TenantArgs,
    is_it: impl Fn(&AuditDocument) -> bool,
) -> Result<Option<AuditDocument>> {
    let query = query([
        ("limit", Some(PAGE)),
        ("tenant", Some(&*args.tenant)),
        ("domain", args.domain.as_deref()),
    ]);
    let mut found = None;
    args.access
        .each_page(&format!("/admin/v1/audit?{query}"), |path| {
            let page: Page = args.access.ask("GET", path, "")?;
            let mut changes = page.changes.into_iter();
            // Other rows are about the usage, or notes such as those of a policy in shadow mode.
            found = changes
                .find(|row| ["put", "delete", "adjust"].contains(&&*row.action) && is_it(row));
            Ok(page.next_cursor.filter(|_| found.is_none()))
        })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

    /// A limit of the tenant as a whole, by so many steps of a policy if that is why it has it.
    fn whole(requests_per_unit: u64, steps: Option<u16>) -> TenantOverride {
        TenantOverride {
            requests_per_unit,
            unit: Some("minute".into()),
            steps,
            ..TenantOverride::default()
        }
    }

    fn orders(requests_per_unit: u64) -> TenantOverride {
        TenantOverride {
            descriptor: ["endpoint:POST /orders"].into_iter().collect(),
            ..whole(requests_per_unit, None)
        }
    }

    fn quotas(plan: &str, overrides: &[TenantOverride]) -> TenantQuotas {
        TenantQuotas {
            plans: vec![TenantPlan::new(plan)],
            overrides: overrides.to_vec(),
            ..TenantQuotas::default()
        }
    }

    #[test]
    fn steps_of_a_policy_stay_as_they_are() {
        let raised = whole(1_500, Some(1));
        let reverted = |then: &TenantQuotas, now: &TenantQuotas| {
            let then = Some(QuotaDocument::of(then));
            let document = beside_policy(then, now, NOW).expect("it says one thing");
            document
                .expect("the tenant was there")
                .quotas()
                .expect("it says one thing")
        };
        // It was raised after the change, and before.
        let now = quotas("pro", &[orders(7), raised.clone()]);
        for steps in [None, Some(3)] {
            let then = steps.map(|steps| whole(2_500, Some(steps)));
            let then: Vec<_> = [orders(5)].into_iter().chain(then).collect();
            let expected = quotas("pro", &[orders(5), raised.clone()]);
            assert_eq!(reverted(&quotas("pro", &then), &now), expected);
        }
        // It came down again since.
        let then = quotas("pro", std::slice::from_ref(&raised));
        let now = quotas("pro", &[orders(7)]);
        assert_eq!(reverted(&then, &now), quotas("pro", &[]));
        // They are of another plan, or make way for a limit that was set.
        let now = quotas("pro", &[raised]);
        let then = quotas("free", &[]);
        assert_eq!(reverted(&then, &now), then);
        let then = quotas("pro", &[whole(9, None)]);
        assert_eq!(reverted(&then, &now), then);
        let none = beside_policy(None, &now, NOW).expect("it can be told");
        assert!(none.is_none());
    }

    #[test]
    fn steps_of_a_policy_stay_where_the_dates_of_their_plan_are_reverted() {
        let term = |days: u64| Term {
            from: Timestamp::EPOCH,
            until: Timestamp::from_secs(1_800_000_000 + days * 86_400),
        };
        let until = |days, overrides: &[TenantOverride]| TenantQuotas {
            plans: vec![TenantPlan::new("pro").during(term(days))],
            overrides: overrides.to_vec(),
            ..TenantQuotas::default()
        };
        let raised = |days| whole(1_500, Some(1)).during(term(days));
        let reverted = |then: &TenantQuotas, now: &TenantQuotas| {
            let then = Some(QuotaDocument::of(then));
            let document = beside_policy(then, now, NOW).expect("it says one thing");
            let document = document.expect("the tenant was there");
            document.quotas().expect("it says one thing")
        };
        // They end with the plan.
        let (then, now) = (until(30, &[]), until(60, &[raised(60)]));
        assert_eq!(reverted(&then, &now), until(30, &[raised(30)]));
        // It had ended.
        let then = TenantQuotas {
            plans: vec![TenantPlan::new("pro").during(Term {
                from: Timestamp::EPOCH,
                until: NOW,
            })],
            ..TenantQuotas::default()
        };
        assert_eq!(reverted(&then, &now), then);
    }
}
