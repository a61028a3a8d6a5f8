//! The place of an override among the rules of its domain, and the rule made of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ratekeeper_core::{Algorithm, Limit, Micros};

use super::level::{LevelTarget, NoLevel};
use super::{CUSTOM, Pattern};
use crate::draft::{BuiltLimit, Field, LimitDraft};
use crate::folding::FoldedKeys;
use crate::policy::Policy;
use crate::region::{RegionKeys, share};
use crate::rule::sync_terms;
use crate::{
    Consistency, Node, NodeRegion, Options, PlanIndex, Position, RegionMode, Rule, RuleIndex,
    RuleLimit, ServiceLevel, secret,
};

/// The most overrides of one tenant: a check looks through them.
pub(crate) const OVERRIDES_MAX: usize = 256;

/// Splits an entry of an override's descriptor, `key:value` or `key`, at the first colon. [`None`] without a
/// key.
pub(crate) fn entry_of(text: &str) -> Option<(&str, Option<&str>)> {
    let (key, value) = match text.split_once(':') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    (!key.is_empty()).then_some((key, value.filter(|value| !value.is_empty())))
}

/// The descriptor of an override.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) pattern: Arc<Pattern>,
    pub(crate) id: Arc<str>,
    path: Arc<[Box<str>]>,
    /// The rule of the default plan whose policy the override takes over, if there is one.
    base: Option<RuleIndex>,
    /// The rules of other plans in this place that regions share in another way, or that they count in another.
    apart: Box<[(PlanIndex, RuleIndex)]>,
}

impl Target {
    /// The plans on which an override has a rule of its own. That of the default plan, the first, is for all others.
    pub(crate) fn plans(&self) -> impl Iterator<Item = PlanIndex> {
        let others = self.apart.iter().map(|(plan, _)| *plan);
        std::iter::once(PlanIndex::DEFAULT).chain(others)
    }

    /// The plan of those whose rule is for a tenant on `plan`.
    pub(crate) fn plan_for(&self, plan: PlanIndex) -> PlanIndex {
        let mut plans = self.plans();
        plans.find(|own| *own == plan).unwrap_or_default()
    }

    fn apart_on(&self, plan: PlanIndex) -> Option<RuleIndex> {
        let mut apart = self.apart.iter();
        apart.find_map(|(other, rule)| (*other == plan).then_some(*rule))
    }
}

/// The domain that overrides are compiled for, while it is read or later.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub(crate) domain: &'a Arc<str>,
    /// The key of the entry that names the tenant.
    pub(crate) tenant_key: &'a str,
    pub(crate) nodes: &'a [Node],
    /// The keys of secret entries, besides those that are by default.
    pub(crate) secrets: [&'a BTreeSet<Box<str>>; 2],
    /// The end that the id of each of the files' rules has for its place in a list.
    pub(crate) suffixes: &'a [Option<Box<str>>],
    /// The policy and the algorithm of an override that takes no rule's place.
    pub(crate) defaults: &'a OverrideDefaults,
    /// The service levels that the tenants' overrides may be for.
    pub(crate) levels: &'a [ServiceLevel],
    /// The keys of entries that are made from paths.
    pub(crate) paths: FoldedKeys<'a>,
}

/// The properties of overrides that take no rule's place.
#[derive(Clone, Debug)]
pub(crate) struct OverrideDefaults {
    algorithm: Algorithm,
    rule: Arc<Rule>,
    region: NodeRegion,
}

impl OverrideDefaults {
    /// The defaults of a domain with this policy.
    pub(crate) fn new(domain: &Arc<str>, policy: &Policy, options: &Options) -> Self {
        let algorithm = policy.algorithm.unwrap_or(options.profile.algorithm());
        let rule = policy.rule(domain, (options.profile, options.on_store_failure));
        Self {
            algorithm,
            rule: Arc::new(rule),
            region: options.region.clone(),
        }
    }
}

impl Site<'_> {
    /// The algorithm of an override that names none: that of the limit whose place it takes.
    pub(crate) fn algorithm(&self, target: Option<&Target>, rules: &[Rule]) -> Algorithm {
        let base = target.and_then(|target| target.base);
        let base = base.map(|base| &rules[base.get()]);
        let algorithm = base.and_then(Rule::limited).map(|limit| limit.algorithm());
        algorithm.unwrap_or(self.defaults.algorithm)
    }

    /// Makes the limit of an override one that is paid afterwards if the limit whose place it takes is, and it does not say.
    pub(crate) fn inherit(&self, draft: &mut LimitDraft, target: &Target, rules: &[Rule]) {
        let base = target.base.and_then(|base| rules[base.get()].limited());
        let (mark, quota) = (draft.mark, &mut draft.quota);
        let is_open = !quota.form.post_paid.is_set() && quota.unlimited.get() != Some(&true);
        if is_open && base.is_some_and(Limit::is_post_paid) {
            quota.form.post_paid = Field::written(mark, Some(mark), Some(true));
        }
    }

    /// The place of a descriptor's parts, which may be where no rule is.
    ///
    /// # Errors
    /// They name a service level that does not exist.
    pub(crate) fn target(
        &self,
        parts: &[(&str, Option<&str>)],
        rules: &[Rule],
    ) -> Result<Target, NoLevel> {
        let node = node_of(self.nodes, self.tenant_key, parts, Some(self.paths));
        if node.is_none()
            && let Some(found) = LevelTarget::find(parts, self.levels)?
        {
            let rule = &rules[found.base.get()];
            return Ok(Target {
                pattern: Arc::new(found.pattern),
                id: self.custom_id(found.base, rule).into(),
                path: Arc::clone(&rule.path),
                base: Some(found.base),
                apart: Box::default(),
            });
        }
        let pattern = Arc::new(Pattern::new(parts.iter().copied(), Some(self.paths)));
        // Requests in flight are another kind of limit, which an override leaves alone.
        let is_rate = |index: &RuleIndex| {
            let limit = rules[index.get()].limited();
            limit.is_none_or(|limit| !limit.algorithm().holds_permits())
        };
        let base = node.and_then(|node| node.rules().iter().copied().find(is_rate));
        let apart = node.map_or_else(Box::default, |node| self.apart(node, base, rules));
        if let Some(index) = base {
            let rule = &rules[index.get()];
            return Ok(Target {
                pattern,
                id: self.custom_id(index, rule).into(),
                path: Arc::clone(&rule.path),
                base,
                apart,
            });
        }
        let tenant = (self.tenant_key, None);
        let shown = std::iter::once(tenant).chain(parts.iter().copied());
        let shown: Vec<String> = shown.map(|part| self.shown(part)).collect();
        let path = parts.iter().map(|(key, value)| match value {
            Some(value) => format!("{key}_{value}").into(),
            None => Box::from(*key),
        });
        let path: Vec<Box<str>> = std::iter::once(self.tenant_key.into())
            .chain(path)
            .collect();
        Ok(Target {
            pattern,
            id: format!("{}.{}@{CUSTOM}", self.domain, shown.join(".")).into(),
            path: path.into(),
            base: None,
            apart,
        })
    }

    /// The first rates of plans at `node` from which an override takes what `base` has not: what they say of regions, and what
    /// goes with that.
    fn apart(
        &self,
        node: &Node,
        base: Option<RuleIndex>,
        rules: &[Rule],
    ) -> Box<[(PlanIndex, RuleIndex)]> {
        let base = base.map_or(&*self.defaults.rule, |base| &rules[base.get()]);
        let is_rate = |index: &RuleIndex| {
            let limit = rules[index.get()].limited();
            limit.is_some_and(|limit| !limit.algorithm().holds_permits())
        };
        let apart = node.by_plan().filter_map(|(plan, of_plan)| {
            let index = of_plan.iter().copied().find(is_rate)?;
            let rule = &rules[index.get()];
            let differs = RegionKeys::of(rule) != RegionKeys::of(base)
                || is_lent(rule) && counting(rule) != counting(base);
            differs.then_some((plan, index))
        });
        apart.collect()
    }

    /// The id of overrides in the place of `rule`, without the part for a list.
    fn custom_id(&self, index: RuleIndex, rule: &Rule) -> String {
        let suffix = self.suffixes.get(index.get()).and_then(Option::as_ref);
        let end = suffix.map(|suffix| format!("#{suffix}"));
        let id = end.and_then(|end| rule.id.strip_suffix(&*end));
        format!("{}@{CUSTOM}", id.unwrap_or(&rule.id))
    }

    /// `key_value`; a secret value is replaced by its fingerprint.
    fn shown(&self, (key, value): (&str, Option<&str>)) -> String {
        let is_secret = secret::is_secret_by_default(key)
            || self.secrets.iter().any(|secrets| secrets.contains(key));
        match value {
            None => key.to_owned(),
            Some(value) if is_secret && !value.contains('*') => {
                format!("{key}_{}", secret::fingerprint(value))
            }
            Some(value) => format!("{key}_{value}"),
        }
    }

    /// The rule of an override for tenants on `plan`, one of the target's: its own limit, shared as the plan's, and otherwise as
    /// the rule whose place it takes.
    ///
    /// # Errors
    /// Regions share the plan's limit and cannot share this one: a message and its help.
    pub(crate) fn rule(
        &self,
        mut limit: BuiltLimit,
        (target, plan): (&Target, PlanIndex),
        place: Position,
        rules: &[Rule],
    ) -> Result<Rule, (String, String)> {
        let base = target.base.map(|base| &rules[base.get()]);
        let mut base = base.unwrap_or(&self.defaults.rule).clone();
        if let Some(apart) = target.apart_on(plan) {
            share_like(&mut base, &rules[apart.get()]);
        }
        limit.limit = counted(limit.limit, &base);
        let share =
            share(&limit.limit, &base, &self.defaults.region).map_err(|(message, help)| {
                let help = format!(
                    "{help}; an override takes `regions` from the limit of the tenant's plan"
                );
                (message, help)
            })?;
        Ok(Rule {
            id: Arc::clone(&target.id),
            path: Arc::clone(&target.path),
            plan: Some(CUSTOM.into()),
            is_global: false,
            share,
            ..limit.into_rule(place, base)
        })
    }
}

/// Gives `base` what the plan's `rule` says of regions. That they lend each other parts, or count together, goes with the
/// store and the way in which it counts hits.
fn share_like(base: &mut Rule, rule: &Rule) {
    base.regions = rule.regions;
    base.post_interval = rule.post_interval;
    base.on_silence = rule.on_silence;
    if is_lent(rule) {
        base.consistency = rule.consistency;
        base.lease = rule.lease;
        base.store.clone_from(&rule.store);
    }
}

/// Returns true if regions lend each other parts of the limit, or count it together.
const fn is_lent(rule: &Rule) -> bool {
    matches!(
        rule.regions,
        Some(RegionMode::Bounded | RegionMode::Counted)
    )
}

/// The consistency, the leases and the store of the rule's counters.
fn counting(rule: &Rule) -> (Option<Consistency>, Micros, Option<&str>) {
    (rule.consistency, rule.lease, rule.store.as_deref())
}

/// The limit as its counters are kept: one that is synced is cut into sub-windows, if it can be.
fn counted(limit: RuleLimit, base: &Rule) -> RuleLimit {
    match limit {
        RuleLimit::Limited(limit) if base.consistency == Some(Consistency::Synced) => {
            let terms = sync_terms(&limit, base.sync_interval);
            RuleLimit::Limited(terms.map_or(limit, |terms| *terms.limit()))
        }
        limit => limit,
    }
}

/// The node of `parts` below one that any tenant matches, else below one of a certain tenant's.
pub(crate) fn node_of<'n>(
    nodes: &'n [Node],
    tenant: &str,
    parts: &[(&str, Option<&str>)],
    paths: Option<FoldedKeys<'_>>,
) -> Option<&'n Node> {
    let below = |node: &'n Node| {
        let mut parts = parts.iter();
        parts.try_fold(node, |node, part| node.children.written(*part, paths))
    };
    let here = |any: bool| {
        let mut here = nodes.iter();
        here.find_map(|node| {
            let fits = node.key() == tenant && node.value().is_none() == any;
            fits.then(|| below(node)).flatten()
        })
    };
    let deeper = || {
        let mut here = nodes.iter();
        here.find_map(|node| node_of(node.nodes(), tenant, parts, paths))
    };
    here(true).or_else(|| here(false)).or_else(deeper)
}
