//! The plan and the limits in force for the tenant of a request.

use ratekeeper_core::Timestamp;

use super::Domain;
use crate::tenant_key::TenantHash;
use crate::tenants::{FoundTenant, Pattern, Tenant, Term};
use crate::{CUSTOM, Entry, PlanIndex, RuleIndex, Visit};

/// The plan and the limits that the tenant of a descriptor has at one time.
#[derive(Clone, Copy, Debug)]
pub struct Subscription<'a> {
    domain: &'a Domain,
    /// The index of the entry that names the tenant, and its hash, if tenants are known at all.
    tenant: Option<(usize, TenantHash)>,
    quotas: Quotas<'a>,
    plan: PlanIndex,
    epoch: u32,
    now: Timestamp,
}

/// The source of a tenant's plan and limits.
#[derive(Clone, Copy, Debug)]
enum Quotas<'a> {
    /// The tenant is not listed: it is on the default plan.
    Default,
    Listed(&'a Tenant),
    Stored(FoundTenant<'a>),
    /// The quota store was never reached, and all tenants pass until it is.
    Lifted,
}

/// The rules that are in force at one depth of a descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct InForce<'a> {
    rules: &'a [RuleIndex],
    permits: Option<RuleIndex>,
    /// True if the first of them is a limit that the tenant has alone.
    pub is_override: bool,
}

impl<'a> InForce<'a> {
    /// The rules, one for each limit.
    pub fn iter(&self) -> impl Iterator<Item = RuleIndex> + use<'a> {
        self.rules.iter().copied().chain(self.permits)
    }

    /// The first of them.
    #[must_use]
    pub fn first(&self) -> Option<RuleIndex> {
        self.iter().next()
    }
}

impl Domain {
    /// The plan and the limits of the tenant that `entries` name, at the time `now`. In a domain
    /// whose tenants are not listed this takes no time; otherwise it hashes one value.
    #[must_use]
    #[inline]
    pub fn subscription<'a>(&'a self, entries: &[Entry<'_>], now: Timestamp) -> Subscription<'a> {
        let mut subscription = Subscription {
            domain: self,
            tenant: None,
            quotas: Quotas::Default,
            plan: PlanIndex::DEFAULT,
            epoch: 0,
            now,
        };
        if self.tenants.len() > 0 || self.stored.is_some() {
            subscription.find(entries);
        }
        subscription
    }

    /// The name of the plan that the tenant of `entry` is on at the time `now`: the default one of a tenant that is not listed.
    /// [`None`] in a domain without plans.
    #[must_use]
    pub fn plan_of(&self, entry: Entry<'_>, now: Timestamp) -> Option<&str> {
        let plan = self.subscription(&[entry], now).plan();
        self.plans().get(plan.get()).map(|name| &**name)
    }
}

impl<'a> Subscription<'a> {
    fn find(&mut self, entries: &[Entry<'_>]) {
        let Some(at) = self.domain.tenant_at(entries) else {
            return;
        };
        let (listed, value) = (&self.domain.tenants, entries[at].value);
        let Some(stored) = &self.domain.stored else {
            let hash = listed.key().hash(value);
            self.tenant = Some((at, hash));
            self.list(listed.get(hash));
            return;
        };
        let hash = stored.key.hash(value);
        self.tenant = Some((at, hash));
        if stored.allows_all {
            self.quotas = Quotas::Lifted;
            return;
        }
        let known = stored.tenants.get(hash);
        self.epoch = known.map_or(0, |tenant| tenant.epoch);
        if let Some(tenant) = known.filter(|tenant| !tenant.is_trace) {
            let known = FoundTenant {
                tenant,
                resolved: &stored.resolved,
            };
            self.quotas = Quotas::Stored(known);
            self.plan = known
                .plan(self.now)
                .map(|(_, plan)| plan)
                .unwrap_or_default();
        } else if listed.len() > 0 {
            let is_same = *listed.key() == stored.key;
            let hash = if is_same {
                hash
            } else {
                listed.key().hash(value)
            };
            self.list(listed.get(hash));
        }
    }

    fn list(&mut self, tenant: Option<&'a Tenant>) {
        let Some(tenant) = tenant else {
            return;
        };
        self.quotas = Quotas::Listed(tenant);
        if let Some((_, plan)) = tenant.plan(self.now) {
            self.plan = *plan;
        }
    }

    /// The domain.
    #[must_use]
    pub const fn domain(&self) -> &'a Domain {
        self.domain
    }

    /// The plan; the default one of a tenant that is not listed.
    #[must_use]
    pub const fn plan(&self) -> PlanIndex {
        self.plan
    }

    /// The plan's name; [`CUSTOM`] for a tenant that has limits of its own and no plan at any time. [`None`] in a domain
    /// without plans for all others.
    #[must_use]
    pub fn plan_name(&self) -> Option<&'a str> {
        if self.has_overrides_alone() {
            return Some(CUSTOM);
        }
        let name = self.domain.plans().get(self.plan.get())?;
        Some(name)
    }

    /// The keyed hash of the tenant's value. [`None`] if the descriptor names no tenant, or the domain
    /// lists none.
    #[must_use]
    pub fn tenant(&self) -> Option<TenantHash> {
        self.tenant.map(|(_, hash)| hash)
    }

    /// The number of times that the tenant's usage was reset: each begins with counters of its own.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns true if the tenant has limits of its own, now or at another time.
    #[must_use]
    #[inline]
    pub fn has_overrides(&self) -> bool {
        match self.quotas {
            Quotas::Default | Quotas::Lifted => false,
            Quotas::Listed(tenant) => !tenant.limits.is_empty(),
            Quotas::Stored(known) => known.tenant.has_limits(),
        }
    }

    /// Returns true if the tenant has limits of its own and no plan, now or at another time.
    fn has_overrides_alone(&self) -> bool {
        let has_plans = match self.quotas {
            Quotas::Default | Quotas::Lifted => false,
            Quotas::Listed(tenant) => tenant.has_plans(),
            Quotas::Stored(known) => known.has_plans(),
        };
        self.has_overrides() && !has_plans
    }

    /// The rules in force for `entries`, the first of a descriptor's, which matched the nodes of
    /// `visits`: those of an override, else of the plan. There may be fewer visits than entries: an
    /// override needs no node. It replaces the rates of a node that matched as specifically as its own
    /// descriptor does, or less.
    #[must_use]
    #[inline]
    pub fn rules(&self, entries: &[Entry<'_>], visits: &[Visit<'a>]) -> InForce<'a> {
        let node = visits.get(entries.len().wrapping_sub(1));
        if self.has_overrides()
            && let Some((_, rule)) = self.own_limit(entries, visits)
        {
            return InForce {
                rules: std::slice::from_ref(rule),
                permits: node.and_then(|visit| visit.node.permits),
                is_override: true,
            };
        }
        if self.lifts(entries) {
            return InForce::default();
        }
        InForce {
            rules: node.map_or(&[], |visit| visit.node.rules_on(self.plan)),
            permits: None,
            is_override: false,
        }
    }

    /// The entries after the tenant's of each of its own limits in force whose descriptor has no wildcard and no
    /// open value.
    #[must_use]
    pub fn override_entries(&self) -> Vec<Vec<Entry<'a>>> {
        match self.quotas {
            Quotas::Default | Quotas::Lifted => Vec::new(),
            Quotas::Listed(tenant) => {
                let limits = tenant.limits.iter();
                let in_force = limits.filter(|own| own.term.contains(self.now));
                in_force
                    .filter_map(|own| own.pattern.exact_entries())
                    .collect()
            }
            Quotas::Stored(known) => {
                let patterns = known.patterns(self.now);
                patterns.filter_map(Pattern::exact_entries).collect()
            }
        }
    }

    /// Returns true if limits of the tenant are lifted, and `entries` go as far as its own.
    fn lifts(&self, entries: &[Entry<'_>]) -> bool {
        let reaches = |(at, _): (usize, TenantHash)| entries.len() > at;
        matches!(self.quotas, Quotas::Lifted) && self.tenant.is_some_and(reaches)
    }

    fn own_limit(
        &self,
        entries: &[Entry<'_>],
        visits: &[Visit<'_>],
    ) -> Option<(Term, &'a RuleIndex)> {
        let (at, _) = self.tenant?;
        let after = entries.get(at + 1..)?;
        let visits = visits.get(at + 1..).unwrap_or_default();
        match self.quotas {
            Quotas::Default | Quotas::Lifted => None,
            Quotas::Listed(tenant) => {
                let limits = tenant.limits.iter();
                let matching = limits.filter(|own| {
                    own.term.contains(self.now) && own.pattern.matches(after, visits)
                });
                let found = matching.filter_map(|own| {
                    let rule = own.rules.on(self.plan)?;
                    Some((&*own.pattern, (own.term, rule)))
                });
                Pattern::first(found)
            }
            Quotas::Stored(known) => {
                let at = (self.now, self.plan);
                known.limit(at, |pattern| pattern.matches(after, visits))
            }
        }
    }

    /// The plan and the time in which the tenant is on it, for people: `pro until 2027-01-01T00:00:00Z`. For a tenant
    /// that has overrides alone, [`CUSTOM`] and the plan that its other limits are of. [`None`] if the domain has no plans.
    #[must_use]
    pub fn plan_in_words(&self) -> Option<String> {
        let name = self.domain.plans().get(self.plan.get())?;
        let term = match self.quotas {
            Quotas::Default => None,
            Quotas::Lifted => return Some("none: the quota store was never reached".to_owned()),
            Quotas::Listed(tenant) => tenant.plan(self.now).map(|(term, _)| *term),
            Quotas::Stored(known) => known.plan(self.now).map(|(term, _)| term),
        };
        Some(match term {
            Some(term) => format!("{name}{}", term.in_words()),
            None if self.has_overrides_alone() => {
                format!(
                    "{CUSTOM} (overrides only); its other limits are those of {name}, the default"
                )
            }
            None => format!("{name}, the default"),
        })
    }

    /// The time in which the override of `entries` is in force, for people; empty if it is in force
    /// for ever. [`None`] if there is no override.
    #[must_use]
    pub fn override_in_words(&self, entries: &[Entry<'_>], visits: &[Visit<'_>]) -> Option<String> {
        self.own_limit(entries, visits)
            .map(|(term, _)| term.in_words())
    }
}
