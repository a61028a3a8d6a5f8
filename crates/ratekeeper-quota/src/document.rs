//! Tenants as documents: the JSON of the admin API, and of files for import and export.

mod audit;
mod shown;
mod text;

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{BadQuotas, CUSTOM, QuotaList, TenantOverride, TenantQuotas, Term};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use audit::AuditDocument;
pub use shown::{LimitDocument, LimitsDocument, TenantDocument};
pub use text::{DescriptorText, Rfc3339, WHOLE_TENANT};

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
    pub plans: Vec<PlanDocument>,
    /// The limits that the tenant has alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<OverrideDocument>,
    /// The time from which on this holds. If it is still to come, the tenant keeps what it has until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which plan and overrides end; the tenant is on the default plan then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// A plan and the time in which a tenant is on it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanDocument {
    /// The plan.
    #[serde(alias = "tier")]
    pub plan: String,
    /// The time at which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
}

/// A limit that one tenant has alone.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OverrideDocument {
    /// The entries after the tenant's, each as `key:value`; `default`, or nothing, for the tenant as a whole.
    #[serde(default)]
    pub descriptor: DescriptorText,
    /// The hits that a window holds; also read as `limit`, as rules have it.
    #[serde(alias = "limit")]
    pub requests_per_unit: u64,
    /// The window as a unit: `second`, `minute`, `hour`, `day`, `week`, `month` or `year`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The window as a duration, in place of `unit`: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
    /// The hits that may come at once, for algorithms with bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The algorithm; by default that of the limit whose place it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<String>,
    /// True for a budget: hits are charged in full whatever is left. By default as the limit whose place it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_paid: Option<bool>,
    /// The most hits that a post-paid bucket goes below zero; by default ten bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_debt: Option<u64>,
    /// The steps by which the domain's policy (`adjust`) has raised the plan's limit; absent in an override that
    /// somebody has set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u16>,
    /// The time at which it begins; by default that of the whole document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_at: Option<Rfc3339>,
    /// The time at which it ends; by default that of the whole document.
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
            [(term, plan)] if *term == Term::ALWAYS => (Some(plan.to_string()), Vec::new()),
            plans => (None, plans.iter().map(PlanDocument::of).collect()),
        };
        Self {
            plan,
            plans,
            overrides: quotas.overrides.iter().map(OverrideDocument::of).collect(),
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
            (Some(plan), []) => vec![(term(whole, whole), plan.as_str().into())],
            (None, plans) => {
                if let Some(at) = plans.iter().position(|it| it.plan == CUSTOM) {
                    return Err(BadDocument::CustomAmongOthers { at });
                }
                let plan = |it: &PlanDocument| {
                    let times = (it.effective_at, it.expires_at);
                    (term(times, whole), it.plan.as_str().into())
                };
                plans.iter().map(plan).collect()
            }
        };
        let overrides = self.overrides.iter();
        Ok(TenantQuotas {
            plans,
            overrides: overrides.map(|own| own.tenant_override(whole)).collect(),
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

impl PlanDocument {
    fn of((term, plan): &(Term, Box<str>)) -> Self {
        let (effective_at, expires_at) = times(*term);
        Self {
            plan: plan.to_string(),
            effective_at,
            expires_at,
        }
    }
}

/// An override without dates.
impl From<&TenantOverride> for OverrideDocument {
    fn from(own: &TenantOverride) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        Self {
            descriptor: DescriptorText(own.descriptor.iter().map(ToString::to_string).collect()),
            requests_per_unit: own.requests_per_unit,
            unit: text(&own.unit),
            window: text(&own.window),
            burst: own.burst,
            algorithm: text(&own.algorithm),
            post_paid: own.post_paid,
            max_debt: own.max_debt,
            steps: own.steps,
            effective_at: None,
            expires_at: None,
        }
    }
}

impl OverrideDocument {
    pub(crate) fn of((term, own): &(Term, TenantOverride)) -> Self {
        let (effective_at, expires_at) = times(*term);
        Self {
            effective_at,
            expires_at,
            ..Self::from(own)
        }
    }

    fn tenant_override(&self, whole: (Option<Rfc3339>, Option<Rfc3339>)) -> (Term, TenantOverride) {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        let quota = TenantOverride {
            descriptor: self
                .descriptor
                .0
                .iter()
                .map(|it| it.as_str().into())
                .collect(),
            requests_per_unit: self.requests_per_unit,
            unit: text(&self.unit),
            window: text(&self.window),
            burst: self.burst,
            algorithm: text(&self.algorithm),
            post_paid: self.post_paid,
            max_debt: self.max_debt,
            steps: self.steps,
        };
        (term((self.effective_at, self.expires_at), whole), quota)
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
        let kept = |term: &Term| {
            let until = term.until.min(begins);
            let kept = Term { until, ..*term };
            (kept.from < until && now < until).then_some(kept)
        };
        let plans = before.plans.iter();
        let plans = plans.filter_map(|(term, plan)| Some((kept(term)?, plan.clone())));
        after.plans = plans.chain(after.plans).collect();
        let overrides = before.overrides.iter();
        let overrides = overrides.filter_map(|(term, own)| Some((kept(term)?, own.clone())));
        after.overrides = overrides.chain(after.overrides).collect();
    }
    // As the database gives them back.
    after.plans.sort_by_key(|(term, _)| term.from);
    after
}

/// The time of a part; what it does not say, the whole document does.
fn term(
    part: (Option<Rfc3339>, Option<Rfc3339>),
    whole: (Option<Rfc3339>, Option<Rfc3339>),
) -> Term {
    let from = part.0.or(whole.0).map(|time| time.0);
    let until = part.1.or(whole.1).map(|time| time.0);
    Term {
        from: from.unwrap_or(Term::ALWAYS.from),
        until: until.unwrap_or(Term::ALWAYS.until),
    }
}

fn times(term: Term) -> (Option<Rfc3339>, Option<Rfc3339>) {
    let from = (term.from != Term::ALWAYS.from).then_some(Rfc3339(term.from));
    let until = (term.until != Term::ALWAYS.until).then_some(Rfc3339(term.until));
    (from, until)
}
