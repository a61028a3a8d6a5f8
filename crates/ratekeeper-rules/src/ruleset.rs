//! The compiled rules: an immutable snapshot that requests are matched against.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::matching::{Children, Walk};
use crate::slas::{LevelMatch, LevelStatus, SERVICE_LEVELS, ServiceLevel, ServiceLevels, TENANT};
use crate::tenants::{OverrideDefaults, StoredTenants, TenantTable};
use crate::{AdjustPolicy, Entry, PathFolding, PathKeys, Rule, ShedRules, secret};

/// All domains and rules of one load. A rule set never changes; a reload builds a new one.
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// The domains of the files, then that of the service levels if there are any.
    pub(crate) domains: Vec<Domain>,
    pub(crate) named_by_files: usize,
    pub(crate) by_name: HashMap<Box<str>, u32>,
    /// Those of the files, then those of tenants in a quota store.
    pub(crate) rules: Vec<Rule>,
    /// The number of rules that files give.
    pub(crate) of_files: usize,
    /// The end that the id of each of the files' rules has for its place in a list.
    pub(crate) suffixes: Arc<[Option<Box<str>>]>,
    pub(crate) service_levels: Arc<ServiceLevels>,
    /// The place of the domain whose tenants the service levels are for.
    pub(crate) tenants_of_levels: Option<usize>,
    pub(crate) shed: Option<Arc<ShedRules>>,
    pub(crate) path_folding: PathFolding,
    pub(crate) path_keys: PathKeys,
}

impl RuleSet {
    /// The domain with exactly that name. One hash lookup at most, no allocation.
    #[must_use]
    pub fn domain(&self, name: &str) -> Option<&Domain> {
        // Most files have one domain, or a handful: comparing names is faster than hashing one.
        const SCAN_MAX: usize = 4;
        if self.domains.len() <= SCAN_MAX {
            return self.domains.iter().find(|domain| *domain.name == *name);
        }
        let index = *self.by_name.get(name)?;
        self.domains.get(index as usize)
    }

    /// All domains that files name, in the order in which their first files were read.
    pub fn domains(&self) -> std::slice::Iter<'_, Domain> {
        let named = self.domains.get(..self.named_by_files);
        named.unwrap_or_default().iter()
    }

    /// The domain in which service levels are counted, [`SERVICE_LEVELS`](crate::SERVICE_LEVELS);
    /// [`None`] if there are none.
    #[must_use]
    pub fn service_level_domain(&self) -> Option<&Domain> {
        self.domains.get(self.named_by_files)
    }

    /// The domain whose tenants the service levels are for: their plans and overrides hold there as well. [`None`] if
    /// no domain has tenants, or several have and the files do not tell which one is meant.
    #[must_use]
    pub fn tenants_of_levels(&self) -> Option<&Domain> {
        self.domains.get(self.tenants_of_levels?)
    }

    /// The name of the domain whose tenants `rule` limits: for a tier of a service level the domain that lists them.
    #[must_use]
    pub fn tenants_domain_of<'a>(&'a self, rule: &'a Rule) -> &'a Arc<str> {
        if *rule.domain != *SERVICE_LEVELS {
            return &rule.domain;
        }
        let of_levels = self.tenants_of_levels();
        of_levels.map_or(&rule.domain, |domain| &domain.name)
    }

    /// The differences between paths that do not count. Values made from paths are folded before
    /// they are matched.
    #[must_use]
    pub const fn path_folding(&self) -> PathFolding {
        self.path_folding
    }

    /// The differences that do not count in values of entries with this key: none unless they are
    /// made from paths ([`Options::path_keys`](crate::Options::path_keys)).
    #[must_use]
    pub fn path_folding_of(&self, key: &str) -> PathFolding {
        match self.path_keys.contains_key(key) {
            true => self.path_folding,
            false => PathFolding::NONE,
        }
    }

    /// Returns true if a descriptor or a service level goes by a path. Tries all nodes.
    #[must_use]
    pub fn goes_by_path(&self) -> bool {
        fn any_of(nodes: &[Node], keys: &PathKeys) -> bool {
            let is_it = |node: &Node| keys.contains_key(node.key()) || any_of(node.nodes(), keys);
            nodes.iter().any(is_it)
        }
        let mut domains = self.domains();
        !self.service_levels().is_empty()
            || domains.any(|domain| any_of(domain.nodes(), &self.path_keys))
    }

    /// All rules, in the order of the files. A [`RuleIndex`] of this set's nodes is an index into
    /// it.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule at an index from a node of this set.
    ///
    /// # Panics
    /// If `index` comes from a larger [`RuleSet`].
    #[must_use]
    pub fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[index.get()]
    }

    /// The plan that a rule's limit is of: [`CUSTOM`](crate::CUSTOM) for a single tenant's, the
    /// domain's default plan for a rule that names none; empty if the domain has no plans.
    #[must_use]
    pub fn plan_of<'a>(&'a self, rule: &'a Rule) -> &'a str {
        if let Some(plan) = &rule.plan {
            return plan;
        }
        self.domain(&rule.domain)
            .map_or("", |domain| domain.plan_name(PlanIndex::DEFAULT))
    }

    /// The HTTP service levels (`slas:`) of all files.
    #[must_use]
    pub fn service_levels(&self) -> &[ServiceLevel] {
        self.service_levels.as_slice()
    }

    /// The `shed:` of the files, if one has it.
    #[must_use]
    pub const fn shed(&self) -> Option<&Arc<ShedRules>> {
        self.shed.as_ref()
    }

    /// The service level of a request: the most specific of the enabled ones that match its method
    /// and path.
    ///
    /// Patterns are compared from the left, segment by segment. At the first difference a literal
    /// comes before a placeholder (`*`, `{name}`), a placeholder before the end of the pattern, and
    /// the end before `**`. Of two equal patterns, the one that lists the method comes before the
    /// one for all methods. `path` is decoded and has no dot segments; a slash at its end, the text
    /// after a `;` in a segment and, with [`PathFolding::ignores_case`], case are ignored. No
    /// allocation for a path in lower case; about as many steps as the path has segments.
    #[must_use]
    pub fn service_level<'a>(&'a self, method: &'a str, path: &'a str) -> Option<LevelMatch<'a>> {
        self.service_levels.find(method, path)
    }

    /// Every service level whose path matches, the most specific first, each with its status for
    /// the request. Tries all of them, so it is for diagnostics only.
    #[must_use]
    pub fn service_level_standings(
        &self,
        method: &str,
        path: &str,
    ) -> Vec<(&ServiceLevel, LevelStatus)> {
        self.service_levels.standings(method, path)
    }
}

/// An index into [`RuleSet::rules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleIndex(pub u32);

impl RuleIndex {
    /// The index as a `usize`.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// An index into [`Domain::plans`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PlanIndex(pub u16);

impl PlanIndex {
    /// The default plan.
    pub const DEFAULT: Self = Self(0);

    /// The index as a `usize`.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// The choice of matched nodes whose limits apply.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Evaluation {
    /// Only the node that matched the last entry, as in envoyproxy/ratelimit.
    #[default]
    Leaf,
    /// Every node that matched.
    Path,
}

impl Evaluation {
    /// Both values.
    pub const ALL: [Self; 2] = [Self::Leaf, Self::Path];

    /// The name in rules files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leaf => "leaf",
            Self::Path => "path",
        }
    }
}

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

    /// Returns true if values of entries with this key are secrets (API keys, tokens), to be shown
    /// only as [`secret::fingerprint`]. Some keys are secret by default; `secrets:` adds to them.
    #[must_use]
    pub fn is_secret(&self, key: &str) -> bool {
        secret::is_secret_by_default(key) || self.secrets.contains(key)
    }

    /// `key_value`, or the key alone, in a form that may be shown: the value of a secret key is
    /// replaced by its fingerprint, unless it is a pattern, which names nobody.
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

/// A descriptor of a file: its pattern, its rules, and the nodes below it.
#[derive(Debug)]
pub struct Node {
    pub(crate) pattern: Box<str>,
    pub(crate) key: Box<str>,
    pub(crate) rules: Vec<RuleIndex>,
    /// The rules of the plans that have limits of their own here.
    pub(crate) by_plan: Box<[(PlanIndex, Box<[RuleIndex]>)]>,
    /// The concurrency limit of this node; it is among the rules of every plan.
    pub(crate) permits: Option<RuleIndex>,
    pub(crate) share_threshold: bool,
    pub(crate) value_to_metric: bool,
    pub(crate) children: Children,
}

impl Node {
    /// The composite as written: `key`, or `key_value`, either with `*` in it.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The part of [`Self::pattern`] that the file has as `key:`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The part of [`Self::pattern`] that the file has as `value:`, if any.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.pattern.get(self.key.len() + 1..)
    }

    /// The rules of the default plan at this node, one for each limit. Empty if the file has no
    /// limit here.
    #[must_use]
    pub fn rules(&self) -> &[RuleIndex] {
        &self.rules
    }

    /// The rules of a plan at this node: its own, else those of the default plan.
    #[must_use]
    pub fn rules_on(&self, plan: PlanIndex) -> &[RuleIndex] {
        if plan == PlanIndex::DEFAULT {
            return &self.rules;
        }
        // A node has the limits of a handful of plans: a scan is as fast as anything.
        let own = self.by_plan.iter().find(|(owner, _)| *owner == plan);
        own.map_or(&self.rules, |(_, rules)| rules)
    }

    /// The plans that have limits of their own here, with their rules, in the order of the domain's
    /// plans. A concurrency limit holds for every plan, and is among the rules of each.
    pub fn by_plan(&self) -> impl Iterator<Item = (PlanIndex, &[RuleIndex])> {
        self.by_plan.iter().map(|(plan, rules)| (*plan, &**rules))
    }

    /// Returns true if all values that match the pattern share one counter.
    #[must_use]
    pub const fn share_threshold(&self) -> bool {
        self.share_threshold
    }

    /// Returns true if metrics count decisions by this entry's value.
    #[must_use]
    pub const fn value_to_metric(&self) -> bool {
        self.value_to_metric
    }

    /// The nodes directly below, in the order of the file.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        self.children.nodes()
    }
}
