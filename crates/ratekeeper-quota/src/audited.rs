//! A tenant as the audit trail keeps it. Rows are chained by hashes of their text, so this form stays as it is.

use ratekeeper_core::Timestamp;
use ratekeeper_rules::{Dated, TenantOverride, TenantPlan, TenantQuotas, Term};
use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};

use crate::TenantRecord;
use crate::rows;

/// A tenant in a row of the audit trail.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditedTenant {
    /// The value; of a secret one only the end.
    pub(crate) shown: String,
    version: u64,
    /// The number of times that its usage was reset.
    pub(crate) epoch: u32,
    plans: Vec<AuditedPlan>,
    overrides: Vec<AuditedOverride>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditedPlan {
    plan: Box<str>,
    /// Microseconds since 1970; 0 for one without a start.
    effective_at: u64,
    /// The same; [`None`] for one without an end.
    expires_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditedOverride {
    limit: UndatedLimit,
    effective_at: u64,
    expires_at: Option<i64>,
}

impl AuditedPlan {
    fn of(plan: &TenantPlan) -> Self {
        let term = plan.term();
        // The dates are in the term. No field is left out: the trail would say nothing of it.
        let TenantPlan {
            plan,
            effective_at: _,
            expires_at: _,
        } = plan;
        Self {
            plan: plan.clone(),
            effective_at: term.from.as_micros(),
            expires_at: rows::ends(term),
        }
    }
}

impl AuditedTenant {
    pub(crate) fn of(record: &TenantRecord) -> Self {
        let plans = record.quotas.plans.iter().map(AuditedPlan::of);
        let overrides = record.quotas.overrides.iter();
        let overrides = overrides.map(|own| AuditedOverride {
            limit: UndatedLimit::of(own),
            effective_at: own.term().from.as_micros(),
            expires_at: rows::ends(own.term()),
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
        let plans = self.plans.iter().map(|it| {
            let plan = TenantPlan::new(it.plan.clone());
            plan.during(term(it.effective_at, it.expires_at))
        });
        let overrides = self.overrides.iter().map(|it| {
            let own = it.limit.0.clone();
            own.during(term(it.effective_at, it.expires_at))
        });
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

/// An override without its dates, in the form that stays as it is: its descriptor is a list, which is absent for the tenant
/// as a whole.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct UndatedLimit(pub(crate) TenantOverride);

impl UndatedLimit {
    pub(crate) fn of(own: &TenantOverride) -> Self {
        Self(own.clone().during(Term::ALWAYS))
    }
}

impl Serialize for UndatedLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serde_json::to_value(&self.0).map_err(S::Error::custom)?;
        if let Some(fields) = fields.as_object_mut() {
            let entries = self.0.descriptor.iter().map(|entry| &**entry);
            match self.0.descriptor.is_empty() {
                true => fields.remove("descriptor"),
                false => fields.insert("descriptor".to_owned(), entries.collect()),
            };
        }
        fields.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_form_stays_as_it_is() {
        let week = Term {
            from: Timestamp::from_secs(1),
            until: Timestamp::from_secs(2),
        };
        let own = |entries: &[&str]| TenantOverride {
            descriptor: entries.iter().copied().collect(),
            requests_per_unit: 5,
            unit: Some("minute".into()),
            ..TenantOverride::default()
        };
        for (entries, audited) in [
            (
                &["a:b"][..],
                json!({ "descriptor": ["a:b"], "requests_per_unit": 5, "unit": "minute" }),
            ),
            (&[], json!({ "requests_per_unit": 5, "unit": "minute" })),
        ] {
            let limit = UndatedLimit::of(&own(entries).during(week));
            let written = serde_json::to_value(&limit).expect("texts and numbers");
            assert_eq!(written, audited);
            let read: UndatedLimit = serde_json::from_value(audited).expect("it was written so");
            assert_eq!(read.0, own(entries));
        }
    }
}
