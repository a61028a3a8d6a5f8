//! One test: a limiter with fresh counters, asked at the times of the steps.

use super::asked::{self, Answered};
use super::compare::{self, Mismatch};
use super::reached::Reached;
use super::seen::{Run, Seen};
use crate::limiter;
use crate::settings::Settings;
use anyhow::Result;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_limiter::{Check, Limiter};
use ratekeeper_rules::{
    Position, RuleSet, RulesTest, TenantHash, TenantIndex, TenantKey, TenantPlan, TenantQuotas,
    TestAnswer, TestStep,
};
use ratekeeper_store::memory::MemoryStore;
use std::collections::HashSet;
use std::sync::Arc;

/// A step whose answers are others than expected.
pub(super) struct FailedStep {
    pub(super) place: Position,
    /// The time of its last request since the test began.
    pub(super) at: Micros,
    /// The number of its requests.
    pub(super) times: u64,
    pub(super) mismatches: Vec<Mismatch>,
    /// The limit that decided the last request, in words; otherwise the reason why none did.
    pub(super) decided_by: String,
}

/// Runs a test to its end, since later answers do not depend on what was expected of earlier ones. Adds the rules that
/// answered to `reached`.
///
/// # Errors
/// The system does not have the memory.
pub(super) fn run(
    test: &RulesTest,
    rules: RuleSet,
    settings: &Settings,
    reached: &mut Reached,
) -> Result<Vec<FailedStep>> {
    let mut trial = Trial {
        limiter: limiter::enforcing(rules, settings)?,
        plans: TenantIndex::new(TenantKey::default()),
        plan: test.plan.clone(),
        met: HashSet::new(),
        start: test.start,
    };
    let mut failed = Vec::new();
    for step in &test.steps {
        let answered = trial.step(step, settings);
        let mismatches = match &answered {
            Ok(Answered::Decided(run)) => compare::run(&step.expected, run),
            Ok(Answered::Refused { status, why }) => compare::refusal(&step.expected, *status, why),
            Err(fault) => vec![Mismatch::of_step(fault)],
        };
        if mismatches.is_empty() {
            continue;
        }
        failed.push(FailedStep {
            place: step.place.clone(),
            at: step.time_of(step.times.saturating_sub(1)),
            times: step.times,
            mismatches,
            decided_by: match answered {
                Ok(Answered::Decided(run)) => run.last.decided_by(),
                _ => "no limit was asked".to_owned(),
            },
        });
    }
    reached.add(&trial.limiter.snapshot());
    Ok(failed)
}

struct Trial {
    limiter: Limiter<MemoryStore>,
    /// The plans that steps have given tenants so far.
    plans: TenantIndex,
    /// The plan of tenants that are met for the first time.
    plan: Option<Box<str>>,
    met: HashSet<Tenant>,
    start: Timestamp,
}

/// The name of the domain whose tenants they are, and the tenant.
type Tenant = (Arc<str>, TenantHash);

impl Trial {
    /// Asks the requests of a step. The error says what is wrong with the step.
    fn step(&mut self, step: &TestStep, settings: &Settings) -> Result<Answered, String> {
        // The rules stay while plans change.
        let snapshot = self.limiter.snapshot().clone();
        let at = self.start.after(step.at);
        asked::with_check(&step.request, (at, settings), snapshot.rules(), |check| {
            if step.expected.rule != Some(None) {
                all_known(check, snapshot.rules())?;
            }
            self.put_on_plans(step.plan.as_deref(), check)?;
            Ok(self.ask(step, check))
        })
    }

    /// Puts the tenants that `check` names on the plan of the step, or else new ones on that of the test.
    fn put_on_plans(&mut self, of_step: Option<&str>, check: &Check<'_>) -> Result<(), String> {
        let mut tenants = self.tenants(check);
        if let Some(plan) = of_step {
            if tenants.is_empty() {
                return Err(format!("the plan `{plan}`: the request names no tenant"));
            }
            self.put_on(plan, &tenants)?;
        } else if let Some(plan) = self.plan.clone() {
            tenants.retain(|tenant| !self.met.contains(tenant));
            self.put_on(&plan, &tenants)?;
        }
        self.met.extend(tenants);
        Ok(())
    }

    /// The tenants that `check` names.
    fn tenants(&self, check: &Check<'_>) -> Vec<Tenant> {
        let snapshot = self.limiter.snapshot();
        let rules = snapshot.rules();
        let named = check.descriptors().filter_map(|descriptor| {
            let domain = rules.domain(descriptor.domain)?;
            let at = domain.tenant_at(descriptor.entries)?;
            let hash = self.plans.key().hash(descriptor.entries[at].value);
            Some((Arc::clone(rules.tenants_domain(domain)), hash))
        });
        named.collect()
    }

    fn ask(&self, step: &TestStep, check: &Check<'_>) -> Run {
        let mut run = Run::default();
        for number in 0..step.times {
            let since = step.time_of(number);
            let decision = self.limiter.check_at(check, self.start.after(since));
            let answer = match decision.allowed() {
                true => TestAnswer::Allowed,
                false => TestAnswer::Denied,
            };
            run.count(answer);
            if number + 1 == step.times {
                run.last = Seen::of(&decision, check);
            }
        }
        run
    }

    fn put_on(&mut self, plan: &str, tenants: &[Tenant]) -> Result<(), String> {
        if tenants.is_empty() {
            return Ok(());
        }
        let quotas = TenantQuotas {
            plans: vec![TenantPlan::new(plan)],
            ..TenantQuotas::default()
        };
        let snapshot = self.limiter.snapshot();
        for (domain, tenant) in tenants {
            let checked = quotas.check(domain, snapshot.rules());
            checked.map_err(|wrong| format!("the plan `{plan}`: {wrong}"))?;
            self.plans.put(domain, *tenant, &quotas);
        }
        self.limiter.replace_tenants(self.plans.clone());
        Ok(())
    }
}

/// Refuses a request whose domain the rules do not have: it is allowed whatever they say.
fn all_known(check: &Check<'_>, rules: &RuleSet) -> Result<(), String> {
    let mut domains = check.descriptors().map(|descriptor| descriptor.domain);
    match domains.find(|name| rules.domain(name).is_none()) {
        None => Ok(()),
        Some(name) => Err(format!(
            "the rules have no domain `{name}`; write `rule: ~` if none is meant"
        )),
    }
}
