//! A domain: its nodes, its plans and its tenants.

mod subscription;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::matching::{Children, Walk};
use crate::slas::TENANT;
use crate::tenants::{OverrideDefaults, StoredTenants, TenantTable};
use crate::{AdjustPolicy, Entry, Evaluation, Node, PlanIndex, UsageRules, secret};
pub use subscription::{InForce, Subscription};

/// A namespace of rules.
#[derive(Clone, Debug)]
pub struct Domain {
    pub(crate) name: Arc<str>,
    pub(crate) evaluation: Evaluation,
    pub(crate) tenant: Option<Box<str>>,
    /// In the domain of the service levels, the `tenant` of the domain whose tenants they are for.
    pub(crate) tenant_of_levels: Option<Box<str>>,
    pub(crate) plans: Vec<Box<str>>,
    pub(crate) secrets: BTreeSet<Box<str>>,
    pub(crate) tenants: Arc<TenantTable>,
    pub(crate) adjust: Option<Arc<AdjustPolicy>>,
    pub(crate) usage: Option<Arc<UsageRules>>,
    /// The tenants of a quota store, if there is one.
    pub(crate) stored: Option<StoredTenants>,
    pub(crate) override_defaults: OverrideDefaults,
    pub(crate) root: Arc<Children>,
}

impl Domain {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The choice of matched nodes whose limits apply.
    #[must_use]
    pub const fn evaluation(&self) -> Evaluation {
        self.evaluation
    }

    /// The key of the entry that names the tenant; without one, the first entry is the subject.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The index of the entry that names the tenant. In the domain of the service levels that is the caller, if it is
    /// identified by the key of the domain that has the tenants, or by `{tenant}` in the path.
    #[must_use]
    #[inline]
    pub fn tenant_at(&self, entries: &[Entry<'_>]) -> Option<usize> {
        if let Some(key) = &self.tenant {
            return entries.iter().position(|entry| *entry.key == **key);
        }
        let key = self.tenant_of_levels.as_deref()?;
        let caller = entries.first()?;
        (caller.key == key || caller.key == TENANT).then_some(0)
    }

    /// Makes the tenants of `other` those of this domain, which has the service levels.
    pub(crate) fn share_tenants(&mut self, other: &Self) {
        self.tenant_of_levels.clone_from(&other.tenant);
        self.plans.clone_from(&other.plans);
        self.secrets.extend(other.secrets.iter().cloned());
        self.tenants = Arc::clone(&other.tenants);
        self.stored.clone_from(&other.stored);
    }

    /// The plans that a tenant may be on; the first is the default. Empty if the domain has no
    /// plans.
    #[must_use]
    pub fn plans(&self) -> &[Box<str>] {
        &self.plans
    }

    /// The name of a plan; empty if the domain has no such plan.
    #[must_use]
    pub fn plan_name(&self, plan: PlanIndex) -> &str {
        self.plans.get(plan.get()).map_or("", |name| name)
    }

    /// The number of tenants that files give a plan or limits of their own.
    #[must_use]
    pub fn tenants_listed(&self) -> usize {
        self.tenants.len()
    }

    /// The policy by which limits of tenants in a quota store follow their usage, if there is one.
    #[must_use]
    pub const fn adjust(&self) -> Option<&Arc<AdjustPolicy>> {
        self.adjust.as_ref()
    }

    /// The way in which responses tell what their requests used of limits that are paid afterwards, if the domain reads it.
    #[must_use]
    #[inline]
    pub const fn usage(&self) -> Option<&Arc<UsageRules>> {
        self.usage.as_ref()
    }

    /// Returns true if values of entries with this key are secrets (API keys, tokens), to be shown
    /// only as [`secret::fingerprint`]. Some keys are secret by default; `secrets:` adds to them.
    #[must_use]
    pub fn is_secret(&self, key: &str) -> bool {
        secret::is_secret_by_default(key) || self.secrets.contains(key)
    }

    /// `key_value`, or the key alone, in a form that may be shown: the value of a secret key is
    /// replaced by its fingerprint, unless it is a pattern, which names no single caller.
    #[must_use]
    pub fn composite(&self, key: &str, value: Option<&str>) -> String {
        match value {
            None => key.to_owned(),
            Some(value) if self.is_secret(key) && !value.contains('*') => {
                format!("{key}_{}", secret::fingerprint(value))
            }
            Some(value) => format!("{key}_{value}"),
        }
    }

    /// Returns true if some descriptor whose first key is `key` can match a node. Tries all nodes
    /// below the domain.
    #[must_use]
    pub fn may_begin_with(&self, key: &str) -> bool {
        // A composite starts with the key; a pattern starts with the text before its first
        // asterisk. One must be a prefix of the other.
        let may_be = |pattern: &str| {
            let fixed = pattern.split('*').next().unwrap_or_default();
            fixed.starts_with(key) || (fixed != pattern && key.starts_with(fixed))
        };
        self.nodes().iter().any(|node| may_be(node.pattern()))
    }

    /// The nodes directly below the domain, in the order of the files.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.root.nodes()
    }

    /// Matches `entries` in order, from the domain down.
    ///
    /// At each level the first of these that has a node wins: the exact composite `key_value`; the
    /// first pattern with a `*`, in the order of the file, that matches it; the key alone. There is
    /// no backtracking. The walk ends with the entries, or at the first one that finds no node. It
    /// allocates only beyond [`Walk::INLINE`] nodes.
    #[must_use]
    pub fn walk<'a>(&'a self, entries: &[Entry<'_>]) -> Walk<'a> {
        let mut walk = Walk::default();
        let mut children = &*self.root;
        for entry in entries {
            let Some(visit) = children.find(entry) else {
                return walk;
            };
            children = &visit.node.children;
            walk.push(visit);
        }
        walk.set_complete(!entries.is_empty());
        walk
    }
}
