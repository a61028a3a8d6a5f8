//! The rules of one descriptor.

use std::ops::Range;
use std::sync::Arc;

use ratekeeper_core::Algorithm;
use ratekeeper_core::lease::{Terms, Unleasable};
use ratekeeper_core::synced::{SyncTerms, Unsyncable};

use super::plan_regions::RegionsOfWindow;
use super::{Compiler, Owner, Path};
use crate::draft::{BuiltLimit, LimitDefaults, suffixes};
use crate::format::fields::Fields;
use crate::format::{Descriptor as Keys, RateLimit};
use crate::id::{Draft, RuleName};
use crate::mark::{At, Mark};
use crate::parse::concurrency::build_concurrency;
use crate::parse::limits::read_id;
use crate::parse::plans::{ParsedPlans, PlanLimits, parse_limits, parse_plans};
use crate::policy::Policy;
use crate::region::share;
use crate::rule::LEASE;
use crate::{
    Consistency, Enforce, FailureMode, LeakyOverRls, PlanIndex, Rule, RuleIndex, RuleLimit,
};

impl Keys {
    /// Returns true if the descriptor has limits of its own, right or wrong.
    pub(super) fn has_limit(&self) -> bool {
        self.rate_limit.is_set() || self.plans.is_set() || self.concurrency.is_set()
    }

    /// The keys about the enforcement of the descriptor's own limits, with their positions where they say something else
    /// than what holds anyway.
    fn own_limits(&self) -> [(&'static str, Option<Mark>); 6] {
        let counting = &self.counting;
        [
            ("shadow_mode", self.shadow_mode.key_unless(&false)),
            ("quota_mode", self.quota_mode.key_unless(&false)),
            ("enabled", self.enabled.key_unless(&true)),
            ("enforce", self.enforce.key_unless(&Enforce::ALL)),
            ("count_denied", counting.count_denied.key_unless(&false)),
            (
                "on_store_failure",
                counting.on_store_failure.key_unless(&FailureMode::Local),
            ),
        ]
    }
}

/// The rules of one descriptor.
#[derive(Default)]
pub(super) struct NodeRules {
    pub(super) default: Vec<RuleIndex>,
    pub(super) by_plan: Vec<(PlanIndex, Box<[RuleIndex]>)>,
    /// The concurrency limit, which is in each of the lists.
    pub(super) permits: Option<RuleIndex>,
}

/// The part that the default plan's limits of a descriptor have in `replaces`; those of other plans take their place there too.
struct PlaceTaken {
    /// The name, of a single limit.
    name: Option<Box<str>>,
    replaces: Vec<At<Box<str>>>,
}

impl PlaceTaken {
    fn of(limits: &[BuiltLimit]) -> Self {
        let replaces = limits.iter().flat_map(|limit| &limit.replaces);
        Self {
            name: match limits {
                [only] => only.name.clone(),
                _ => None,
            },
            replaces: replaces.cloned().collect(),
        }
    }

    fn inherit(&self, limits: &mut [BuiltLimit]) {
        if let [only] = limits {
            only.name = only.name.take().or_else(|| self.name.clone());
        }
        for limit in limits {
            limit.replaces.clone_from(&self.replaces);
        }
    }
}

impl Compiler<'_, '_, '_> {
    /// Compiles all rules of one descriptor, whose mapping starts at `start`.
    pub(super) fn limits(&mut self, keys: &mut Keys, start: Mark, path: &Path) -> NodeRules {
        let policy = self.policy(keys);
        let around = LimitDefaults {
            policy: &policy,
            algorithm: self.around.profile.algorithm(),
        };
        let rate = keys.rate_limit.get();
        let mut limits = PlanLimits {
            limits: rate
                .map(|node| parse_limits::<RateLimit>(node, around, self.report))
                .unwrap_or_default(),
            is_list: rate.is_some_and(|node| node.as_list().is_some()),
        };
        let plans = keys.plans.get();
        let plans = plans
            .map(|node| parse_plans(node, self.around.plans, around, self.report))
            .unwrap_or_default();
        let plans = self.default_plan(plans, keys, start, &mut limits);
        let names = PlaceTaken::of(&limits.limits);
        let concurrency = keys.concurrency.take();
        let concurrency =
            concurrency.and_then(|keys| build_concurrency(*keys, &policy, self.report));
        if limits.limits.is_empty() && concurrency.is_none() && plans.is_empty() {
            self.check_no_policy(keys);
        }
        let mut owner = Owner {
            path,
            id: read_id(&mut keys.id, self.report),
            shadow: keys.shadow_mode.copied().unwrap_or_default(),
            quota_mode: keys.quota_mode.copied().unwrap_or_default(),
            detailed_metric: keys.detailed_metric.copied().unwrap_or_default(),
            value_to_metric: keys.value_to_metric.copied().unwrap_or_default(),
            metadata: keys.metadata.take().map(Arc::new),
            plan: None,
            policy,
        };
        let first = self.rules.len();
        let defaults = RegionsOfWindow::of(&limits.limits);
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
        for (plan, mut limits) in plans {
            names.inherit(&mut limits.limits);
            for limit in &mut limits.limits {
                RegionsOfWindow::share(&defaults, limit);
            }
            let own = self.rules_of_plan(plan, limits, &mut owner);
            rules.by_plan.push((plan, own.chain(permits).collect()));
        }
        rules
    }

    /// The policy of a descriptor's own limits: its keys, and what holds around it.
    fn policy(&mut self, keys: &Keys) -> Policy {
        let own = Policy {
            algorithm: keys.algorithm.copied(),
            enabled: keys.enabled.copied(),
            enforce: keys.enforce.copied(),
            ..Policy::of_counting(&keys.counting, self.report)
        };
        own.within(self.around.policy)
    }

    /// Adds the rules that a plan has in place of the default plan's, and returns their places.
    fn rules_of_plan(
        &mut self,
        plan: PlanIndex,
        limits: PlanLimits,
        owner: &mut Owner<'_>,
    ) -> impl Iterator<Item = RuleIndex> + use<> {
        let name = self.around.plans.get(plan.get());
        owner.plan = name.map(|name| Arc::from(&**name));
        let first = self.rules.len();
        self.rules_of(limits.limits, limits.is_list, owner);
        indexes(first..self.rules.len())
    }

    /// Adds one rule for each limit; in a list, the window becomes the id's suffix.
    pub(in crate::parse) fn rules_of(
        &mut self,
        limits: Vec<BuiltLimit>,
        is_list: bool,
        owner: &Owner<'_>,
    ) {
        let suffixes = suffixes(&limits, is_list);
        for (limit, suffix) in limits.into_iter().zip(suffixes) {
            self.rule(limit, suffix, owner);
        }
    }

    /// Warns of keys that act on the limits of their own descriptor, where that has none but those below.
    fn check_no_policy(&mut self, keys: &Keys) {
        if keys.has_limit() || !keys.descriptors.is_set() {
            return;
        }
        for (key, mark) in keys.own_limits() {
            let Some(mark) = mark else {
                continue;
            };
            let message = format!(
                "`{key}` acts on the limits of its own descriptor, which has none: it has no effect on those below"
            );
            let help = format!("write `{key}` beside each `rate_limit` that it is meant for");
            self.report.warn(mark, message, help);
        }
    }

    /// `rate_limit:` and `rate_limit: null` mean no limit, but the parser of envoyproxy/ratelimit
    /// reads the other spellings of null as a limit without keys.
    pub(super) fn check_null(&mut self, fields: &Fields<'_>) {
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
        keys: &Keys,
        start: Mark,
        limits: &mut PlanLimits,
    ) -> Vec<(PlanIndex, PlanLimits)> {
        let has_rate_limit = keys.rate_limit.is_set();
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
                let mark = keys.plans.key().unwrap_or(start);
                limits.limits.push(BuiltLimit::unlimited(mark));
            }
            None => {}
        }
        plans.others
    }

    fn rule(&mut self, mut limit: BuiltLimit, suffix: Option<String>, owner: &Owner<'_>) {
        let place = self.report.place(limit.mark);
        let own_id = limit.id.take().map(|id| (id, None));
        let explicit = own_id.or_else(|| owner.id.clone().map(|id| (id, suffix.clone())));
        self.drafts.push(Draft {
            file: self.around.file,
            mark: explicit.as_ref().map_or(limit.mark, |(id, _)| id.mark),
            name: RuleName {
                explicit: explicit.map(|(id, suffix)| (id.value, suffix)),
                domain: Arc::clone(self.around.domain),
                path: owner.path.shown.as_slice().into(),
                plan: owner.plan.clone(),
                suffix: suffix.map(Into::into),
            },
            // Those of a plan are the default plan's, which are checked there.
            replaces: match owner.plan {
                Some(_) => Vec::new(),
                None => limit.replaces.iter().map(|at| at.mark).collect(),
            },
        });
        let policy = std::mem::take(&mut limit.policy).within(&owner.policy);
        self.check_leaky(&limit.limit, &policy, limit.mark);
        self.check_leased(&limit.limit, &policy, limit.mark);
        self.check_count_denied(&limit.limit, &policy, limit.mark);
        let counted = self.synced(limit.limit, &policy, limit.mark);
        let replaces = std::mem::take(&mut limit.replaces);
        limit.limit = counted;
        let around = self.around;
        let base = policy.rule(around.domain, (around.profile, around.on_store_failure));
        let share = share(&limit.limit, &base, around.region);
        let share = share.unwrap_or_else(|(message, help)| {
            self.report.error(limit.mark, message, help);
            None
        });
        // `id::assign` fills in the id once all rules are known.
        self.rules.push(Rule {
            path: owner.path.composites.as_slice().into(),
            replaces: replaces.into_iter().map(|at| at.value).collect(),
            shadow: owner.shadow,
            quota_mode: owner.quota_mode,
            detailed_metric: owner.detailed_metric,
            value_to_metric: owner.value_to_metric,
            metadata: owner.metadata.clone(),
            plan: owner.plan.clone(),
            is_global: !owner.path.counts_each,
            share,
            ..limit.into_rule(place, base)
        });
    }

    /// Refuses leases where the limit bears none, and warns where it is too small for them.
    fn check_leased(&mut self, limit: &RuleLimit, policy: &Policy, mark: Mark) {
        let RuleLimit::Limited(limit) = limit else {
            return;
        };
        if policy.consistency != Some(Consistency::Leased) {
            return;
        }
        let counts_denied = policy.counts_denied(self.around.profile);
        let lease = policy.lease_time.unwrap_or(LEASE);
        let message = match Terms::try_new(limit, lease) {
            // Who leases a whole domain need not know of each limit.
            Err(Unleasable::TooSmall) if self.around.policy.consistency == policy.consistency => {
                return;
            }
            Err(Unleasable::TooSmall) => {
                let message = "`consistency: leased` changes nothing here: a limit this small is counted exactly";
                let help = "write `consistency: exact`";
                return self.report.warn(mark, message, help);
            }
            Err(why) => format!("`consistency: leased` is not possible here: {why}"),
            Ok(_) if counts_denied => {
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
        let counts_denied = policy.counts_denied(self.around.profile) && !spec.is_post_paid();
        let (why, help) = match SyncTerms::try_new(spec, policy.sync_interval) {
            Ok(_) if counts_denied => (
                "nodes do not exchange denied hits, so `count_denied` cannot be used".to_owned(),
                "write `count_denied: false`, or `consistency: exact`".to_owned(),
            ),
            Ok(terms) => return RuleLimit::Limited(*terms.limit()),
            Err(why) => (why.to_string(), help_to_sync(why)),
        };
        let message = format!("`consistency: synced` is not possible here: {why}");
        self.report.error(mark, message, help);
        limit
    }

    /// Warns where a look at what is used up passes, although denied requests are counted.
    fn check_count_denied(&mut self, limit: &RuleLimit, policy: &Policy, mark: Mark) {
        let RuleLimit::Limited(limit) = limit else {
            return;
        };
        let forgets = limit.forgets_excess() && !limit.is_post_paid();
        if policy.count_denied == Some(true) && forgets {
            let message = format!(
                "`count_denied` fills a {} and no more: a request of 0 hits still passes when nothing is left",
                limit.algorithm().name()
            );
            let help =
                "if requests are charged after they were let in, write `post_paid: true` instead";
            self.report.warn(mark, message, help.to_owned());
        }
    }

    fn check_leaky(&mut self, limit: &RuleLimit, policy: &Policy, mark: Mark) {
        let leaky = matches!(limit, RuleLimit::Limited(limit) if limit.algorithm().has_turns());
        if leaky && policy.leaky_over_rls == Some(LeakyOverRls::Allow) {
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
        Unsyncable::WindowTooShort
        | Unsyncable::Uncut(_)
        | Unsyncable::Algorithm(
            Algorithm::FixedWindow
            | Algorithm::SlidingWindow
            | Algorithm::SlidingLog
            | Algorithm::LeakyBucket
            | Algorithm::Concurrency,
        ) => "write `consistency: exact`".to_owned(),
    }
}

/// The indexes of rules, of which there are far fewer than 2^32: files are bounded.
fn indexes(rules: Range<usize>) -> impl Iterator<Item = RuleIndex> {
    rules.filter_map(|at| u32::try_from(at).ok().map(RuleIndex))
}
