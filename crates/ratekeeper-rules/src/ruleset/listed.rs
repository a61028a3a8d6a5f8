//! The plans and overrides that files give a tenant, in the words of a quota store.
//!
//! Once a store has a tenant, files do not count for it. So whoever puts it there begins with what files give it, or takes
//! that away.

use ratekeeper_core::duration::format_duration;

use super::RuleSet;
use crate::tenants::{ListedOverride, Tenant};
use crate::{
    Dated, Domain, OverrideDescriptor, PlanIndex, Rule, TenantHash, TenantKey, TenantOverride,
    TenantPlan, TenantQuotas,
};

/// A tenant of files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedTenant {
    /// Its plans and overrides, as a quota store would have them.
    pub quotas: TenantQuotas,
    /// The descriptors of overrides that a quota store cannot have: without a limit, by a calendar, with a name.
    pub unstorable: Vec<OverrideDescriptor>,
}

impl RuleSet {
    /// The plans and overrides that files give the tenant of `domain` whose entry has this value; [`None`] if they do not list it.
    #[must_use]
    pub fn listed(&self, domain: &str, value: &str) -> Option<ListedTenant> {
        let domain = self.domain(domain)?;
        let hash = domain.tenants.key().hash(value);
        Some(self.as_stored(domain, domain.tenants.get(hash)?))
    }

    /// The same of a tenant whose value is not known. [`None`] also if files hash tenants under another key.
    #[must_use]
    pub fn listed_hash(
        &self,
        domain: &str,
        (key, hash): (&TenantKey, TenantHash),
    ) -> Option<ListedTenant> {
        let domain = self.domain(domain)?;
        let is_same = domain.tenants.key() == key;
        let listed = domain.tenants.get(hash).filter(|_| is_same)?;
        Some(self.as_stored(domain, listed))
    }

    fn as_stored(&self, domain: &Domain, tenant: &Tenant) -> ListedTenant {
        let plans = tenant.plans().iter().rev();
        let plans =
            plans.map(|(term, plan)| TenantPlan::new(domain.plan_name(*plan)).during(*term));
        let mut listed = ListedTenant {
            quotas: TenantQuotas {
                plans: plans.collect(),
                ..TenantQuotas::default()
            },
            unstorable: Vec::new(),
        };
        for own in &tenant.limits {
            match self.stored_override(domain, own) {
                Some(stored) => listed.quotas.overrides.push(stored),
                None => listed.unstorable.push((*own.descriptor).clone()),
            }
        }
        listed
    }

    /// The override of a quota store that is the same rule, as briefly as it can be said.
    fn stored_override(&self, domain: &Domain, own: &ListedOverride) -> Option<TenantOverride> {
        let (plan, rule) = own.rules.iter().next()?;
        let rule = self.rule(rule);
        let limit = rule.limited()?;
        let unit = rule.unit.map(|unit| unit.name().to_lowercase().into());
        let window = unit
            .is_none()
            .then(|| format_duration(limit.window()).into());
        let whole = TenantOverride {
            descriptor: (*own.descriptor).clone(),
            requests_per_unit: limit.quota(),
            unit,
            window,
            burst: limit.algorithm().has_burst().then(|| limit.capacity()),
            algorithm: Some(limit.algorithm().name().into()),
            post_paid: Some(limit.is_post_paid()),
            max_debt: limit.max_debt(),
            ..TenantOverride::default()
        };
        let shorter: [fn(&mut TenantOverride); 4] = [
            |own| own.max_debt = None,
            |own| own.post_paid = None,
            |own| own.burst = None,
            |own| own.algorithm = None,
        ];
        let is_same = |said: &TenantOverride| self.is_same_rule(domain, said, (plan, rule));
        let mut found = whole;
        for shorten in shorter {
            let mut brief = found.clone();
            shorten(&mut brief);
            if is_same(&brief) {
                found = brief;
            }
        }
        is_same(&found).then(|| found.during(own.term))
    }

    fn is_same_rule(
        &self,
        domain: &Domain,
        said: &TenantOverride,
        (plan, rule): (PlanIndex, &Rule),
    ) -> bool {
        let compiled = said.compile(&self.site(domain), self.rules());
        let on_plan = compiled.ok().and_then(|made| made.on(plan));
        on_plan.is_some_and(|compiled| {
            let place = rule.place.clone();
            Rule { place, ..compiled } == *rule
        })
    }
}
