//! Tenants as documents: the JSON of the admin API, and of files for import and export.

mod audit;
mod shown;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::time::Rfc3339;
use ratekeeper_rules::{
    BadQuotas, CUSTOM, Dated, Dates, QuotaList, TenantOverride, TenantPlan, TenantQuotas, Term,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use audit::AuditDocument;
pub use shown::{LimitDocument, LimitsDocument, TenantDocument};

/// The plans and overrides that a tenant is to have, in place of all that it has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QuotaDocument {
    /// The plan: one of the domain's `plans`, or `custom` for overrides alone. Without it the tenant is on the
    /// default plan.
    #[serde(alias = "tier", default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Several plans, one after the other, in place of `plan`.
    #[serde(alias = "tiers", default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<TenantPlan>,
    /// The limits that the tenant has alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<TenantOverride>,
    /// The time from which on this holds. If it is still to come, the tenant keeps what it has until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which plan and overrides end; the tenant is on the default plan then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// A document that says two things, or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadDocument {
    /// Both `plan` and `plans` are there.
    #[error("`plan` and `plans` say the same thing")]
    PlanTwice,
    /// The plan is `custom`, and there are no overrides.
    #[error("a tenant on `custom` needs overrides: it has nothing else")]
    NothingCustom,
    /// One of several plans is `custom`.
    #[error("`custom` must be the only plan, in `plan`")]
    CustomAmongOthers {
        /// Its place in the list.
        at: usize,
    },
}

impl BadDocument {
    /// The field that is wrong.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::PlanTwice => "plans".to_owned(),
            Self::NothingCustom => "overrides".to_owned(),
            Self::CustomAmongOthers { at } => format!("plans[{at}].plan"),
        }
    }
}

impl QuotaDocument {
    /// The document of these quotas: all of them, with their times.
    #[must_use]
    pub fn of(quotas: &TenantQuotas) -> Self {
        let (plan, plans) = match quotas.plans.as_slice() {
            [] if quotas.overrides.is_empty() => (None, Vec::new()),
            [] => (Some(CUSTOM.to_owned()), Vec::new()),
            [only] if only.term() == Term::ALWAYS => {
                // Each field is asked for: a plan with more than its name and its time is no bare name.
                let TenantPlan {
                    plan,
                    effective_at: _,
                    expires_at: _,
                } = only;
                (Some(plan.to_string()), Vec::new())
            }
            plans => (None, plans.to_vec()),
        };
        Self {
            plan,
            plans,
            overrides: quotas.overrides.clone(),
            effective_at: None,
            expires_at: None,
        }
    }

    /// The quotas of the document.
    ///
    /// # Errors
    /// The document says two things, or nothing.
    pub fn quotas(&self) -> Result<TenantQuotas, BadDocument> {
        let whole = (self.effective_at, self.expires_at);
        let plans = match (&self.plan, self.plans.as_slice()) {
            (Some(_), [_, ..]) => return Err(BadDocument::PlanTwice),
            (Some(plan), []) if plan == CUSTOM => {
                if self.overrides.is_empty() {
                    return Err(BadDocument::NothingCustom);
                }
                Vec::new()
            }
            (Some(plan), []) => vec![dated(TenantPlan::new(plan.as_str()), whole)],
            (None, plans) => {
                if let Some(at) = plans.iter().position(|it| *it.plan == *CUSTOM) {
                    return Err(BadDocument::CustomAmongOthers { at });
                }
                plans.iter().cloned().map(|it| dated(it, whole)).collect()
            }
        };
        let overrides = self.overrides.iter().cloned();
        Ok(TenantQuotas {
            plans,
            overrides: overrides.map(|own| dated(own, whole)).collect(),
            epoch: 0,
        })
    }

    /// The quotas that a tenant has from `now` on if it had those `before`, and the document takes their place.
    ///
    /// # Errors
    /// The document says two things, or nothing.
    pub fn quotas_after(
        &self,
        before: &TenantQuotas,
        now: Timestamp,
    ) -> Result<TenantQuotas, BadDocument> {
        let begins = self.effective_at.map(|time| time.0);
        Ok(replaced(Some(before), &self.quotas()?, begins, now))
    }

    /// The field of the document that a mistake in its quotas is about.
    #[must_use]
    pub fn field(&self, bad: &BadQuotas) -> String {
        let is_one = self.plans.is_empty();
        match bad {
            BadQuotas::NoDomain { .. } => "?domain".to_owned(),
            BadQuotas::NoPlan { .. } if is_one => "plan".to_owned(),
            BadQuotas::NoPlan { at, .. } => format!("plans[{at}].plan"),
            BadQuotas::EndsBeforeItBegins { list, at } => {
                self.field_of_time(*list, *at, "expires_at")
            }
            BadQuotas::BeginsTwice { list, at } => self.field_of_time(*list, *at, "effective_at"),
            BadQuotas::TooMany {
                list: QuotaList::Plans,
                ..
            } => "plans".to_owned(),
            bad => bad.field(),
        }
    }

    /// The place of a time: that of the whole document, where the part has none.
    fn field_of_time(&self, list: QuotaList, at: usize, name: &str) -> String {
        let of_part = |effective_at: Option<Rfc3339>, expires_at: Option<Rfc3339>| match name {
            "expires_at" => expires_at.is_some(),
            _ => effective_at.is_some() || self.effective_at.is_none(),
        };
        match list {
            QuotaList::Plans => match self.plans.get(at) {
                Some(plan) if of_part(plan.effective_at, plan.expires_at) => {
                    format!("plans[{at}].{name}")
                }
                _ => name.to_owned(),
            },
            QuotaList::Overrides => match self.overrides.get(at) {
                Some(own) if of_part(own.effective_at, own.expires_at) => {
                    format!("overrides[{at}].{name}")
                }
                _ => name.to_owned(),
            },
        }
    }
}

/// The quotas of a tenant after new ones take the place of those `before`: at once, or at the time `begins` if that is
/// still to come.
pub(crate) fn replaced(
    before: Option<&TenantQuotas>,
    wanted: &TenantQuotas,
    begins: Option<Timestamp>,
    now: Timestamp,
) -> TenantQuotas {
    let mut after = wanted.clone();
    after.epoch = before.map_or(0, |before| before.epoch);
    if let (Some(begins), Some(before)) = (begins.filter(|at| *at > now), before) {
        // What has ended by now is of no use any more.
        fn kept<T: Dated + Clone>(all: &[T], begins: Timestamp, now: Timestamp) -> Vec<T> {
            let kept = |part: &T| {
                let Term { from, until } = part.term();
                let until = until.min(begins);
                (from < until && now < until).then(|| part.clone().during(Term { from, until }))
            };
            all.iter().filter_map(kept).collect()
        }
        after.plans.splice(0..0, kept(&before.plans, begins, now));
        after
            .overrides
            .splice(0..0, kept(&before.overrides, begins, now));
    }
    // As the database gives them back.
    after.plans.sort_by_key(|plan| plan.term().from);
    after
}

/// The part with the dates of the whole document where it has none.
fn dated<T: Dated>(part: T, whole: Dates) -> T {
    let (from, until) = part.dates();
    part.during(Term::of((from.or(whole.0), until.or(whole.1))))
}
