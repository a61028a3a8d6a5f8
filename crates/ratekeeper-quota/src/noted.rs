//! A tenant as the audit trail keeps it. Rows are chained by hashes of their text, so this form stays as it is.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{TenantOverride, TenantQuotas, Term};
use serde::{Deserialize, Serialize};

use crate::TenantRecord;
use crate::rows;

/// A tenant in a row of the audit trail.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotedTenant {
    /// The value; of a secret one only the end.
    pub(crate) shown: String,
    version: u64,
    /// The number of times that its usage was reset.
    pub(crate) epoch: u32,
    plans: Vec<NotedPlan>,
    overrides: Vec<NotedOverride>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotedPlan {
    plan: Box<str>,
    /// Microseconds since 1970; 0 for one without a start.
    effective_at: u64,
    /// The same; [`None`] for one without an end.
    expires_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NotedOverride {
    limit: TenantOverride,
    effective_at: u64,
    expires_at: Option<i64>,
}

impl NotedTenant {
    pub(crate) fn of(record: &TenantRecord) -> Self {
        let plans = record.quotas.plans.iter().map(|(term, plan)| NotedPlan {
            plan: plan.clone(),
            effective_at: term.from.as_micros(),
            expires_at: rows::ends(term),
        });
        let overrides = record.quotas.overrides.iter();
        let overrides = overrides.map(|(term, limit)| NotedOverride {
            limit: limit.clone(),
            effective_at: term.from.as_micros(),
            expires_at: rows::ends(term),
        });
        Self {
            shown: record.id.shown.clone(),
            version: record.version,
            epoch: record.quotas.epoch,
            plans: plans.collect(),
            overrides: overrides.collect(),
        }
    }

    /// The plans and overrides.
    pub(crate) fn quotas(&self) -> TenantQuotas {
        let plans = self.plans.iter();
        let plans = plans.map(|it| (term(it.effective_at, it.expires_at), it.plan.clone()));
        let overrides = self.overrides.iter();
        let overrides =
            overrides.map(|it| (term(it.effective_at, it.expires_at), it.limit.clone()));
        TenantQuotas {
            plans: plans.collect(),
            overrides: overrides.collect(),
            epoch: self.epoch,
        }
    }
}

fn term(from: u64, until: Option<i64>) -> Term {
    Term {
        from: Timestamp::from_micros(from),
        until: until.map_or(Term::ALWAYS.until, rows::time),
    }
}
