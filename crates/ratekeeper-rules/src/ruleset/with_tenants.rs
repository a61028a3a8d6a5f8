//! Rules with the tenants of a quota store.

use std::sync::Arc;

use hashbrown::HashMap;

use super::RuleSet;
use crate::folding::FoldedKeys;
use crate::tenants::{
    DomainTenants, OwnRules, Resolved, ResolvedLimit, Site, StoredTenants, TenantIndex,
};
use crate::{Domain, PlanIndex, Rule, RuleIndex, ServiceLevel};

/// Rules with the tenants of a quota store, and the number of records that mean nothing under them.
#[derive(Debug)]
#[non_exhaustive]
pub struct WithTenants {
    /// The rules.
    pub rules: RuleSet,
    /// Domains, plans and limits that tenants have and the rules do not allow, also a limit that the rules do not allow on the
    /// plan of a tenant who has it: such a tenant is on the default plan, without that limit.
    pub unknown: usize,
}

/// Adds a rule; [`None`] if there are too many.
fn push(rule: Rule, rules: &mut Vec<Rule>) -> Option<RuleIndex> {
    let index = RuleIndex(u32::try_from(rules.len()).ok()?);
    rules.push(rule);
    Some(index)
}

impl Domain {
    /// Returns true if the limits of `index` begin with those that the domain has from an earlier index.
    fn is_continued(&self, index: &TenantIndex) -> bool {
        let Some(earlier) = &self.stored else {
            return true;
        };
        let (earlier, now) = (&earlier.tenants.limits, index.domains.get(self.name()));
        now.is_some_and(|now| {
            Arc::ptr_eq(&now.limits, earlier) || now.limits.values.starts_with(&earlier.values)
        }) || earlier.values.is_empty()
    }
}

impl RuleSet {
    /// These rules with the tenants of `index`, in place of those of an earlier index. Plans and limits
    /// are looked up by the rules of the files; a tenant that files list as well is as the index says. Limits
    /// that the earlier index had are not compiled again: a change costs little beside many limits.
    #[must_use]
    pub fn with_tenants(&self, index: &TenantIndex) -> WithTenants {
        let mut rules = self.clone();
        let mut unknown = 0;
        for name in index.domains.keys() {
            unknown += usize::from(self.domain(name).is_none());
        }
        let (mut domains, mut all) = (std::mem::take(&mut rules.domains), rules.rules);
        let mut of_tenants = domains.iter().filter(|domain| domain.tenant.is_some());
        let continues = of_tenants.all(|domain| domain.is_continued(index));
        if !continues {
            all.truncate(self.of_files);
        }
        for domain in domains.iter_mut().filter(|domain| domain.tenant.is_some()) {
            let tenants = index
                .domains
                .get(domain.name())
                .cloned()
                .unwrap_or_default();
            let mut resolved = Resolved::default();
            if let Some(earlier) = domain.stored.as_ref().filter(|_| continues) {
                resolved.limits.clone_from(&earlier.resolved.limits);
            }
            self.resolve(domain, &tenants, &mut resolved, &mut all);
            unknown += resolved.plans.iter().filter(|plan| plan.is_none()).count();
            unknown += tenants.ignored(&resolved);
            domain.stored = Some(StoredTenants {
                key: index.key.clone(),
                tenants,
                resolved: Arc::new(resolved),
                allows_all: index.allows_all,
            });
        }
        let shared = self
            .tenants_of_levels
            .and_then(|at| domains.get(at))
            .cloned();
        if let (Some(shared), Some(levels)) = (shared, domains.get_mut(self.named_by_files)) {
            levels.share_tenants(&shared);
        }
        (rules.domains, rules.rules) = (domains, all);
        WithTenants { rules, unknown }
    }

    /// Adds the limits of `tenants` that are not in `resolved` yet, and sets the plans.
    fn resolve(
        &self,
        domain: &Domain,
        tenants: &DomainTenants,
        resolved: &mut Resolved,
        rules: &mut Vec<Rule>,
    ) {
        let plan_of = |name: &str| {
            let index = domain.plans.iter().position(|plan| **plan == *name)?;
            u16::try_from(index).ok().map(PlanIndex)
        };
        let site = self.site(domain);
        let new = tenants.limits.values.iter().skip(resolved.limits.len());
        // Limits of one descriptor share its pattern, which stays in the cache then.
        let mut patterns = HashMap::new();
        let limits = new.map(|quota| {
            let made = quota.compile(&site, rules).ok()?;
            let of_plans = made.rules.into_iter();
            let of_plans =
                of_plans.map(|(plan, rule)| (plan, rule.ok().and_then(|rule| push(rule, rules))));
            let own = OwnRules::new(of_plans);
            own.iter().next()?;
            let pattern = patterns.entry(&quota.descriptor);
            Some(ResolvedLimit {
                pattern: Arc::clone(pattern.or_insert(made.target.pattern)),
                rules: own,
            })
        });
        resolved.limits.extend(limits);
        let plans = tenants.plans.values.iter();
        resolved.plans = plans.map(|name| plan_of(name)).collect();
    }

    /// The rules of overrides that no tenant has any more: their numbers stay for a while, so that a change of one tenant
    /// costs little. Sorted.
    #[must_use]
    pub fn unused_overrides(&self) -> Vec<RuleIndex> {
        let of_domain = |domain: &Domain| {
            let stored = domain.stored.as_ref()?;
            let limits = &stored.resolved.limits;
            let unused = stored.tenants.unused();
            let unused = unused.filter_map(|place| limits.get(place)?.as_ref());
            let rules = unused.flat_map(|limit| limit.rules.iter());
            Some(rules.map(|(_, rule)| rule).collect::<Vec<_>>())
        };
        let unused = self.domains().filter_map(of_domain);
        let mut unused: Vec<_> = unused.flatten().collect();
        unused.sort();
        unused.dedup();
        unused
    }

    /// The id of the rules of overrides for tenants of `domain` as a whole.
    #[must_use]
    pub fn whole_override_id(&self, domain: &Domain) -> Option<Arc<str>> {
        let target = self.site(domain).target(&[], &self.rules).ok()?;
        Some(target.id)
    }

    /// The service levels that overrides of the tenants of `domain` may be for.
    fn levels_of(&self, domain: &Domain) -> &[ServiceLevel] {
        let of_tenants = self.tenants_of_levels();
        match of_tenants.is_some_and(|of_tenants| of_tenants.name == domain.name) {
            true => self.service_levels(),
            false => &[],
        }
    }

    /// The surroundings of overrides in `domain`.
    pub(super) fn site<'a>(&'a self, domain: &'a Domain) -> Site<'a> {
        Site {
            domain: &domain.name,
            tenant_key: domain.tenant().unwrap_or_default(),
            nodes: domain.nodes(),
            secrets: [&domain.secrets, &domain.secrets],
            suffixes: &self.suffixes,
            defaults: &domain.override_defaults,
            levels: self.levels_of(domain),
            paths: FoldedKeys {
                folding: self.path_folding,
                keys: &self.path_keys,
            },
        }
    }
}
