//! Tenants: the plan that each is on, and the limits that it has alone.
//!
//! Files name a tenant by its value or by a keyed hash of it. Either way a domain knows only hashes,
//! and finds the tenant of a request with one. Plans and limits may begin and end at a time: the
//! one in force is found when a request is matched, so that nothing has to be reloaded for it.

mod key;
mod pattern;

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::HashTable;
use ratekeeper_core::Timestamp;

use crate::{Domain, Entry, PlanIndex, RuleIndex, Visit};
pub use key::{NotATenantHash, TenantHash, TenantKey};
pub(crate) use pattern::Pattern;

/// The plan of limits that one tenant has alone, in [`Rule::plan`](crate::Rule::plan), metrics and
/// answers.
pub const CUSTOM: &str = "custom";

/// The time in which something is in force: from its first moment to the one before `until`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Term {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Term {
    /// All of time.
    pub(crate) const ALWAYS: Self = Self {
        from: Timestamp::EPOCH,
        until: Timestamp::from_micros(u64::MAX),
    };

    fn contains(&self, now: Timestamp) -> bool {
        // The end of time is the value for "never": a clock that gets there must not end anything.
        self.from <= now && (now < self.until || self.until == Self::ALWAYS.until)
    }
}

/// A limit that one tenant has alone: an override.
#[derive(Debug)]
pub(crate) struct OwnLimit {
    pub(crate) term: Term,
    pub(crate) pattern: Arc<Pattern>,
    pub(crate) rule: RuleIndex,
}

/// A tenant that files list.
#[derive(Debug, Default)]
pub(crate) struct Tenant {
    /// Its plans; the one that begins last comes first.
    plans: Box<[(Term, PlanIndex)]>,
    /// Its own limits: the most specific comes first, and of one descriptor the one that begins last.
    limits: Box<[OwnLimit]>,
}

impl Tenant {
    pub(crate) fn new(mut plans: Vec<(Term, PlanIndex)>, limits: Vec<OwnLimit>) -> Self {
        plans.sort_by_key(|(term, _)| Reverse(term.from));
        let first_of = |own: &OwnLimit| {
            let same = |other: &OwnLimit| Arc::ptr_eq(&other.pattern, &own.pattern);
            limits.iter().position(same)
        };
        let order: Vec<_> = limits.iter().map(first_of).collect();
        let mut limits: Vec<_> = order.into_iter().zip(limits).collect();
        limits.sort_by_cached_key(|(first, own)| {
            (own.pattern.ranks(), *first, Reverse(own.term.from))
        });
        Self {
            plans: plans.into(),
            limits: limits.into_iter().map(|(_, own)| own).collect(),
        }
    }

    fn plan(&self, now: Timestamp) -> Option<&(Term, PlanIndex)> {
        self.plans.iter().find(|(term, _)| term.contains(now))
    }
}

/// The tenants of a domain, by the hash of their value.
#[derive(Debug, Default)]
pub(crate) struct TenantTable {
    key: TenantKey,
    index: HashTable<u32>,
    tenants: Vec<(TenantHash, Tenant)>,
}

impl TenantTable {
    pub(crate) fn new(key: TenantKey) -> Self {
        Self {
            key,
            ..Self::default()
        }
    }

    pub(crate) const fn key(&self) -> &TenantKey {
        &self.key
    }

    /// Adds a tenant; false if its hash is there already, or the table is full.
    pub(crate) fn insert(&mut self, hash: TenantHash, tenant: Tenant) -> bool {
        let Ok(next) = u32::try_from(self.tenants.len()) else {
            return false;
        };
        if self.get(hash).is_some() {
            return false;
        }
        self.tenants.push((hash, tenant));
        let tenants = &self.tenants;
        let rehash = |&at: &u32| tenants[at as usize].0.low();
        self.index.insert_unique(hash.low(), next, rehash);
        true
    }

    pub(crate) const fn len(&self) -> usize {
        self.tenants.len()
    }

    fn get(&self, hash: TenantHash) -> Option<&Tenant> {
        let is_it = |&at: &u32| self.tenants[at as usize].0 == hash;
        let at = *self.index.find(hash.low(), is_it)?;
        self.tenants.get(at as usize).map(|(_, tenant)| tenant)
    }

    fn find(&self, value: &str) -> Option<&Tenant> {
        self.get(self.key.hash(value))
    }
}

/// The plan and the limits that the tenant of a descriptor has at one time.
#[derive(Clone, Copy, Debug)]
pub struct Subscription<'a> {
    domain: &'a Domain,
    /// The index of the entry that names the tenant, and the tenant, if files list it.
    tenant: Option<(usize, &'a Tenant)>,
    plan: PlanIndex,
    now: Timestamp,
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
    /// whose tenants no file lists this takes no time; otherwise it hashes one value.
    #[must_use]
    #[inline]
    pub fn subscription<'a>(&'a self, entries: &[Entry<'_>], now: Timestamp) -> Subscription<'a> {
        let mut subscription = Subscription {
            domain: self,
            tenant: None,
            plan: PlanIndex::DEFAULT,
            now,
        };
        if self.tenants.len() > 0 {
            subscription.find(entries);
        }
        subscription
    }
}

impl<'a> Subscription<'a> {
    fn find(&mut self, entries: &[Entry<'_>]) {
        let Some(key) = self.domain.tenant() else {
            return;
        };
        let Some(at) = entries.iter().position(|entry| entry.key == key) else {
            return;
        };
        let Some(tenant) = self.domain.tenants.find(entries[at].value) else {
            return;
        };
        self.tenant = Some((at, tenant));
        if let Some((_, plan)) = tenant.plan(self.now) {
            self.plan = *plan;
        }
    }

    /// The domain.
    #[must_use]
    pub const fn domain(&self) -> &'a Domain {
        self.domain
    }

    /// The plan; the default one of a tenant that no file lists.
    #[must_use]
    pub const fn plan(&self) -> PlanIndex {
        self.plan
    }

    /// Returns true if the tenant has limits of its own, now or at another time.
    #[must_use]
    #[inline]
    pub fn has_overrides(&self) -> bool {
        self.tenant
            .is_some_and(|(_, tenant)| !tenant.limits.is_empty())
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
            && let Some(own) = self.own_limit(entries, visits)
        {
            return InForce {
                rules: std::slice::from_ref(&own.rule),
                permits: node.and_then(|visit| visit.node.permits),
                is_override: true,
            };
        }
        InForce {
            rules: node.map_or(&[], |visit| visit.node.rules_on(self.plan)),
            permits: None,
            is_override: false,
        }
    }

    fn own_limit(&self, entries: &[Entry<'_>], visits: &[Visit<'_>]) -> Option<&'a OwnLimit> {
        let (at, tenant) = self.tenant?;
        let after = entries.get(at + 1..)?;
        let visits = visits.get(at + 1..).unwrap_or_default();
        let mut limits = tenant.limits.iter();
        limits.find(|own| own.term.contains(self.now) && own.pattern.matches(after, visits))
    }

    /// The plan and the time in which the tenant is on it, for people: `pro until
    /// 2027-01-01T00:00:00Z`. [`None`] if the domain has no plans.
    #[must_use]
    pub fn plan_in_words(&self) -> Option<String> {
        let name = self.domain.plans().get(self.plan.get())?;
        let listed = self.tenant.and_then(|(_, tenant)| tenant.plan(self.now));
        Some(match listed {
            Some((term, _)) => format!("{name}{}", in_words(term)),
            None => format!("{name}, the default"),
        })
    }

    /// The time in which the override of `entries` is in force, for people; empty if it is in force
    /// for ever. [`None`] if there is no override.
    #[must_use]
    pub fn override_in_words(&self, entries: &[Entry<'_>], visits: &[Visit<'_>]) -> Option<String> {
        self.own_limit(entries, visits)
            .map(|own| in_words(&own.term))
    }
}

/// ` from … until …`
fn in_words(term: &Term) -> String {
    let shown = |time: Timestamp| {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX)
    };
    let mut text = String::new();
    if term.from != Term::ALWAYS.from {
        text.push_str(&format!(" from {}", shown(term.from)));
    }
    if term.until != Term::ALWAYS.until {
        text.push_str(&format!(" until {}", shown(term.until)));
    }
    text
}
