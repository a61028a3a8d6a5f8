//! Descriptors: their patterns, and the rules below them.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use ratekeeper_core::Algorithm;
use ratekeeper_core::lease::Terms;
use ratekeeper_core::synced::{SyncTerms, Unsyncable};

use super::concurrency::parse_concurrency;
use super::context::Context;
use super::fields::{At, Fields, not_a_map};
use super::limits::{LimitDefaults, ParsedLimit, parse_id};
use super::metadata::parse_metadata;
use super::plans::{ParsedPlans, PlanLimits, parse_limits, parse_plans};
use super::policy::Policy;
use crate::id::Draft;
use crate::matching::Children;
use crate::report::Report;
use crate::rule::LEASE;
use crate::yaml::{Mark, Node as Tree};
use crate::{
    Consistency, Enforce, FailureMode, Node, PathFolding, PathKeys, PlanIndex, Profile, Rule,
    RuleIndex, RuleLimit, secret,
};

/// The settings of a domain that its descriptors need.
pub(crate) struct DomainContext<'a> {
    pub(crate) domain: &'a Arc<str>,
    pub(crate) policy: &'a Policy,
    pub(crate) plans: &'a [Box<str>],
    pub(crate) is_secret: &'a dyn Fn(&str) -> bool,
    pub(crate) profile: Profile,
    pub(crate) on_store_failure: FailureMode,
    pub(crate) path_folding: PathFolding,
    pub(crate) path_keys: &'a PathKeys,
    /// Index of the file, for checks that run once all files are read.
    pub(crate) file: usize,
}

impl DomainContext<'_> {
    const fn default_algorithm(&self) -> Algorithm {
        match self.profile {
            Profile::Ratekeeper => Algorithm::SlidingWindow,
            Profile::Envoy => Algorithm::FixedWindow,
        }
    }
}

/// The composites of one level, each with its position: as they are written, and folded.
#[derive(Default)]
pub(crate) struct Level {
    written: HashMap<Box<str>, String>,
    folded: HashMap<Box<str>, String>,
}

/// Compiles descriptors into nodes and rules.
pub(crate) struct Compiler<'c, 'a, 's> {
    pub(crate) around: &'c DomainContext<'a>,
    pub(crate) report: &'c mut Report<'s>,
    pub(crate) rules: &'c mut Vec<Rule>,
    pub(crate) drafts: &'c mut Vec<Draft>,
}

/// The composite keys from the domain down to a descriptor.
#[derive(Clone, Default)]
pub(crate) struct Path {
    composites: Vec<Box<str>>,
    /// The same with secret values replaced by fingerprints.
    shown: Vec<Box<str>>,
    /// True if a descriptor on it counts each value by itself.
    counts_each: bool,
}

impl Path {
    pub(super) fn to(&self, composite: Box<str>, shown: Box<str>) -> Self {
        let mut path = self.clone();
        path.composites.push(composite);
        path.shown.push(shown);
        path
    }

    /// The same path, with a counter for each caller.
    pub(super) fn counting_each(mut self) -> Self {
        self.counts_each = true;
        self
    }

    /// The last composite; a secret value is replaced by its fingerprint.
    fn last_shown(&self) -> &str {
        self.shown.last().map_or("", |shown| shown)
    }
}

/// The properties of a descriptor that all of its limits share.
pub(super) struct Owner<'p> {
    pub(super) path: &'p Path,
    pub(super) policy: Policy,
    pub(super) id: Option<At<Box<str>>>,
    pub(super) shadow: bool,
    pub(super) quota_mode: bool,
    pub(super) detailed_metric: bool,
    pub(super) value_to_metric: bool,
    pub(super) metadata: Option<Arc<serde_json::Map<String, serde_json::Value>>>,
    /// The plan whose limits are being compiled, if it is not the default one.
    pub(super) plan: Option<Arc<str>>,
}

/// The rules of one descriptor.
#[derive(Default)]
struct NodeRules {
    default: Vec<RuleIndex>,
    by_plan: Vec<(PlanIndex, Box<[RuleIndex]>)>,
    /// The concurrency limit, which is in each of the lists.
    permits: Option<RuleIndex>,
}

impl Compiler<'_, '_, '_> {
    /// Compiles one `descriptors:` list.
    pub(crate) fn nodes(
        &mut self,
        items: &[Rc<Tree>],
        path: &Path,
        level: &mut Level,
    ) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(items.len());
        for item in items {
            if item.as_map().is_some() {
                nodes.extend(self.node(item, path, level));
            } else {
                not_a_map(item, self.report);
            }
        }
        nodes
    }

    fn node(&mut self, item: &Tree, path: &Path, level: &mut Level) -> Option<Node> {
        let fields = Fields::new(item, Context::Descriptor, self.report)?;
        let key = self.key(&fields);
        let value = fields
            .text("value", self.report)
            .filter(|at| !at.value.is_empty());
        if let Some(value) = value {
            self.check_no_regex(key.value, value);
        }
        let pattern = composite(key.value, value.map(|at| at.value));
        let mut path = path.to(
            pattern.clone(),
            self.shown(key.value, value.map(|at| at.value), &pattern),
        );
        let is_unique = self.check_unique(&pattern, &path, key.mark, level);
        let share_threshold = self.share_threshold(&fields, &pattern, path.last_shown());
        path.counts_each |= value.is_none() || (pattern.contains('*') && !share_threshold);
        let value_to_metric = self.flag(&fields, "value_to_metric");
        let rules = self.limits(&fields, &path, value_to_metric);
        let children = fields.list("descriptors", self.report).unwrap_or_default();
        let children = Children::new(self.nodes(children, &path, &mut Level::default()));
        // The duplicate has been reported. Kept in the tree, each of many would be compared with all others.
        is_unique.then_some(Node {
            pattern,
            key: key.value.into(),
            rules: rules.default,
            by_plan: rules.by_plan.into(),
            permits: rules.permits,
            share_threshold,
            value_to_metric,
            children,
        })
    }

    /// Reads the key. A wrong one is reported and stands in for a right one, so that the rest is
    /// checked.
    fn key<'t>(&mut self, fields: &Fields<'t>) -> At<&'t str> {
        let written = fields.get("key");
        let key = fields.text("key", self.report);
        if let Some(key) = key.filter(|at| !at.value.is_empty()) {
            return key;
        }
        let mark = written.map_or(fields.mark, |node| node.mark);
        if written.is_none() || key.is_some() {
            self.report
                .error(mark, "descriptor has empty key", "write `key: some_name`");
        }
        At { value: "", mark }
    }

    /// Warns of a value that looks like a regular expression: it is compared literally.
    fn check_no_regex(&mut self, key: &str, value: At<&str>) {
        let text = value.value;
        let looks_like_one = text.starts_with('^')
            || text.ends_with('$')
            || [".*", ".+", "\\d", "\\w", "(?"]
                .iter()
                .any(|part| text.contains(part));
        if !looks_like_one {
            return;
        }
        let pattern = text.trim_start_matches('^').trim_end_matches('$');
        let pattern = pattern.replace(".*", "*").replace(".+", "*");
        let is_plain = !pattern.contains(['\\', '(', '[', '+', '?', '|', '"']);
        let help = match is_plain && !(self.around.is_secret)(key) {
            true => format!("write `value: \"{pattern}\"`"),
            false => "write the text itself, with `*` for any characters".to_owned(),
        };
        self.report.warn(
            value.mark,
            "this looks like a regular expression, and is compared as text in which only `*` stands for other characters",
            help,
        );
    }

    fn shown(&self, key: &str, value: Option<&str>, pattern: &str) -> Box<str> {
        match value {
            // A pattern is not a secret, though its beginning might be part of one.
            Some(value) if !value.contains('*') && (self.around.is_secret)(key) => {
                composite(key, Some(&secret::fingerprint(value)))
            }
            _ => pattern.into(),
        }
    }

    /// Reports a pattern that its level already has; returns false in that case.
    fn check_unique(&mut self, pattern: &str, path: &Path, mark: Mark, level: &mut Level) -> bool {
        if pattern.is_empty() {
            return true;
        }
        let place = self.report.place(mark).to_string();
        if let Some(earlier) = level.written.get(pattern) {
            let shown = format!("{}.{}", self.around.domain, path.shown.join("."));
            let message = format!("duplicate descriptor composite key '{shown}'");
            let help = format!("it is at {earlier} already: put both into one descriptor");
            self.report.error(mark, message, help);
            return false;
        }
        if !pattern.contains('*') {
            self.warn_of_one_path(pattern, path, (mark, &place), level);
        }
        level.written.insert(pattern.into(), place);
        true
    }

    /// Warns of a second descriptor for a path that differs only in what does not count.
    fn warn_of_one_path(
        &mut self,
        pattern: &str,
        path: &Path,
        (mark, place): (Mark, &str),
        level: &mut Level,
    ) {
        let around = self.around;
        let folded = around.path_folding.aliases(pattern, around.path_keys);
        let folded = folded.first().map_or(pattern, |folded| folded);
        let Some(earlier) = level.folded.insert(folded.into(), place.to_owned()) else {
            return;
        };
        let shown = path.last_shown();
        let message = format!(
            "'{shown}' is the same path as that at {earlier}: an HTTP request finds only one of the two"
        );
        let help = "keep one; or set `ignore_path_case: false` or `ignore_trailing_slash: false` if your service \
                    tells such paths apart";
        self.report.warn(mark, message, help);
    }

    fn share_threshold(&mut self, fields: &Fields<'_>, pattern: &str, shown: &str) -> bool {
        let Some(flag) = fields
            .boolean("share_threshold", self.report)
            .filter(|at| at.value)
        else {
            return false;
        };
        if !pattern.contains('*') {
            let message = format!(
                "share_threshold can only be used with wildcard values (containing '*'), but found key '{shown}'"
            );
            self.report.error(
                flag.mark,
                message,
                "write a `*` in `value:`, or leave share_threshold out",
            );
        }
        true
    }

    fn flag(&mut self, fields: &Fields<'_>, key: &str) -> bool {
        fields.boolean(key, self.report).is_some_and(|at| at.value)
    }

    /// Compiles all rules of one descriptor.
    fn limits(&mut self, fields: &Fields<'_>, path: &Path, value_to_metric: bool) -> NodeRules {
        let policy = Policy::parse(fields, self.report).within(self.around.policy);
        let around = LimitDefaults {
            policy: &policy,
            algorithm: self.around.default_algorithm(),
        };
        self.check_null(fields);
        let rate = fields.get("rate_limit");
        let mut limits = PlanLimits {
            limits: rate
                .map(|node| parse_limits(node, Context::RateLimit, around, self.report))
                .unwrap_or_default(),
            is_list: rate.is_some_and(|node| node.as_list().is_some()),
        };
        let plans = fields.get("plans");
        let plans = plans
            .map(|node| parse_plans(node, self.around.plans, around, self.report))
            .unwrap_or_default();
        let plans = self.default_plan(plans, rate.is_some(), &mut limits, fields);
        let concurrency = fields
            .get("concurrency")
            .and_then(|node| parse_concurrency(node, &policy, self.report));
        let metadata = fields
            .get("metadata")
            .and_then(|node| parse_metadata(node, self.report));
        let mut owner = Owner {
            path,
            id: parse_id(fields, self.report),
            shadow: self.flag(fields, "shadow_mode"),
            quota_mode: self.flag(fields, "quota_mode"),
            detailed_metric: self.flag(fields, "detailed_metric"),
            value_to_metric,
            metadata: metadata.map(Arc::new),
            plan: None,
            policy,
        };
        let first = self.rules.len();
        self.rules_of(limits.limits, limits.is_list, &owner);
        let rates = self.rules.len();
        if let Some(limit) = concurrency {
            self.rule(limit, Some("concurrency".to_owned()), &owner);
        }
        // Plans have rates of their own; requests in flight are limited alike on all of them.
        let permits = indexes(rates..self.rules.len()).next();
        let mut rules = NodeRules {
            default: indexes(first..self.rules.len()).collect(),
            by_plan: Vec::new(),
            permits,
        };
        for (plan, limits) in plans {
            let name = self.around.plans.get(plan.get());
            owner.plan = name.map(|name| Arc::from(&**name));
            let first = self.rules.len();
            self.rules_of(limits.limits, limits.is_list, &owner);
            let own = indexes(first..self.rules.len()).chain(permits);
            rules.by_plan.push((plan, own.collect()));
        }
        rules
    }

    /// Adds one rule for each limit; in a list, the window becomes the id's suffix.
    pub(super) fn rules_of(&mut self, limits: Vec<ParsedLimit>, is_list: bool, owner: &Owner<'_>) {
        let suffixes = suffixes(&limits, is_list);
        for (limit, suffix) in limits.into_iter().zip(suffixes) {
            self.rule(limit, suffix, owner);
        }
    }

    /// `rate_limit:` and `rate_limit: null` mean no limit, but the parser of envoyproxy/ratelimit
    /// reads the other spellings of null as a limit without keys.
    fn check_null(&mut self, fields: &Fields<'_>) {
        let Some((text, mark)) = fields.null("rate_limit") else {
            return;
        };
        if matches!(text, "Null" | "NULL") {
            self.report.error(
                mark,
                "invalid rate limit unit ''",
                "write `rate_limit: null`, or leave it out",
            );
        }
    }

    /// Moves the default plan's limits, if they stand under `plans:`, to those of `rate_limit:`.
    fn default_plan(
        &mut self,
        plans: ParsedPlans,
        has_rate_limit: bool,
        limits: &mut PlanLimits,
        fields: &Fields<'_>,
    ) -> Vec<(PlanIndex, PlanLimits)> {
        match plans.default {
            Some(default) if has_rate_limit => {
                let message =
                    "the default plan's limit is there twice: `rate_limit` is the default plan's";
                self.report
                    .error(default.mark, message, "leave one of them out");
            }
            Some(default) => *limits = default.value,
            // The default plan has no limit here, which is something else than a request that no rule knows.
            None if !has_rate_limit && !plans.others.is_empty() => {
                limits.limits.push(ParsedLimit::unlimited(
                    fields.key_mark("plans").unwrap_or(fields.mark),
                ));
            }
            None => {}
        }
        plans.others
    }

    fn rule(&mut self, limit: ParsedLimit, suffix: Option<String>, owner: &Owner<'_>) {
        let place = self.report.place(limit.mark);
        let own_id = limit.id.map(|id| (id, None));
        let explicit = own_id.or_else(|| owner.id.clone().map(|id| (id, suffix.clone())));
        self.drafts.push(Draft {
            file: self.around.file,
            mark: explicit.as_ref().map_or(limit.mark, |(id, _)| id.mark),
            explicit: explicit.map(|(id, suffix)| (id.value, suffix)),
            domain: Arc::clone(self.around.domain),
            path: owner.path.shown.as_slice().into(),
            plan: owner.plan.clone(),
            suffix: suffix.map(Into::into),
            replaces: limit.replaces.iter().map(|at| at.mark).collect(),
        });
        let policy = limit.policy.within(&owner.policy);
        self.check_leaky(&limit.limit, &policy, limit.mark);
        self.check_leased(&limit.limit, &policy, limit.mark);
        let counted = self.synced(limit.limit, &policy, limit.mark);
        self.rules.push(Rule {
            // `id::assign` fills it in once all rules are known.
            id: "".into(),
            domain: Arc::clone(self.around.domain),
            path: owner.path.composites.as_slice().into(),
            place,
            limit: counted,
            calendar: limit.calendar,
            unit: limit.unit,
            window_text: limit.window_text,
            name: limit.name,
            replaces: limit.replaces.into_iter().map(|at| at.value).collect(),
            shadow: owner.shadow,
            quota_mode: owner.quota_mode,
            enabled: policy.enabled.unwrap_or(true),
            enforce: policy.enforce.unwrap_or(Enforce::ALL),
            count_denied: policy
                .count_denied
                .unwrap_or(self.around.profile == Profile::Envoy),
            detailed_metric: owner.detailed_metric,
            value_to_metric: owner.value_to_metric,
            metadata: owner.metadata.clone(),
            plan: owner.plan.clone(),
            consistency: policy.consistency,
            lease: policy.lease_time.unwrap_or(LEASE),
            is_global: !owner.path.counts_each,
            sync_interval: policy.sync_interval,
            store: policy.store,
            on_store_failure: policy
                .on_store_failure
                .unwrap_or(self.around.on_store_failure),
            leaky_over_rls: policy.leaky_over_rls.unwrap_or_default(),
            retry_after: limit.retry_after,
        });
    }

    /// Refuses leases where the limit bears none.
    fn check_leased(&mut self, limit: &RuleLimit, policy: &Policy, mark: Mark) {
        let RuleLimit::Limited(limit) = limit else {
            return;
        };
        if policy.consistency != Some(Consistency::Leased) {
            return;
        }
        let counts_denied = self.around.profile == Profile::Envoy;
        let lease = policy.lease_time.unwrap_or(LEASE);
        let message = match Terms::try_new(limit, lease) {
            Err(why) => format!("`consistency: leased` is not possible here: {why}"),
            Ok(_) if policy.count_denied.unwrap_or(counts_denied) => {
                "`consistency: leased` is not possible with `count_denied`: denied requests would have to be \
                 charged in the shared store, one by one"
                    .to_owned()
            }
            Ok(_) => return,
        };
        self.report
            .error(mark, message, "write `consistency: exact`");
    }

    /// The limit as its counters are kept. Refuses to sync what cannot be.
    fn synced(&mut self, limit: RuleLimit, policy: &Policy, mark: Mark) -> RuleLimit {
        let RuleLimit::Limited(spec) = &limit else {
            return limit;
        };
        if policy.consistency != Some(Consistency::Synced) {
            return limit;
        }
        let counts_denied = self.around.profile == Profile::Envoy;
        let (why, help) = match SyncTerms::try_new(spec, policy.sync_interval) {
            Ok(_) if policy.count_denied.unwrap_or(counts_denied) => (
                "not with `count_denied`: of denied requests nodes tell each other nothing"
                    .to_owned(),
                "write `count_denied: false`, or `consistency: exact`".to_owned(),
            ),
            Ok(terms) => return RuleLimit::Limited(*terms.limit()),
            Err(why) => (why.to_string(), help_to_sync(why)),
        };
        let message = format!("`consistency: synced` is not possible here: {why}");
        self.report.error(mark, message, help);
        limit
    }

    fn check_leaky(&mut self, limit: &RuleLimit, policy: &Policy, mark: Mark) {
        let leaky = matches!(limit, RuleLimit::Limited(limit) if limit.algorithm() == Algorithm::LeakyBucket);
        if leaky && policy.leaky_over_rls == Some(crate::LeakyOverRls::Allow) {
            let message = "with `leaky_over_rls: allow` nothing is shaped where the edge cannot wait: \
                           up to a whole burst passes at once";
            self.report.warn(mark, message, None);
        }
    }
}

/// The way out for a limit that cannot be synced.
fn help_to_sync(why: Unsyncable) -> String {
    match why {
        Unsyncable::Algorithm(Algorithm::TokenBucket | Algorithm::Gcra) => {
            "write `consistency: leased`, or `algorithm: sliding_window`".to_owned()
        }
        Unsyncable::Strict => "leave `strict` out, or write `consistency: leased`".to_owned(),
        Unsyncable::IntervalOutOfRange => "write `sync_interval: 1s`".to_owned(),
        Unsyncable::IntervalTooLong(most) => {
            format!("write `sync_interval: {}ms`", most.get() / 1_000)
        }
        _ => "write `consistency: exact`".to_owned(),
    }
}

/// The indexes of rules, of which there are far fewer than 2^32: files are bounded.
fn indexes(rules: Range<usize>) -> impl Iterator<Item = RuleIndex> {
    rules.filter_map(|at| u32::try_from(at).ok().map(RuleIndex))
}

/// `key`, or `key_value`.
fn composite(key: &str, value: Option<&str>) -> Box<str> {
    match value {
        Some(value) => format!("{key}_{value}").into(),
        None => key.into(),
    }
}

/// The id suffixes of a list's limits: the window, and the algorithm where the window is not
/// enough.
fn suffixes(limits: &[ParsedLimit], is_list: bool) -> Vec<Option<String>> {
    let suffix = |limit: &ParsedLimit| {
        let window = &limit.window_text;
        let alike = limits
            .iter()
            .filter(|other| other.window_text == *window)
            .count();
        match limit.limit {
            RuleLimit::Limited(limit) if alike > 1 => {
                format!("{window}:{}", limit.algorithm().name())
            }
            RuleLimit::Limited(_) => window.to_string(),
            RuleLimit::Unlimited => "unlimited".to_owned(),
        }
    };
    limits
        .iter()
        .map(|limit| is_list.then(|| suffix(limit)))
        .collect()
}
