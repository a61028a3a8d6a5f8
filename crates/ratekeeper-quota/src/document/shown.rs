//! A tenant as it is shown.

use ratekeeper_core::Timestamp;
use ratekeeper_core::duration::format_duration;
use ratekeeper_rules::time::Rfc3339;
use ratekeeper_rules::{
    CUSTOM, Dated, Domain, Entry, PlanIndex, Rule, RuleSet, TenantOverride, TenantPlan,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::QuotaDocument;
use crate::TenantRecord;

/// A tenant as the admin API shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantDocument {
    /// The tenant; of a secret value only the end, unless the reader named it.
    #[serde(alias = "api_key")]
    pub tenant: String,
    /// The keyed hash of its value, by which it can be named as `hash:…`.
    pub hash: String,
    /// The domain.
    pub domain: String,
    /// The plan that it is on now; `custom` if it has overrides alone. Absent in a domain without plans.
    #[serde(alias = "tier", default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Its plans with their times, if they are not the same for ever.
    #[serde(alias = "tiers", default, skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<TenantPlan>,
    /// Its limits.
    pub quotas: LimitsDocument,
    /// The number of times that its usage was reset.
    pub epoch: u32,
    /// The number of the change that made it so; its entity tag.
    pub version: u64,
    /// The time at which it was first put.
    pub created_at: Rfc3339,
    /// The time of the last change.
    pub updated_at: Rfc3339,
    /// Its own plans and overrides, as a PUT of them would set them again. Only in answers about one tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<QuotaDocument>,
    /// Slips that the change may have which this answers: a descriptor that no rule has, an end in the past, a tenant
    /// that has never been seen. It is made all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The limits of a tenant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitsDocument {
    /// The limit of the tenant as a whole that holds now, from its overrides, its plan or the default plan. Absent if
    /// the rules have none, or more than one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<LimitDocument>,
    /// The limits that it has alone: those in force and those of other times.
    pub overrides: Vec<TenantOverride>,
}

/// A limit.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LimitDocument {
    /// The hits that a window holds.
    pub requests_per_unit: u64,
    /// The window as a unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The window, if no unit is as long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<String>,
}

impl TenantDocument {
    /// A tenant at the time `now`. `named` is its value, where the reader has named it.
    #[must_use]
    pub fn of(record: &TenantRecord, named: Option<&str>, rules: &RuleSet, now: Timestamp) -> Self {
        let QuotaDocument {
            plan,
            plans,
            overrides,
            ..
        } = QuotaDocument::of(&record.quotas);
        let domain = rules.domain(&record.id.domain);
        let in_force = record.quotas.plans.iter().rev();
        let in_force = in_force.filter(|plan| plan.term().contains(now));
        let in_force = in_force.map(|plan| plan.plan.to_string()).next();
        let fallback = plan.filter(|plan| plan == CUSTOM).or_else(|| {
            let name = domain?.plan_name(PlanIndex::DEFAULT);
            Some(name.to_owned()).filter(|name| !name.is_empty())
        });
        let value = named.unwrap_or(&record.id.shown);
        let default = domain.and_then(|domain| {
            LimitDocument::of_whole(record, in_force.as_deref(), domain, (rules, value, now))
        });
        Self {
            tenant: value.to_owned(),
            hash: record.id.hash.to_string(),
            domain: record.id.domain.clone(),
            plan: in_force.or(fallback),
            plans,
            quotas: LimitsDocument { default, overrides },
            epoch: record.quotas.epoch,
            version: record.version,
            created_at: Rfc3339(record.created_at),
            updated_at: Rfc3339(record.updated_at),
            own: None,
            warnings: Vec::new(),
        }
    }

    /// The same with `own`, for one who is going to change it.
    #[must_use]
    pub fn with_own(self, record: &TenantRecord) -> Self {
        Self {
            own: Some(QuotaDocument::of(&record.quotas)),
            ..self
        }
    }
}

impl LimitDocument {
    /// The limit of the tenant as a whole.
    fn of_whole(
        record: &TenantRecord,
        plan: Option<&str>,
        domain: &Domain,
        (rules, value, now): (&RuleSet, &str, Timestamp),
    ) -> Option<Self> {
        let own = record.quotas.overrides.iter();
        let own = own.filter(|own| own.descriptor.is_empty() && own.term().contains(now));
        if let Some(own) = own.max_by_key(|own| own.term().from) {
            let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
            return Some(Self {
                requests_per_unit: own.requests_per_unit,
                unit: text(&own.unit),
                window: text(&own.window),
            });
        }
        let entry = Entry {
            key: domain.tenant()?,
            value,
        };
        let visit = domain.walk(&[entry]).leaf()?;
        let at = plan.and_then(|plan| domain.plans().iter().position(|known| **known == *plan));
        let plan = at.and_then(|at| u16::try_from(at).ok()).map(PlanIndex);
        let is_rate = |rule: &&Rule| {
            let limit = rule.limited();
            limit.is_some_and(|limit| !limit.algorithm().holds_permits())
        };
        let limits = visit.node.rules_on(plan.unwrap_or_default()).iter();
        let mut limits = limits.map(|index| rules.rule(*index)).filter(is_rate);
        let (only, None) = (limits.next()?, limits.next()) else {
            return None;
        };
        let limit = only.limited()?;
        let unit = only.unit.map(|unit| unit.name().to_lowercase());
        Some(Self {
            requests_per_unit: limit.quota(),
            window: unit.is_none().then(|| match &only.calendar {
                Some(_) => only.window_text.to_string(),
                None => format_duration(limit.window()),
            }),
            unit,
        })
    }
}
