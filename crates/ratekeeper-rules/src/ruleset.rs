//! The compiled rules: an immutable snapshot that requests are matched against.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::matching::{Children, Walk};
use crate::slas::{LevelMatch, ServiceLevel, ServiceLevels, Standing};
use crate::{Entry, Rule, secret};

/// All domains and rules of one load. It never changes; a reload makes another one.
#[derive(Debug, Default)]
pub struct RuleSet {
    /// Those of files, then that of the service levels if there are any.
    pub(crate) domains: Vec<Domain>,
    pub(crate) named_by_files: usize,
    pub(crate) by_name: HashMap<Box<str>, u32>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) service_levels: ServiceLevels,
}

impl RuleSet {
    /// The domain of exactly that name. One hash lookup at most, no allocation.
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

    /// The domain that the service levels are counted under, [`SERVICE_LEVELS`](crate::SERVICE_LEVELS); none without any.
    #[must_use]
    pub fn service_level_domain(&self) -> Option<&Domain> {
        self.domains.get(self.named_by_files)
    }

    /// All rules, in the order of the files. A [`RuleIndex`] of this set's nodes points into it.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The rule that a node of this set names.
    ///
    /// # Panics
    /// If `index` comes from a larger [`RuleSet`].
    #[must_use]
    pub fn rule(&self, index: RuleIndex) -> &Rule {
        &self.rules[index.get()]
    }

    /// The HTTP service levels (`slas:`) of all files.
    #[must_use]
    pub fn service_levels(&self) -> &[ServiceLevel] {
        self.service_levels.as_slice()
    }

    /// The service level of a request: of those that are enabled and about its method and path, the most specific.
    ///
    /// Patterns are compared from the left, segment by segment. At the first difference a literal comes before a
    /// placeholder (`*`, `{name}`), that before the end of the pattern, and that before `**`. Of two patterns alike,
    /// the one that lists the method comes before the one of all methods. `path` is decoded and has no dot segments;
    /// a slash at its end and what follows a `;` in a segment do not count. No allocation; about as many steps as the
    /// path has segments.
    #[must_use]
    pub fn service_level<'a>(&'a self, method: &'a str, path: &'a str) -> Option<LevelMatch<'a>> {
        self.service_levels.find(method, path)
    }

    /// Every service level whose path matches, the most specific first, and why it holds or does not. Tries them
    /// all: for whoever is to be told.
    #[must_use]
    pub fn service_level_standings(
        &self,
        method: &str,
        path: &str,
    ) -> Vec<(&ServiceLevel, Standing)> {
        self.service_levels.standings(method, path)
    }
}

/// The place of a rule in [`RuleSet::rules`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleIndex(pub u32);

impl RuleIndex {
    /// As an index of a slice.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0 as usize
    }
}

/// Which limits of the matched nodes count.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Evaluation {
    /// Those of the node that matched the last entry, as the incumbent does it.
    #[default]
    Leaf,
    /// Those of every node that matched.
    Path,
}

impl Evaluation {
    /// All of them.
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

/// One namespace of rules.
#[derive(Debug)]
pub struct Domain {
    pub(crate) name: Arc<str>,
    pub(crate) evaluation: Evaluation,
    pub(crate) tenant: Option<Box<str>>,
    pub(crate) plans: Vec<Box<str>>,
    pub(crate) secrets: BTreeSet<Box<str>>,
    pub(crate) root: Children,
}

impl Domain {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which limits of the matched nodes count.
    #[must_use]
    pub const fn evaluation(&self) -> Evaluation {
        self.evaluation
    }

    /// The key of the entry that names the tenant; without one the first entry is the subject.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// The plans that a tenant may be on; the first is the default. Empty if there are none.
    #[must_use]
    pub fn plans(&self) -> &[Box<str>] {
        &self.plans
    }

    /// Whether values of entries with this key are secrets (API keys, tokens), to be shown as
    /// [`secret::fingerprint`] only: some keys are by default, `secrets:` adds to them.
    #[must_use]
    pub fn is_secret(&self, key: &str) -> bool {
        secret::is_secret_by_default(key) || self.secrets.contains(key)
    }

    /// `key_value`, or the key alone, as it may be shown: the value of a secret key is
    /// fingerprinted, unless it is a pattern, which names nobody.
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

    /// Whether a descriptor whose first key is `key` may find a node, whatever its value is. Tries all nodes below the
    /// domain.
    #[must_use]
    pub fn may_begin_with(&self, key: &str) -> bool {
        // A composite is the key, or the key and more; of a pattern the text before its first asterisk is fixed.
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
    /// At each level the first of these that has a node decides: the exact composite `key_value`;
    /// the first pattern with a `*`, in the order of the file, that matches it; the key alone.
    /// A node once chosen is never given up again. The walk ends with the entries, or at the first
    /// one that finds no node. It allocates only if it gets deeper than [`Walk::INLINE`] nodes.
    #[must_use]
    pub fn walk<'a>(&'a self, entries: &[Entry<'_>]) -> Walk<'a> {
        let mut walk = Walk::default();
        let mut children = &self.root;
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

/// One descriptor of a file: what it matches, what applies there, and what is below.
#[derive(Debug)]
pub struct Node {
    pub(crate) pattern: Box<str>,
    pub(crate) key: Box<str>,
    pub(crate) rules: Vec<RuleIndex>,
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

    /// The part of [`Self::pattern`] that was written as `key:`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The part of [`Self::pattern`] that was written as `value:`, if there is any.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.pattern.get(self.key.len() + 1..)
    }

    /// The rules of this node: one for each limit. Empty if the file has no limit here.
    #[must_use]
    pub fn rules(&self) -> &[RuleIndex] {
        &self.rules
    }

    /// Whether all values that match the pattern share one counter.
    #[must_use]
    pub const fn share_threshold(&self) -> bool {
        self.share_threshold
    }

    /// The incumbent's flag: metrics have this entry's value in their names.
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
