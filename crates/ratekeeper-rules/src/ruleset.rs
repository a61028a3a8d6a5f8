//! The compiled rules: an immutable snapshot that requests are matched against.

mod check_quotas;
mod listed;
mod with_tenants;

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use ratekeeper_core::Regions;

use crate::matching::Children;
use crate::slas::{LevelMatch, LevelStatus, SERVICE_LEVELS, ServiceLevel, ServiceLevels};
use crate::{Domain, Node, PathFolding, PathKeys, PlanIndex, Rule, RuleIndex, ShedRules};
pub use listed::ListedTenant;
pub use with_tenants::WithTenants;

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
    /// The domains that have no rules because theirs were refused.
    pub(crate) refused: Arc<BTreeSet<Box<str>>>,
    /// The rules of the files by their ids.
    pub(crate) by_id: Arc<HashMap<Arc<str>, u32>>,
}

impl RuleSet {
    /// These rules, and the note that those of `domains` were refused. A domain that has rules here is not noted.
    #[must_use]
    pub fn refusing(mut self, domains: impl IntoIterator<Item = Box<str>>) -> Self {
        let domains = domains.into_iter();
        let without = domains.filter(|name| self.domain(name).is_none());
        self.refused = Arc::new(without.collect());
        self
    }

    /// The domains that have no rules because theirs were refused, by name: nothing is known of their limits.
    #[must_use]
    pub fn refused_domains(&self) -> &BTreeSet<Box<str>> {
        &self.refused
    }

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

    /// The domain of the files' rule with that id, and the nodes on the rule's path. A hash lookup for each of them.
    #[must_use]
    pub fn path_of(&self, id: &str) -> Option<(&Domain, Vec<&Node>)> {
        let rule = self.rules.get(*self.by_id.get(id)? as usize)?;
        let domain = self.domain(&rule.domain)?;
        let mut children: &Children = &domain.root;
        let mut path = Vec::with_capacity(rule.path.len());
        for composite in rule.path.iter() {
            let node = children.named(composite)?;
            path.push(node);
            children = &node.children;
        }
        Some((domain, path))
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

    /// Returns true if service levels take the tenants of `domain` from paths, and find none of this name there: names in
    /// paths are compared without the differences of [`Self::path_folding`].
    #[must_use]
    pub fn is_tenant_in_no_path(&self, domain: &str, name: &str) -> bool {
        let of_levels = self.tenants_of_levels();
        of_levels.is_some_and(|found| found.name() == domain)
            && crate::tenants::is_in_no_path(name, self.service_levels(), self.path_folding)
    }

    /// The name of the domain whose tenants `rule` limits: for a tier of a service level the domain that lists them.
    #[must_use]
    pub fn tenants_domain_of<'a>(&'a self, rule: &'a Rule) -> &'a Arc<str> {
        self.or_of_levels(&rule.domain)
    }

    /// The name of the domain whose tenants `domain` has: itself, or for the service levels the one that lists them.
    #[must_use]
    pub fn tenants_domain<'a>(&'a self, domain: &'a Domain) -> &'a Arc<str> {
        self.or_of_levels(&domain.name)
    }

    fn or_of_levels<'a>(&'a self, name: &'a Arc<str>) -> &'a Arc<str> {
        if **name != *SERVICE_LEVELS {
            return name;
        }
        let of_levels = self.tenants_of_levels();
        of_levels.map_or(name, |domain| &domain.name)
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

    /// The regions that share limits of these rules; None if they share none, or the region of this node is not known.
    #[must_use]
    pub fn regions(&self) -> Option<&Arc<Regions>> {
        let mut shares = self.rules.iter().filter_map(|rule| rule.share.as_ref());
        shares.next().map(|share| &share.regions)
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

    /// These rules with those service levels enabled that `is_on` selects.
    #[must_use]
    pub fn switching_levels(self: &Arc<Self>, is_on: impl Fn(&ServiceLevel) -> bool) -> Arc<Self> {
        match self.service_levels.switched(is_on) {
            None => Arc::clone(self),
            Some(levels) => Arc::new(Self {
                service_levels: Arc::new(levels),
                ..(**self).clone()
            }),
        }
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
    pub fn service_level_statuses(
        &self,
        method: &str,
        path: &str,
    ) -> Vec<(&ServiceLevel, LevelStatus)> {
        self.service_levels.level_statuses(method, path)
    }
}
