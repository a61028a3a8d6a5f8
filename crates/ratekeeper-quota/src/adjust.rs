//! The steps of policies by which limits of tenants follow their usage.
//!
//! All nodes look at the same calls in the database. Each step is a change of one tenant on the condition that
//! it has not been changed since it was looked at, so of several nodes that want to take a step one does.

mod busy;
mod demand;
mod shadow;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_rules::{
    AdjustMode, AdjustPolicy, BadQuotas, Dated, Domain, RaisedSteps, Rule, RuleSet, TenantHash,
    TenantOverride, TenantQuotas, Term,
};
use sqlx::Row;

use crate::rows::{self, stored};
use crate::store::within;
use crate::{Editor, Precondition, QuotaError, QuotaStore, TenantId, TenantPut, TenantRecord};

/// The name under which steps stand in the audit trail.
const EDITOR: &str = "adjust policy";

/// The kind of change of a step in the audit trail.
const ACTION: &str = "adjust";

/// The tenants that one query asks for.
const PAGE: usize = 500;

/// The least time for which an override stays that another build writes in other words: nodes of both would rewrite it against
/// each other.
const REWORDED_EVERY: Micros = Micros::from_secs(3_600);

/// The tenants to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdjustRound {
    /// Those that may need more, of limits over less than a day.
    Busy,
    /// Those, the ones of limits over a day or longer, and all whose limits are raised.
    All,
}

/// The times of a look, by two clocks of the node that looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdjustTimes {
    /// The time of the wall, by which all nodes read the terms of plans and overrides. A step begins then.
    pub wall: Timestamp,
    /// The time that the node records its calls by, which may be ahead of the wall for long.
    pub recorded: Timestamp,
}

/// A step that was taken, or would be.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AdjustStep {
    /// The tenant.
    pub tenant: TenantId,
    /// The plan whose limit is raised.
    pub plan: Box<str>,
    /// [`AdjustMode::Shadow`] if it was not taken.
    pub mode: AdjustMode,
    /// The number of steps before.
    pub from: u16,
    /// The number of steps after.
    pub to: u16,
    /// The limit after, in hits a window.
    pub limit: u64,
    /// The reason why it cannot be taken: the rules do not allow the tenant what it would have.
    pub refused: Option<BadQuotas>,
}

/// The result of a try to take a step.
#[derive(Debug)]
enum Outcome {
    Taken,
    /// There was none to take, or somebody has changed the tenant meanwhile.
    Nothing,
    Refused(BadQuotas),
}

impl Outcome {
    const fn of(is_taken: bool) -> Self {
        match is_taken {
            true => Self::Taken,
            false => Self::Nothing,
        }
    }
}

/// A plan that a policy raises, with what tells how much of it is used.
struct Raised<'a> {
    domain: &'a Domain,
    policy: &'a AdjustPolicy,
    plan: &'a str,
    rule: &'a Rule,
    rules: &'a RuleSet,
    /// The ids of the rules whose calls count: the plan's, and that of overrides.
    counted: [String; 2],
    /// The time over which calls are added up, in minutes.
    period: u64,
    /// The calls that the plan allows in that time.
    capacity: u64,
    times: AdjustTimes,
}

impl QuotaStore {
    /// Looks at the calls of the tenants of `domain`, and takes the steps that its policy asks for; in shadow mode it
    /// only notes them. Takes no step that another node has taken. Returns those that were refused as well.
    ///
    /// # Errors
    /// The database cannot be used. Steps that were taken by then stay.
    pub async fn adjust(
        &self,
        domain: &str,
        rules: &RuleSet,
        round: AdjustRound,
        times: AdjustTimes,
    ) -> Result<Vec<AdjustStep>, QuotaError> {
        let mut taken = Vec::new();
        let Some(domain) = rules.domain(domain) else {
            return Ok(taken);
        };
        let Some(policy) = domain
            .adjust()
            .filter(|policy| policy.mode != AdjustMode::Off)
        else {
            return Ok(taken);
        };
        self.prepare().await?;
        let own = rules.whole_override_id(domain);
        for (plan, index) in &policy.plans {
            let rule = rules.rule(*index);
            let raised = Raised {
                domain,
                policy,
                plan: domain.plan_name(*plan),
                rule,
                rules,
                counted: [
                    rows::key_text(&rule.id),
                    rows::key_text(own.as_deref().unwrap_or_default()),
                ],
                period: AdjustPolicy::period(rule),
                capacity: AdjustPolicy::capacity(rule),
                times,
            };
            let mut tenants = self.busy(&raised, round).await?;
            if round != AdjustRound::Busy {
                tenants.extend(self.raised(&raised).await?);
            }
            for hash in tenants {
                let Ok(tenant) = hash.parse() else {
                    // Calls that are counted together belong to no single tenant.
                    continue;
                };
                taken.extend(self.adjust_one(&raised, tenant).await?);
            }
        }
        Ok(taken)
    }

    /// The hashes of tenants whose limits are raised, or would be in shadow mode.
    async fn raised(&self, raised: &Raised<'_>) -> Result<Vec<String>, QuotaError> {
        if raised.policy.mode != AdjustMode::On {
            return self.shadow_raised(raised.domain.name()).await;
        }
        let mut found: Vec<String> = Vec::new();
        loop {
            let after = found.last().cloned().unwrap_or_default();
            let page = within(async {
                let query = sqlx::query(
                    "SELECT DISTINCT api_key FROM quota_override WHERE domain = $1 AND steps > 0 \
                     AND api_key > $2 ORDER BY api_key LIMIT $3",
                );
                let query = query.bind(raised.domain.name().to_owned()).bind(after);
                let query = query.bind(stored(PAGE as u64));
                keys(&query.fetch_all(&self.pool).await?, "api_key")
            })
            .await?;
            let is_last = page.len() < PAGE;
            found.extend(page);
            if is_last {
                return Ok(found);
            }
        }
    }

    /// Takes the step of one tenant, if it is to have one.
    async fn adjust_one(
        &self,
        raised: &Raised<'_>,
        tenant: TenantHash,
    ) -> Result<Option<AdjustStep>, QuotaError> {
        let Some(record) = self.get(raised.domain.name(), tenant).await? else {
            return Ok(None);
        };
        let Some(term) = raised.term(&record.quotas) else {
            return Ok(None);
        };
        let (steps, own) = match raised.policy.mode {
            AdjustMode::On => match raised.steps(&record.quotas) {
                Some(found) => found,
                None => return Ok(None),
            },
            _ => match raised.is_set(&record.quotas) {
                true => return Ok(None),
                false => (self.shadow_steps(&record.id).await?, None),
            },
        };
        let calls = self.calls(raised, tenant, steps).await?;
        let demand = demand::of(
            &calls,
            raised.period,
            (raised.policy.lower_after, raised.times),
        );
        let policy = raised.policy;
        let next = policy.next(raised.capacity, steps, demand, raised.times.wall);
        let to = next.unwrap_or(steps.steps);
        let step = AdjustStep {
            tenant: record.id.clone(),
            plan: raised.plan.into(),
            mode: policy.mode,
            from: steps.steps,
            to,
            limit: policy.raised(raised.rule.limited().map_or(0, |limit| limit.quota()), to),
            refused: None,
        };
        let wanted = (to > 0)
            .then(|| policy.override_of(raised.rule, to))
            .flatten();
        let outcome = match policy.mode {
            // The rules may have changed the limit of the plan meanwhile.
            AdjustMode::On
                if next.is_some()
                    || raised.is_outdated((own.as_ref(), record.updated_at), wanted.as_ref()) =>
            {
                let since = next.map_or(steps.since, |_| raised.times.wall);
                let term = Term {
                    from: since,
                    ..term
                };
                let wanted = wanted.map(|own| own.during(term));
                self.take(raised, &record, wanted).await?
            }
            AdjustMode::Shadow if next.is_some() => {
                Outcome::of(self.record_shadow(raised, &step).await?)
            }
            _ => Outcome::Nothing,
        };
        Ok(match outcome {
            Outcome::Nothing => None,
            Outcome::Taken => Some(step),
            Outcome::Refused(why) => Some(AdjustStep {
                refused: Some(why),
                ..step
            }),
        })
    }

    /// The calls of a tenant by minute, as far back as they matter.
    async fn calls(
        &self,
        raised: &Raised<'_>,
        tenant: TenantHash,
        steps: RaisedSteps,
    ) -> Result<Vec<(u64, u64)>, QuotaError> {
        let mut minutes = raised.period + 1;
        if steps.steps > 0 {
            minutes += raised.policy.lower_after.get() / demand::MINUTE + 1;
        }
        let from = demand::minute(raised.times.wall).saturating_sub(minutes);
        within(async {
            let rows = sqlx::query(
                "SELECT minute, CAST(SUM(allowed) AS BIGINT) AS calls FROM quota_usage WHERE domain = $1 \
                 AND api_key = $2 AND minute >= $3 AND (rule = $4 OR rule = $5) GROUP BY minute ORDER BY minute",
            )
            .bind(raised.domain.name().to_owned())
            .bind(tenant.to_string())
            .bind(stored(from))
            .bind(raised.counted[0].clone())
            .bind(raised.counted[1].clone())
            .fetch_all(&self.pool)
            .await?;
            let row = |row: &sqlx::any::AnyRow| {
                let minute = rows::whole(row.try_get("minute")?, "quota_usage")?;
                Ok((minute, rows::whole(row.try_get("calls")?, "quota_usage")?))
            };
            rows.iter().map(row).collect()
        })
        .await
    }

    /// Gives a tenant another override of the policy, or none.
    async fn take(
        &self,
        raised: &Raised<'_>,
        record: &TenantRecord,
        wanted: Option<TenantOverride>,
    ) -> Result<Outcome, QuotaError> {
        let mut quotas = record.quotas.clone();
        quotas.overrides.retain(|own| !is_raised(own));
        quotas.overrides.extend(wanted);
        if let Err(why) = quotas.check(&record.id.domain, raised.rules) {
            return Ok(Outcome::Refused(why));
        }
        let put = TenantPut::now(record.id.clone(), quotas);
        let expected = Precondition::Version(record.version);
        let editor = editor();
        let written = within(async {
            let mut change = self.begin().await?;
            let put = change.put(ACTION, &put, expected, (&editor, raised.rules));
            let written = put.await?;
            if written.is_changed {
                self.commit(change).await?;
            }
            Ok(written.is_changed)
        });
        match written.await {
            Err(QuotaError::Changed { .. }) => Ok(Outcome::Nothing),
            written => written.map(Outcome::of),
        }
    }
}

/// Returns true for an override that the policy has made.
fn is_raised(own: &TenantOverride) -> bool {
    own.descriptor.is_empty() && own.steps.is_some()
}

fn editor() -> Editor {
    Editor {
        name: EDITOR.to_owned(),
        ..Editor::default()
    }
}

fn keys(rows: &[sqlx::any::AnyRow], column: &str) -> Result<Vec<String>, QuotaError> {
    rows.iter().map(|row| Ok(row.try_get(column)?)).collect()
}

impl Raised<'_> {
    /// The time in which a tenant is on the plan, if it is now.
    fn term(&self, quotas: &TenantQuotas) -> Option<Term> {
        let in_force = quotas.plans.iter();
        let in_force = in_force.filter(|plan| plan.term().contains(self.times.wall));
        let plan = in_force.max_by_key(|plan| plan.term().from)?;
        (*plan.plan == *self.plan).then(|| plan.term())
    }

    /// Returns true if the override of a tenant, with the time of the tenant's last change, is to become the one that is `wanted`.
    fn is_outdated(
        &self,
        (own, changed): (Option<&TenantOverride>, Timestamp),
        wanted: Option<&TenantOverride>,
    ) -> bool {
        let both = own.zip(wanted);
        let is_reworded = both.is_some_and(|(own, wanted)| {
            let is_same = || self.rules.is_same_override(self.domain, own, wanted);
            own.steps == wanted.steps && is_same()
        });
        own != wanted && (!is_reworded || changed.after(REWORDED_EVERY) <= self.times.wall)
    }

    /// Returns true if somebody has set a limit for the tenant as a whole.
    fn is_set(&self, quotas: &TenantQuotas) -> bool {
        let mut own = quotas.overrides.iter();
        own.any(|own| {
            own.descriptor.is_empty() && own.steps.is_none() && self.times.wall < own.term().until
        })
    }

    /// The steps that a tenant has, with the override; [`None`] if its limit is none of the policy's business.
    fn steps(&self, quotas: &TenantQuotas) -> Option<(RaisedSteps, Option<TenantOverride>)> {
        if self.is_set(quotas) {
            return None;
        }
        let mut own = quotas.overrides.iter();
        let found = own.find(|own| is_raised(own) && self.times.wall < own.term().until);
        Some(match found {
            None => (RaisedSteps::default(), None),
            Some(own) => {
                let steps = RaisedSteps {
                    steps: own.steps.unwrap_or(0),
                    since: own.term().from,
                };
                (steps, Some(own.clone().during(Term::ALWAYS)))
            }
        })
    }
}
