//! Tenants: the plan that each is on, and the limits that it has alone.
//!
//! Files name a tenant by its value or by a keyed hash of it. Either way a domain knows only hashes,
//! and finds the tenant of a request with one. Plans and limits may begin and end at a time: the
//! one in force is found when a request is matched, so that nothing has to be reloaded for it.

mod descriptor;
mod index;
mod level;
mod own_rules;
mod pattern;
mod quotas;
mod raised;
mod site;
mod table;
mod term;

use std::cmp::Reverse;
use std::sync::Arc;

use hashbrown::HashTable;
use ratekeeper_core::Timestamp;

use crate::tenant_key::{TenantHash, TenantKey};
use crate::{PathFolding, PathForm, PlanIndex, ServiceLevel, TENANT};
pub use descriptor::{OverrideDescriptor, WHOLE_TENANT};
pub use index::TenantIndex;
pub(crate) use index::{DomainTenants, FoundTenant, Resolved, ResolvedLimit, StoredTenants};
pub(crate) use own_rules::OwnRules;
pub(crate) use pattern::Pattern;
pub use quotas::{BadQuotas, Dated, Dates, QuotaList, TenantOverride, TenantPlan, TenantQuotas};
#[cfg(feature = "yaml")]
pub(crate) use site::node_of;
pub(crate) use site::{OVERRIDES_MAX, OverrideDefaults, Site, Target, entry_of};
pub use term::Term;

/// Returns true if paths name tenants, and none of them has `name` as it is written: they are compared folded.
pub(crate) fn is_in_no_path(name: &str, levels: &[ServiceLevel], folding: PathFolding) -> bool {
    let mut paths = levels.iter().map(|level| &level.pattern);
    paths.any(|path| path.variables().any(|variable| variable == TENANT))
        && folding.fold(PathForm::Segment, name) != name
}

/// The plan of limits that one tenant has alone, in [`Rule::plan`](crate::Rule::plan), metrics and
/// answers.
pub const CUSTOM: &str = "custom";

/// The most entries of an override's descriptor: a request has no more.
pub(crate) const ENTRIES_MAX: usize = 64;

/// A limit that one tenant of files has alone: an override, as a rule.
#[derive(Debug)]
pub(crate) struct ListedOverride {
    pub(crate) term: Term,
    /// As it is written.
    pub(crate) descriptor: Arc<OverrideDescriptor>,
    pub(crate) pattern: Arc<Pattern>,
    pub(crate) rules: OwnRules,
}

/// A tenant that files list.
#[derive(Debug, Default)]
pub(crate) struct Tenant {
    /// Its plans; the one that begins last comes first.
    plans: Box<[(Term, PlanIndex)]>,
    /// Its own limits: the most specific comes first, and of one descriptor the one that begins last.
    pub(crate) limits: Box<[ListedOverride]>,
}

impl Tenant {
    pub(crate) fn new(mut plans: Vec<(Term, PlanIndex)>, limits: Vec<ListedOverride>) -> Self {
        plans.sort_by_key(|(term, _)| Reverse(term.from));
        let first_of = |own: &ListedOverride| {
            let same = |other: &ListedOverride| Arc::ptr_eq(&other.pattern, &own.pattern);
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

    /// Returns true if it is on a plan, now or at another time.
    pub(crate) const fn has_plans(&self) -> bool {
        !self.plans.is_empty()
    }

    /// Its plans; the one that begins last comes first.
    pub(crate) const fn plans(&self) -> &[(Term, PlanIndex)] {
        &self.plans
    }

    /// Its plan at `now`.
    pub(crate) fn plan(&self, now: Timestamp) -> Option<&(Term, PlanIndex)> {
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

    /// All tenants, in the order of the files.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantHash, &Tenant)> {
        self.tenants.iter().map(|(hash, tenant)| (*hash, tenant))
    }

    pub(crate) fn get(&self, hash: TenantHash) -> Option<&Tenant> {
        let is_it = |&at: &u32| self.tenants[at as usize].0 == hash;
        let at = *self.index.find(hash.low(), is_it)?;
        self.tenants.get(at as usize).map(|(_, tenant)| tenant)
    }
}
