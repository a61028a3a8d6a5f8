//! The tenants of a quota store, in the form that checks look them up in.
//!
//! A tenant refers to its plan and to its limits by number, so that it takes little memory and does not
//! depend on the rules. What the numbers mean under the rules in force stands in [`Resolved`].

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::quotas::{Dated, TenantOverride, TenantPlan, TenantQuotas};
use super::table::{PackedTable, StoredTenant};
use super::{OwnRules, Pattern, Term};
use crate::tenant_key::{TenantHash, TenantKey};
use crate::{PlanIndex, RuleIndex};

/// Tenants of all domains, by the keyed hash of their value. Clones share what does not change: a change
/// copies one part in 256.
#[derive(Clone, Debug)]
pub struct TenantIndex {
    pub(crate) key: TenantKey,
    pub(crate) domains: HashMap<Box<str>, DomainTenants>,
    pub(crate) allows_all: bool,
}

impl TenantIndex {
    /// No tenants yet; their values will be hashed under `key`.
    #[must_use]
    pub fn new(key: TenantKey) -> Self {
        Self {
            key,
            domains: HashMap::new(),
            allows_all: false,
        }
    }

    /// An index that lifts the limits of every tenant: for as long as it is unknown who has which.
    #[must_use]
    pub fn allowing_all(key: TenantKey) -> Self {
        Self {
            allows_all: true,
            ..Self::new(key)
        }
    }

    /// The key of the hashes.
    #[must_use]
    pub const fn key(&self) -> &TenantKey {
        &self.key
    }

    /// The number of tenants in all domains.
    #[must_use]
    pub fn len(&self) -> usize {
        self.domains.values().map(DomainTenants::len).sum()
    }

    /// Returns true if there are no tenants.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All tenants with their quotas, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, TenantHash, TenantQuotas)> {
        self.domains.iter().flat_map(|(domain, tenants)| {
            let all = tenants.table.iter();
            all.map(|(hash, tenant)| (&**domain, hash, tenants.quotas(tenant)))
        })
    }

    /// Puts a tenant in the place of its earlier record, if there is one. From now on what files say of it does not
    /// count, even if it has neither plans nor limits.
    pub fn put(&mut self, domain: &str, tenant: TenantHash, quotas: &TenantQuotas) {
        self.change(domain, |tenants| {
            tenants.put(tenant, quotas);
            if tenants.limits.values.len() > 2 * tenants.limits_used + LIMITS_SPARE {
                *tenants = tenants.renumbered();
            }
        });
    }

    /// Puts the trace of a tenant that the store does not have, and whose usage was reset so many times.
    pub fn put_trace(&mut self, domain: &str, tenant: TenantHash, epoch: u32) {
        self.change(domain, |tenants| tenants.put_trace(tenant, epoch));
    }

    /// Returns true if there is a trace of the tenant, and nothing else.
    #[must_use]
    pub fn is_trace(&self, domain: &str, tenant: TenantHash) -> bool {
        let found = self.domains.get(domain);
        let found = found.and_then(|tenants| tenants.get(tenant));
        found.is_some_and(|tenant| tenant.is_trace)
    }

    /// Changes the tenants of a domain, of which there may be none yet.
    fn change(&mut self, domain: &str, change: impl FnOnce(&mut DomainTenants)) {
        // Almost always it is there, and its name need not be copied.
        if !self.domains.contains_key(domain) {
            self.domains.insert(domain.into(), DomainTenants::default());
        }
        if let Some(tenants) = self.domains.get_mut(domain) {
            change(tenants);
        }
    }

    /// Removes a tenant; has no effect if it is not there.
    pub fn remove(&mut self, domain: &str, tenant: TenantHash) {
        if let Some(tenants) = self.domains.get_mut(domain) {
            tenants.remove(tenant);
        }
    }
}

/// The limits that a domain may have besides twice those in use when they were last looked through. Then those that
/// no tenant has any more go: changing one tenant again and again cannot fill memory.
const LIMITS_SPARE: usize = 1_024;

/// The tenants of one domain.
#[derive(Clone, Debug, Default)]
pub(crate) struct DomainTenants {
    table: PackedTable,
    pub(crate) plans: Arc<Numbered<Box<str>>>,
    pub(crate) limits: Arc<Numbered<TenantOverride>>,
    /// The times that tenants have each limit, by its place; those at the end that are missing are 0.
    uses: Arc<Vec<u32>>,
    /// The limits that tenants had when all were last looked through.
    limits_used: usize,
}

impl DomainTenants {
    fn len(&self) -> usize {
        self.table.len()
    }

    #[inline]
    pub(crate) fn get(&self, hash: TenantHash) -> Option<StoredTenant<'_>> {
        self.table.get(hash)
    }

    /// The places of the limits that no tenant has any more.
    pub(crate) fn unused(&self) -> impl Iterator<Item = usize> {
        let is_unused = |place: &usize| self.uses.get(*place).is_none_or(|uses| *uses == 0);
        (0..self.limits.values.len()).filter(is_unused)
    }

    /// Takes the limits of a tenant that goes, or gets others, off the counts.
    fn uncount(&mut self, hash: TenantHash) {
        let Some(tenant) = self.table.get(hash).filter(StoredTenant::has_limits) else {
            return;
        };
        let numbers: Vec<_> = tenant.limits().map(|(_, limit)| limit).collect();
        let uses = Arc::make_mut(&mut self.uses);
        for number in numbers {
            if let Some(count) = uses.get_mut(place(number)) {
                *count = count.saturating_sub(1);
            }
        }
    }

    fn count(&mut self, tenant: StoredTenant<'_>) {
        if !tenant.has_limits() {
            return;
        }
        let uses = Arc::make_mut(&mut self.uses);
        for place in tenant.limits().map(|(_, limit)| place(limit)) {
            if uses.len() <= place {
                uses.resize(place + 1, 0);
            }
            uses[place] = uses[place].saturating_add(1);
        }
    }

    /// The same tenants, with numbers for the plans and limits alone that one of them has.
    fn renumbered(&self) -> Self {
        let mut rebuilt = Self::default();
        for (hash, tenant) in self.table.iter() {
            match tenant.is_trace {
                true => rebuilt.put_trace(hash, tenant.epoch),
                false => rebuilt.put(hash, &self.quotas(tenant)),
            }
        }
        rebuilt.limits_used = rebuilt.limits.values.len();
        rebuilt
    }

    /// The number of limits that tenants have and the rules do not allow on a plan that one of them is on in the limit's time.
    /// Looks at all tenants if one is allowed on some plans alone.
    pub(crate) fn ignored(&self, resolved: &Resolved) -> usize {
        let is_partial = |limit: &Option<ResolvedLimit>| match limit {
            Some(limit) => limit.rules.are_partial(),
            None => false,
        };
        let mut off = HashSet::new();
        if resolved.limits.iter().any(is_partial) {
            for (_, tenant) in self.table.iter() {
                off.extend(resolved.off_for(tenant));
            }
        }
        let limits = resolved.limits.iter().zip(&*self.uses).enumerate();
        let ignored = limits.filter(|(place, (limit, uses))| {
            **uses > 0 && (limit.is_none() || off.contains(place))
        });
        ignored.count()
    }

    /// The quotas of a tenant, as they were put.
    fn quotas(&self, tenant: StoredTenant<'_>) -> TenantQuotas {
        let plan = |(term, name)| {
            let name = self.plans.values.get(place(name))?;
            Some(TenantPlan::new(name.clone()).during(term))
        };
        let own = |(term, number)| {
            let own = self.limits.values.get(place(number))?;
            Some(own.clone().during(term))
        };
        TenantQuotas {
            plans: tenant.plans().filter_map(plan).collect(),
            overrides: tenant.limits().filter_map(own).collect(),
            epoch: tenant.epoch,
        }
    }

    fn put(&mut self, hash: TenantHash, quotas: &TenantQuotas) {
        let plans = quotas.plans.iter().map(|plan| {
            let term = plan.term();
            // The dates are in the term. No field is left out: checks would not know of it.
            let TenantPlan {
                plan,
                effective_at: _,
                expires_at: _,
            } = plan;
            let name = number(&mut self.plans, plan);
            StoredPlan { term, name }
        });
        let mut plans: Vec<_> = plans.collect();
        plans.sort_by_key(|plan| std::cmp::Reverse(plan.term.from));
        // Tenants that have the same limit at other times share it.
        let limits = quotas.in_order().map(|own| StoredLimit {
            term: own.term(),
            limit: match own.dates() {
                (None, None) => number(&mut self.limits, own),
                _ => number(&mut self.limits, &own.clone().during(Term::ALWAYS)),
            },
        });
        let mut limits: Vec<_> = limits.collect();
        let plan = take_lasting(&mut plans, |plan| plan.term).map(|plan| plan.name);
        let limit = take_lasting(&mut limits, |own| own.term).map(|own| own.limit);
        let more = (!plans.is_empty() || !limits.is_empty()).then(|| {
            let (plans, limits) = (plans.into(), limits.into());
            Arc::new(More { plans, limits })
        });
        let tenant = StoredTenant {
            epoch: quotas.epoch,
            is_trace: false,
            plan,
            limit,
            more: more.as_ref(),
        };
        self.uncount(hash);
        self.count(tenant);
        self.table.put(hash, tenant);
    }

    fn remove(&mut self, hash: TenantHash) {
        self.uncount(hash);
        self.table.remove(hash);
    }

    fn put_trace(&mut self, hash: TenantHash, epoch: u32) {
        let trace = StoredTenant {
            epoch,
            is_trace: true,
            plan: None,
            limit: None,
            more: None,
        };
        self.uncount(hash);
        self.table.put(hash, trace);
    }
}

/// Takes the only element of a list, if it is in force for ever.
fn take_lasting<T>(all: &mut Vec<T>, term: impl Fn(&T) -> Term) -> Option<T> {
    match all.as_slice() {
        [only] if term(only) == Term::ALWAYS => all.pop(),
        _ => None,
    }
}

/// Values that are referred to by number.
#[derive(Clone, Debug)]
pub(crate) struct Numbered<T> {
    numbers: HashMap<T, Number>,
    pub(crate) values: Vec<T>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            values: Vec::new(),
        }
    }
}

/// The place of a value, and one, so that an absent one takes no room.
pub(crate) type Number = std::num::NonZeroU32;

/// The place in a list that a number stands for.
pub(crate) const fn place(number: Number) -> usize {
    number.get() as usize - 1
}

/// The number of `value`, which is copied the first time.
fn number<T: Clone + Eq + Hash>(all: &mut Arc<Numbered<T>>, value: &T) -> Number {
    if let Some(known) = all.numbers.get(value) {
        return *known;
    }
    let all = Arc::make_mut(all);
    // Four billion different limits do not fit into memory; the last one would stand for all further ones.
    let next = u32::try_from(all.values.len()).unwrap_or(u32::MAX - 1);
    let number = Number::MIN.saturating_add(next);
    all.values.push(value.clone());
    all.numbers.insert(value.clone(), number);
    number
}

/// The plans and limits of a tenant that has several, or some for a time.
#[derive(Clone, Debug)]
pub(super) struct More {
    /// Its plans, if they change; the one that begins last comes first.
    pub(super) plans: Box<[StoredPlan]>,
    /// Its own limits, if they change or are several: the most specific comes first, and of one descriptor the
    /// one that begins last.
    pub(super) limits: Box<[StoredLimit]>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StoredPlan {
    pub(super) term: Term,
    pub(super) name: Number,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StoredLimit {
    pub(super) term: Term,
    pub(super) limit: Number,
}

/// The meaning of the tenants' plans and limits under the rules in force.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resolved {
    /// By the place of the plan's name; [`None`] if the domain has no such plan.
    pub(crate) plans: Vec<Option<PlanIndex>>,
    /// By the place of the limit; [`None`] if the rules do not allow it.
    pub(crate) limits: Vec<Option<ResolvedLimit>>,
}

#[derive(Clone, Debug)]
pub(crate) struct ResolvedLimit {
    pub(crate) pattern: Arc<Pattern>,
    pub(crate) rules: OwnRules,
}

/// The tenants of a domain together with their meaning under its rules.
#[derive(Clone, Debug)]
pub(crate) struct StoredTenants {
    pub(crate) key: TenantKey,
    pub(crate) tenants: DomainTenants,
    pub(crate) resolved: Arc<Resolved>,
    pub(crate) allows_all: bool,
}

/// A tenant that was looked up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundTenant<'a> {
    pub(crate) tenant: StoredTenant<'a>,
    pub(crate) resolved: &'a Resolved,
}

impl<'a> FoundTenant<'a> {
    /// Returns true if the tenant is on a plan, now or at another time.
    pub(crate) fn has_plans(self) -> bool {
        let more = self.tenant.more;
        self.tenant.plan.is_some() || more.is_some_and(|more| !more.plans.is_empty())
    }

    /// The plan at a time, and when the tenant is on it.
    #[inline]
    pub(crate) fn plan(self, now: super::Timestamp) -> Option<(Term, PlanIndex)> {
        if let Some(name) = self.tenant.plan {
            return self.resolved.plan(name).map(|plan| (Term::ALWAYS, plan));
        }
        let more = self.tenant.more?;
        let mut plans = more.plans.iter();
        let found = plans.find(|plan| plan.term.contains(now))?;
        let plan = self.resolved.plan(found.name)?;
        Some((found.term, plan))
    }

    /// The [first](Pattern::first) limit in force on `plan` for which `matches` returns true, and when it is in force.
    #[inline]
    pub(crate) fn limit(
        self,
        (now, plan): (super::Timestamp, PlanIndex),
        matches: impl Fn(&Pattern) -> bool,
    ) -> Option<(Term, &'a RuleIndex)> {
        let found = |term, number| {
            let limit = self.resolved.limits.get(place(number))?.as_ref()?;
            let rule = limit.rules.on(plan)?;
            matches(&limit.pattern).then_some((&*limit.pattern, (term, rule)))
        };
        if let Some(number) = self.tenant.limit {
            return found(Term::ALWAYS, number).map(|(_, limit)| limit);
        }
        let more = self.tenant.more?;
        let in_force = more.limits.iter().filter(|own| own.term.contains(now));
        Pattern::first(in_force.filter_map(|own| found(own.term, own.limit)))
    }

    /// The descriptors of the limits in force.
    pub(crate) fn patterns(self, now: super::Timestamp) -> impl Iterator<Item = &'a Pattern> {
        let more = self.tenant.more.as_ref().map(|more| &*more.limits);
        let in_force = more.unwrap_or_default().iter();
        let in_force = in_force.filter(move |own| own.term.contains(now));
        let numbers = self.tenant.limit.into_iter();
        let numbers = numbers.chain(in_force.map(|own| own.limit));
        numbers.filter_map(|number| {
            let limit = self.resolved.limits.get(place(number))?.as_ref()?;
            Some(&*limit.pattern)
        })
    }
}

impl Resolved {
    fn plan(&self, name: Number) -> Option<PlanIndex> {
        self.plans.get(place(name)).copied().flatten()
    }

    /// The places of the tenant's limits that are allowed on some plans, and not on one that it is on in their time.
    fn off_for(&self, tenant: StoredTenant<'_>) -> Vec<usize> {
        let partial = tenant.limits().filter_map(|(term, number)| {
            let rules = &self.limits.get(place(number))?.as_ref()?.rules;
            rules.are_partial().then_some((term, place(number), rules))
        });
        let partial: Vec<_> = partial.collect();
        if partial.is_empty() {
            return Vec::new();
        }
        let plans = tenant.plans();
        let plans = plans.map(|(term, name)| (term, self.plan(name).unwrap_or_default()));
        let plans: Vec<_> = plans.collect();
        let off = partial.into_iter().filter(|(term, _, rules)| {
            let mut plans = term.plans(&plans);
            plans.any(|plan| rules.on(plan).is_none())
        });
        off.map(|(_, place, _)| place).collect()
    }
}

#[cfg(test)]
mod tests;
