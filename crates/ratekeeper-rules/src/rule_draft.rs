//! Rules that a program makes itself, without a file.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use ratekeeper_core::{Algorithm, LimitSpec};

use crate::diagnostic::Faults;
use crate::draft::quota::{Form, Quota};
use crate::draft::{LimitDefaults, LimitDraft, suffixes};
use crate::id::{self, RuleName};
use crate::mark::Mark;
use crate::matching::Children;
use crate::policy::Policy;
use crate::slas::ServiceLevels;
use crate::tenants::{ENTRIES_MAX, OverrideDefaults, TenantTable};
use crate::{
    Domain, Evaluation, FailureMode, Node, Options, Position, Rule, RuleIndex, RuleSet, secret,
};

/// A rule that a program makes: the entries that it matches, and its limit.
#[derive(Clone, Debug)]
pub struct RuleDraft {
    entries: Vec<(Box<str>, Option<Box<str>>)>,
    limit: LimitSpec,
    id: Option<Box<str>>,
    name: Option<Box<str>>,
    shadow: bool,
    on_store_failure: Option<FailureMode>,
}

impl RuleDraft {
    /// A rule without entries yet, with this limit.
    #[must_use]
    pub const fn new(limit: LimitSpec) -> Self {
        Self {
            entries: Vec::new(),
            limit,
            id: None,
            name: None,
            shadow: false,
            on_store_failure: None,
        }
    }

    /// Adds an entry with this key, after those that are there; each value has a counter of its own.
    #[must_use]
    pub fn each(mut self, key: impl Into<Box<str>>) -> Self {
        self.entries.push((key.into(), None));
        self
    }

    /// Adds an entry with this key and this value, which may have `*`.
    #[must_use]
    pub fn only(mut self, key: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.entries.push((key.into(), Some(value.into())));
        self
    }

    /// Sets the rule's id; by default it is made of domain and entries.
    #[must_use]
    pub fn id(mut self, id: impl Into<Box<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the name that clients see.
    #[must_use]
    pub fn name(mut self, name: impl Into<Box<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Decides and counts, but never denies.
    #[must_use]
    pub const fn shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Sets the answer while the store is unavailable.
    #[must_use]
    pub const fn on_store_failure(mut self, mode: FailureMode) -> Self {
        self.on_store_failure = Some(mode);
        self
    }

    /// The limit as files have it.
    fn limit(&self) -> LimitDraft {
        let spec = &self.limit;
        let flag = |flag: bool| flag.then_some(true).into();
        LimitDraft {
            name: self.name.clone(),
            policy: Policy {
                on_store_failure: self.on_store_failure,
                ..Policy::default()
            },
            algorithm: Some(spec.algorithm).into(),
            quota: Quota {
                limit: Some(spec.quota).into(),
                window: Some(spec.window).into(),
                form: Form {
                    burst: spec.burst.into(),
                    sub_windows: spec.sub_windows.map(u64::from).into(),
                    strict: flag(spec.strict),
                    post_paid: flag(spec.post_paid),
                    max_debt: spec.max_debt.into(),
                },
                ..Quota::default()
            },
            ..LimitDraft::at(Mark::START)
        }
    }

    fn refused(&self, at: usize, reason: impl Into<Box<str>>) -> RefusedRule {
        let entries = self.entries.iter();
        let entries: Vec<_> = entries
            .map(|(key, value)| shown(key, value.as_deref()))
            .collect();
        RefusedRule {
            at,
            entries: entries.join(".").into(),
            reason: reason.into(),
        }
    }

    /// Checks the entries and the id.
    fn check(&self, at: usize) -> Result<(), RefusedRule> {
        if self.entries.is_empty() {
            return Err(self.refused(at, "it has no entry: add one with `each` or `only`"));
        }
        if self.entries.len() > ENTRIES_MAX {
            return Err(self.refused(at, format!("it has more than {ENTRIES_MAX} entries")));
        }
        if self.entries.iter().any(|(key, _)| key.is_empty()) {
            return Err(self.refused(at, "an entry has no key"));
        }
        let is_bad = |id: &str| !(1..=200).contains(&id.len()) || id.chars().any(char::is_control);
        if self.id.as_deref().is_some_and(is_bad) {
            return Err(self.refused(at, "an id has 1 to 200 bytes and no control characters"));
        }
        Ok(())
    }
}

/// A rule that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("rule {at} ({entries}): {reason}")]
#[non_exhaustive]
pub struct RefusedRule {
    /// Its index among the drafts.
    pub at: usize,
    /// Its entries, joined by dots; secret values are fingerprints.
    pub entries: Box<str>,
    /// The reason, and what to write instead.
    pub reason: Box<str>,
}

/// The first fault of a draft.
#[derive(Default)]
struct FirstFault(Option<String>);

impl Faults for FirstFault {
    fn error(&mut self, _: &'static str, _: Mark, message: &str, help: Option<&str>) {
        self.0.get_or_insert_with(|| match help {
            Some(help) => format!("{message}; {help}"),
            None => message.to_owned(),
        });
    }

    fn warn(&mut self, _: Mark, _: &str, _: Option<&str>) {}
}

impl RuleSet {
    /// The rules of one domain that a program makes. Drafts with the same entries are limits that must all pass; as in
    /// files, the most specific node decides.
    ///
    /// # Errors
    /// The first draft that cannot be, with the reason.
    ///
    /// # Example
    /// ```
    /// use ratekeeper_core::{Algorithm, LimitSpec, Micros};
    /// use ratekeeper_rules::{RuleDraft, RuleSet};
    ///
    /// let limit = LimitSpec::new(Algorithm::SlidingWindow, 100, Micros::from_secs(60));
    /// let rules = RuleSet::from_drafts("api", [RuleDraft::new(limit).each("user")])?;
    /// assert_eq!(&*rules.rules()[0].id, "api.user");
    /// # Ok::<(), ratekeeper_rules::RefusedRule>(())
    /// ```
    pub fn from_drafts(
        domain: &str,
        drafts: impl IntoIterator<Item = RuleDraft>,
    ) -> Result<Self, RefusedRule> {
        let options = Options::default();
        let domain: Arc<str> = domain.into();
        let mut branches = Branches::default();
        let drafts: Vec<_> = drafts.into_iter().collect();
        for (at, draft) in drafts.iter().enumerate() {
            draft.check(at)?;
            branches.insert(&draft.entries, at);
        }
        let mut made = Made {
            domain: &domain,
            options: &options,
            drafts: &drafts,
            rules: Vec::new(),
            names: Vec::new(),
        };
        let nodes = made.nodes(branches, &mut Vec::new())?;
        let Made {
            mut rules, names, ..
        } = made;
        let duplicates = id::assign(
            &mut rules,
            &names.iter().map(|(_, name)| name).collect::<Vec<_>>(),
        );
        if let Some(&(at, _)) = duplicates.first() {
            let (at, reason) = (
                names[at].0,
                format!("another rule has the id '{}'", rules[at].id),
            );
            return Err(drafts[at].refused(at, reason));
        }
        let mut root = Children::new(nodes, Evaluation::Leaf);
        root.fold(options.path_folding, &options.path_keys);
        let made = Domain {
            evaluation: Evaluation::Leaf,
            tenant: None,
            tenant_of_levels: None,
            plans: Vec::new(),
            secrets: BTreeSet::new(),
            tenants: Arc::new(TenantTable::default()),
            adjust: None,
            usage: None,
            stored: None,
            override_defaults: OverrideDefaults::new(&domain, &Policy::default(), &options),
            root: Arc::new(root),
            name: domain,
        };
        let by_name = HashMap::from_iter([(made.name().into(), 0)]);
        Ok(Self {
            domains: vec![made],
            named_by_files: 1,
            by_name,
            of_files: rules.len(),
            rules,
            suffixes: names.into_iter().map(|(_, name)| name.suffix).collect(),
            service_levels: Arc::new(ServiceLevels::default()),
            tenants_of_levels: None,
            shed: None,
            path_folding: options.path_folding,
            path_keys: options.path_keys,
        })
    }
}

/// The entries at one level of the tree that drafts make, in their order.
#[derive(Default)]
struct Branches {
    branches: Vec<Branch>,
    by_pattern: HashMap<Box<str>, usize>,
}

struct Branch {
    key: Box<str>,
    value: Option<Box<str>>,
    /// The drafts whose last entry it is.
    drafts: Vec<usize>,
    below: Branches,
}

impl Branches {
    fn insert(&mut self, entries: &[(Box<str>, Option<Box<str>>)], draft: usize) {
        let Some(((key, value), rest)) = entries.split_first() else {
            return;
        };
        let next = self.branches.len();
        let at = *self
            .by_pattern
            .entry(composite(key, value.as_deref()))
            .or_insert(next);
        if at == next {
            self.branches.push(Branch {
                key: key.clone(),
                value: value.clone(),
                drafts: Vec::new(),
                below: Self::default(),
            });
        }
        match rest {
            [] => self.branches[at].drafts.push(draft),
            rest => self.branches[at].below.insert(rest, draft),
        }
    }
}

/// The rules that are made so far.
struct Made<'a> {
    domain: &'a Arc<str>,
    options: &'a Options,
    drafts: &'a [RuleDraft],
    rules: Vec<Rule>,
    /// The draft of each rule, and the parts of the rule's id.
    names: Vec<(usize, RuleName)>,
}

/// A part of a path: the composite, the same in a form that may be shown, and true if it has a value.
type PathPart = (Box<str>, Box<str>, bool);

impl Made<'_> {
    fn nodes(
        &mut self,
        level: Branches,
        path: &mut Vec<PathPart>,
    ) -> Result<Vec<Node>, RefusedRule> {
        let mut nodes = Vec::with_capacity(level.branches.len());
        for branch in level.branches {
            let value = branch.value.as_deref();
            let pattern = composite(&branch.key, value);
            let counts_together = value.is_some_and(|value| !value.contains('*'));
            path.push((pattern.clone(), shown(&branch.key, value), counts_together));
            let rules = self.rules(&branch.drafts, path)?;
            let below = self.nodes(branch.below, path)?;
            path.pop();
            nodes.push(Node {
                pattern,
                key: branch.key,
                rules,
                by_plan: [].into(),
                permits: None,
                share_threshold: false,
                value_to_metric: false,
                children: Children::new(below, Evaluation::Leaf),
            });
        }
        Ok(nodes)
    }

    /// Makes the rules of the drafts that end at `path`.
    fn rules(
        &mut self,
        drafts: &[usize],
        path: &[PathPart],
    ) -> Result<Vec<RuleIndex>, RefusedRule> {
        let outer = Policy::default();
        let mut limits = Vec::with_capacity(drafts.len());
        for &at in drafts {
            let draft = &self.drafts[at];
            let mut fault = FirstFault::default();
            let defaults = LimitDefaults {
                policy: &outer,
                algorithm: Algorithm::SlidingWindow,
            };
            let limit = draft.limit().build(defaults, &mut fault);
            let refused = |fault: FirstFault| {
                draft.refused(at, fault.0.unwrap_or_else(|| "invalid limit".to_owned()))
            };
            limits.push(limit.ok_or(fault).map_err(refused)?);
        }
        let suffixes = suffixes(&limits, limits.len() > 1);
        let mut indexes = Vec::with_capacity(limits.len());
        for ((&at, limit), suffix) in drafts.iter().zip(limits).zip(suffixes) {
            let draft = &self.drafts[at];
            let index = u32::try_from(self.rules.len());
            indexes.push(RuleIndex(
                index.map_err(|_| draft.refused(at, "there are too many rules"))?,
            ));
            let base = limit.policy.rule(
                self.domain,
                (self.options.profile, self.options.on_store_failure),
            );
            let place = Position {
                file: "program".into(),
                line: 1,
                column: 1,
            };
            self.names.push((
                at,
                RuleName {
                    explicit: draft.id.clone().map(|id| (id, None)),
                    domain: Arc::clone(self.domain),
                    path: path.iter().map(|(_, shown, _)| shown.clone()).collect(),
                    plan: None,
                    suffix: suffix.map(Into::into),
                },
            ));
            self.rules.push(Rule {
                path: path
                    .iter()
                    .map(|(composite, ..)| composite.clone())
                    .collect(),
                shadow: draft.shadow,
                is_global: path.iter().all(|(.., counts_together)| *counts_together),
                ..limit.into_rule(place, base)
            });
        }
        Ok(indexes)
    }
}

/// `key`, or `key_value`.
fn composite(key: &str, value: Option<&str>) -> Box<str> {
    match value {
        Some(value) => format!("{key}_{value}").into(),
        None => key.into(),
    }
}

/// The composite in a form that may be shown.
fn shown(key: &str, value: Option<&str>) -> Box<str> {
    match value {
        Some(value) if secret::is_secret_by_default(key) && !value.contains('*') => {
            composite(key, Some(&secret::fingerprint(value)))
        }
        value => composite(key, value),
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Micros;

    use super::*;
    use crate::Entry;

    fn per_minute(quota: u64) -> LimitSpec {
        LimitSpec::new(Algorithm::SlidingWindow, quota, Micros::from_secs(60))
    }

    fn quotas(rules: &RuleSet, entries: &[(&str, &str)]) -> Vec<u64> {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, value)| Entry { key, value })
            .collect();
        let domain = rules.domain("api").expect("it is there");
        let walk = domain.walk(&entries);
        let found = walk.leaf().map_or(&[][..], |leaf| leaf.node.rules());
        let quota = |index: &RuleIndex| rules.rule(*index).limited().map(|limit| limit.quota());
        found.iter().filter_map(quota).collect()
    }

    #[test]
    fn drafts_match_as_files_do() {
        let drafts = [
            RuleDraft::new(per_minute(10)).each("user"),
            RuleDraft::new(LimitSpec::new(
                Algorithm::TokenBucket,
                2,
                Micros::from_secs(1),
            ))
            .each("user"),
            RuleDraft::new(per_minute(3))
                .each("user")
                .only("path", "/login"),
            RuleDraft::new(per_minute(500)).only("user", "vip*"),
        ];
        let rules = RuleSet::from_drafts("api", drafts).expect("all are right");
        assert_eq!(quotas(&rules, &[("user", "ada")]), [10, 2]);
        assert_eq!(quotas(&rules, &[("user", "ada"), ("path", "/login")]), [3]);
        assert_eq!(quotas(&rules, &[("user", "vip1")]), [500]);
        assert_eq!(quotas(&rules, &[("path", "/login")]), [0; 0]);
        let ids: Vec<_> = rules.rules().iter().map(|rule| &*rule.id).collect();
        assert_eq!(
            ids,
            [
                "api.user#1m",
                "api.user#1s",
                "api.user.path_/login",
                "api.user_vip*"
            ]
        );
    }

    /// The same rules from a file have the same ids, limits and policies.
    #[cfg(feature = "yaml")]
    #[test]
    fn a_draft_makes_the_rule_that_a_file_makes() {
        let text = "domain: api
descriptors:
  - key: user
    descriptors:
      - key: path
        value: /login
        rate_limit: { name: logins, limit: 3, window: 60s, algorithm: gcra, burst: 9, id: own }
        shadow_mode: true
        on_store_failure: deny
      - key: api_key
        value: s3cret
        rate_limit: { limit: 7, window: 2h }
";
        let source = crate::Source {
            name: "program".to_owned(),
            text: text.to_owned(),
        };
        let loaded = crate::load(&[source], &Options::default()).expect("it is right");
        let logins = LimitSpec {
            burst: Some(9),
            ..LimitSpec::new(Algorithm::Gcra, 3, Micros::from_secs(60))
        };
        let other = LimitSpec::new(Algorithm::SlidingWindow, 7, Micros::from_secs(7_200));
        let drafts = [
            RuleDraft::new(logins)
                .each("user")
                .only("path", "/login")
                .id("own")
                .name("logins")
                .shadow()
                .on_store_failure(FailureMode::Deny),
            RuleDraft::new(other).each("user").only("api_key", "s3cret"),
        ];
        let made = RuleSet::from_drafts("api", drafts).expect("all are right");
        let placeless = |rules: &RuleSet| -> Vec<Rule> {
            let rules = rules.rules().iter().cloned();
            rules
                .map(|rule| Rule {
                    place: Position {
                        file: "".into(),
                        line: 0,
                        column: 0,
                    },
                    ..rule
                })
                .collect()
        };
        assert_eq!(placeless(&made), placeless(&loaded.rules));
    }

    #[test]
    fn a_draft_that_cannot_be_is_refused_with_the_reason() {
        let refused = |drafts: Vec<RuleDraft>| {
            let refused = RuleSet::from_drafts("api", drafts).expect_err("one is wrong");
            refused.to_string()
        };
        let good = || RuleDraft::new(per_minute(1)).each("user");
        let no_window = LimitSpec::new(Algorithm::SlidingWindow, 1, Micros::ZERO);
        assert_eq!(
            refused(vec![good(), RuleDraft::new(no_window).each("ip")]),
            "rule 1 (ip): a window is at least 1 microsecond; write `window: 10s`"
        );
        let entry = refused(vec![RuleDraft::new(per_minute(1))]);
        assert!(entry.contains("no entry"), "{entry}");
        let key = refused(vec![RuleDraft::new(per_minute(1)).each("")]);
        assert!(key.contains("no key"), "{key}");
        let deep = (0..=ENTRIES_MAX).fold(good(), |draft, _| draft.each("user"));
        assert!(refused(vec![deep]).contains("more than 64 entries"));
        let twice = refused(vec![good().id("one"), good().each("path").id("one")]);
        assert_eq!(twice, "rule 1 (user.path): another rule has the id 'one'");
        let burst = LimitSpec {
            burst: Some(5),
            ..per_minute(1)
        };
        let burst = refused(vec![RuleDraft::new(burst).only("token", "s3cret")]);
        assert!(burst.contains("burst"), "{burst}");
        assert!(!burst.contains("s3cret"), "{burst}");
    }
}
