//! From a request to the steps that a store decides, and from the store's verdicts to statuses.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Mode, Timestamp};
use ratekeeper_rules::{Domain, Entry, Evaluation, Profile, Rule, RuleIndex, Visit, Walk, secret};
use ratekeeper_store::{Charge, FullMode, RuleSlot, Step, Verdicts};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;

use crate::Snapshot;
use crate::compiled::Compiled;
use crate::decision::{Answered, Binding, Code, Source, Status, Statuses};
use crate::identity::{Namer, Naming, stable_hash};
use crate::request::{Check, Descriptor, MAX_HITS, Override, Waiting};
use crate::stats::{Answer, Totals};

/// The limits that a request brings along, one place for each descriptor.
pub(crate) type Overrides = SmallVec<[Option<Limit>; 2]>;

/// The limits that the descriptors of `check` bring along, counted as `profile` counts by
/// default. Empty if there are none.
pub(crate) fn overrides(check: &Check<'_>, profile: Profile) -> Overrides {
    if check
        .descriptors
        .iter()
        .all(|descriptor| descriptor.limit.is_none())
    {
        return Overrides::new();
    }
    let algorithm = match profile {
        Profile::Envoy => Algorithm::FixedWindow,
        Profile::Ratekeeper => Algorithm::SlidingWindow,
    };
    let limit = |Override { quota, unit }: Override| {
        let quota = quota.min(ratekeeper_core::MAX_COUNT);
        // Cannot fail: every unit is a second or longer, the quota is in range.
        Limit::try_new(LimitSpec::new(algorithm, quota, unit.window())).ok()
    };
    check
        .descriptors
        .iter()
        .map(|descriptor| descriptor.limit.and_then(limit))
        .collect()
}

/// What a check looks things up in.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) namer: &'a Namer,
    pub(crate) totals: &'a Totals,
    pub(crate) profile: Profile,
    pub(crate) now: Timestamp,
}

/// The steps of a request, with what is needed to read their outcomes.
pub(crate) struct Plan<'a> {
    context: Context<'a>,
    waiting: Waiting,
    descriptors: u16,
    pub(crate) steps: SmallVec<[Step<'a>; 4]>,
    /// Where the limit of each step came from; as long as `steps`, which are the store's.
    sources: SmallVec<[Source; 4]>,
    unlimited: SmallVec<[(u16, RuleIndex); 2]>,
    /// By step, for the few rules whose metrics tell values apart.
    details: Vec<(usize, String)>,
}

/// A descriptor, as far as it has been walked.
struct Matched<'a, 'c> {
    domain: &'a Domain,
    number: u16,
    descriptor: &'c Descriptor<'c>,
    /// The entries whose limits are being looked at, and the nodes that they matched: none if
    /// the request brings its own limit.
    entries: &'c [Entry<'c>],
    visits: &'c [Visit<'a>],
    /// The names of the counters of `entries`.
    naming: &'c Naming,
    /// Which of `entries` is the subject.
    subject: usize,
    /// The first half of the names.
    subject_name: u64,
}

impl<'a> Plan<'a> {
    /// Matches every descriptor of `check`. A domain without rules gives no steps.
    pub(crate) fn new(context: Context<'a>, check: &Check<'_>, overrides: &'a Overrides) -> Self {
        let descriptors = u16::try_from(check.descriptors.len()).unwrap_or(u16::MAX);
        let mut plan = Self {
            context,
            waiting: check.waiting,
            descriptors,
            steps: SmallVec::new(),
            sources: SmallVec::new(),
            unlimited: SmallVec::new(),
            details: Vec::new(),
        };
        let Some(domain) = context.snapshot.domain(check.domain) else {
            context
                .totals
                .unknown_domain
                .fetch_add(1, Ordering::Relaxed);
            return plan;
        };
        for (number, descriptor) in (0..descriptors).zip(check.descriptors) {
            let own = overrides.get(usize::from(number)).and_then(Option::as_ref);
            plan.add(domain, number, descriptor, own);
        }
        if context.snapshot.has_replaces {
            plan.drop_replaced();
        }
        plan
    }

    fn add(
        &mut self,
        domain: &'a Domain,
        number: u16,
        descriptor: &Descriptor<'_>,
        own: Option<&'a Limit>,
    ) {
        let entries = descriptor.entries;
        let tenant = match domain.tenant() {
            Some(tenant) => entries
                .iter()
                .position(|entry| entry.key == tenant)
                .unwrap_or(0),
            None => 0,
        };
        let walk = if own.is_some() {
            Walk::default()
        } else {
            domain.walk(entries)
        };
        let mut naming = self.context.namer.descriptor();
        let before = (self.steps.len(), self.unlimited.len());
        for (depth, entry) in (1..).zip(entries) {
            let visits = walk.get(..depth).unwrap_or_default();
            let visit = visits.last();
            naming.add(entry, visit);
            let is_leaf = depth == entries.len();
            let rules = match visit {
                Some(visit) if is_leaf || domain.evaluation() == Evaluation::Path => {
                    visit.node.rules()
                }
                None if own.is_none() => break,
                _ => &[],
            };
            let own = own.filter(|_| is_leaf);
            if rules.is_empty() && own.is_none() {
                continue;
            }
            let subject = if tenant < depth { tenant } else { 0 };
            let named = match rules.first() {
                Some(index) => self.context.snapshot.compiled(*index).domain,
                None => self.context.namer.domain(domain.name()),
            };
            let matched = Matched {
                domain,
                number,
                descriptor,
                entries: &entries[..depth],
                visits,
                naming: &naming,
                subject,
                subject_name: named.subject(&entries[subject], visits.get(subject)),
            };
            rules
                .iter()
                .for_each(|index| self.add_rule(&matched, *index));
            if let Some(limit) = own {
                self.add_override(&matched, limit);
            }
        }
        if before == (self.steps.len(), self.unlimited.len()) {
            self.context
                .totals
                .unmatched
                .fetch_add(1, Ordering::Relaxed);
        }
    }

    fn add_rule(&mut self, matched: &Matched<'a, '_>, index: RuleIndex) {
        let Context { snapshot, now, .. } = self.context;
        let rule = snapshot.rules().rule(index);
        let compiled = snapshot.compiled(index);
        if !rule.enabled {
            return;
        }
        let Some(made) = &compiled.limit else {
            self.unlimited.push((matched.number, index));
            return;
        };
        let limit = made.get(self.waiting);
        if limit.algorithm() == Algorithm::Concurrency {
            self.context
                .totals
                .concurrency_skipped
                .fetch_add(1, Ordering::Relaxed);
            return;
        }
        let enforced = rule.enforce.is_all() || {
            let subject = matched.entries[matched.subject].value;
            rule.enforce.covers(stable_hash(&rule.id, subject))
        };
        if rule.detailed_metric
            || matched
                .visits
                .iter()
                .any(|visit| visit.node.value_to_metric())
        {
            self.details.push((self.steps.len(), matched.detail(rule)));
        }
        self.sources.push(Source::Rule(index));
        self.steps.push(Step {
            key: matched.naming.counter(matched.subject_name, made.identity),
            limit,
            calendar: rule.calendar.as_ref().map(|calendar| calendar.bounds(now)),
            hits: matched.hits(),
            charge: compiled.charge,
            descriptor: matched.number,
            shadow: rule.shadow || !enforced,
            quota_mode: rule.quota_mode || snapshot.modes.quota,
            rule: compiled.slot,
            full_mode: compiled.full_mode,
        });
    }

    fn add_override(&mut self, matched: &Matched<'a, '_>, limit: &'a Limit) {
        let Context {
            snapshot,
            namer,
            profile,
            ..
        } = self.context;
        let domain = matched.domain.name();
        let identity = namer.limit(domain, limit, None);
        self.sources.push(Source::Override);
        self.steps.push(Step {
            key: matched.naming.counter(matched.subject_name, identity),
            limit,
            calendar: None,
            hits: matched.hits(),
            charge: match profile {
                Profile::Envoy => Charge::Always,
                Profile::Ratekeeper => Charge::IfAllowed,
            },
            descriptor: matched.number,
            shadow: false,
            quota_mode: snapshot.modes.quota,
            rule: RuleSlot(u16::MAX),
            full_mode: FullMode::Allow,
        });
    }

    /// Takes out every limit whose name another matched rule of the request replaces.
    fn drop_replaced(&mut self) {
        let rules = self.context.snapshot.rules();
        let matched = self.sources.iter().filter_map(|source| match source {
            Source::Rule(index) => Some(*index),
            Source::Override => None,
        });
        let matched: SmallVec<[RuleIndex; 8]> = matched
            .chain(self.unlimited.iter().map(|(_, index)| *index))
            .collect();
        let replaced = |index: RuleIndex| {
            let Some(name) = &rules.rule(index).name else {
                return false;
            };
            let others = matched.iter().filter(|other| **other != index);
            others
                .flat_map(|other| &rules.rule(*other).replaces)
                .any(|replaced| replaced == name)
        };
        let keep = |source: &Source| !matches!(source, Source::Rule(index) if replaced(*index));
        let kept: SmallVec<[bool; 8]> = self.sources.iter().map(keep).collect();
        let mut place = 0;
        self.details
            .retain(|(step, _)| kept.get(*step).copied().unwrap_or(false));
        for (step, _) in &mut self.details {
            *step = kept[..*step].iter().filter(|kept| **kept).count();
        }
        self.steps.retain(|_| {
            place += 1;
            kept[place - 1]
        });
        self.sources.retain(|source| keep(source));
        self.unlimited.retain(|(_, index)| !replaced(*index));
    }

    /// What bears on the combined answer besides the steps.
    pub(crate) fn mode(&self) -> Mode {
        let modes = self.context.snapshot.modes;
        Mode {
            shadow: modes.shadow,
            idle_quota: modes.quota && self.has_idle_descriptor(),
        }
    }

    /// Whether a descriptor has no limit at all, not even the one that lets everything pass:
    /// with every descriptor in quota mode, the incumbent takes it for one that is not over.
    fn has_idle_descriptor(&self) -> bool {
        (0..self.descriptors).any(|number| {
            let limited = self.steps.iter().any(|step| step.descriptor == number);
            !limited
                && !self
                    .unlimited
                    .iter()
                    .any(|(descriptor, _)| *descriptor == number)
        })
    }

    /// What the limit answered that `source` put in for descriptor `number`, if it has one.
    pub(crate) fn answered<'p>(
        &'p self,
        number: u16,
        source: Source,
        verdicts: &'p Verdicts,
    ) -> Option<(&'p Step<'a>, Answered)> {
        let mut answers = self.answers(verdicts);
        let found = answers.find(|(step, from, _)| step.descriptor == number && *from == source);
        found.map(|(step, _, answered)| (step, answered))
    }

    /// Whether `rule` lets everything of descriptor `number` pass.
    pub(crate) fn is_unlimited(&self, number: u16, rule: RuleIndex) -> bool {
        self.unlimited.contains(&(number, rule))
    }

    /// Every limit, where it came from, and what it answered.
    fn answers<'p>(
        &'p self,
        verdicts: &'p Verdicts,
    ) -> impl Iterator<Item = (&'p Step<'a>, Source, Answered)> {
        let places = self.steps.iter().zip(&self.sources);
        places
            .zip(&verdicts.outcomes)
            .map(|((step, source), outcome)| {
                (
                    step,
                    *source,
                    Answered::new(*outcome, step, verdicts.allowed),
                )
            })
    }

    /// Counts what each limit answered, shows it to `each`, and folds the limits of each
    /// descriptor into its status.
    pub(crate) fn fill(
        &self,
        verdicts: &Verdicts,
        statuses: &mut Statuses,
        mut each: impl FnMut(&Step<'_>, Source, Answered),
    ) {
        statuses.resize(usize::from(self.descriptors), Status::NONE);
        for (number, (step, source, answered)) in self.answers(verdicts).enumerate() {
            self.record(number, &answered);
            each(step, source, answered);
            let binding = Binding {
                source,
                quota: step.limit.quota(),
                window: step.limit.window(),
                unit: self.unit(number),
                shadow: step.shadow,
                answered,
            };
            statuses[usize::from(step.descriptor)].add(binding);
        }
        for (descriptor, index) in &self.unlimited {
            let status = &mut statuses[usize::from(*descriptor)];
            // On a path, another node may limit what this one does not.
            if status.binding.is_none() {
                status.unlimited = Some(*index);
            }
        }
    }

    fn unit(&self, number: usize) -> Option<ratekeeper_rules::Unit> {
        match self.sources[number] {
            Source::Rule(index) => self.context.snapshot.rules().rule(index).unit,
            Source::Override => {
                ratekeeper_rules::Unit::from_window(self.steps[number].limit.window())
            }
        }
    }

    fn record(&self, number: usize, answered: &Answered) {
        let Source::Rule(index) = self.sources[number] else {
            return;
        };
        let step = &self.steps[number];
        let Compiled { stats, .. } = self.context.snapshot.compiled(index);
        let answer = match (answered.fits(), step.shadow) {
            (true, _) => Answer::Allowed,
            (false, false) => Answer::Denied,
            (false, true) => Answer::ShadowDenied,
        };
        if !answered.counted {
            return stats.record_uncounted(answer);
        }
        let capacity = step.limit.capacity();
        stats.record(answer, answered.remaining, capacity);
        if let Some((_, detail)) = self.details.iter().find(|(step, _)| *step == number) {
            stats.record_detail(detail, answer, answered.remaining, capacity);
        }
    }
}

impl Status {
    /// Takes another limit of the descriptor in.
    fn add(&mut self, binding: Binding) {
        let answered = &binding.answered;
        if !answered.fits() && !binding.shadow {
            self.code = Code::OverLimit;
        }
        self.delay = self.delay.max(answered.delay);
        self.degraded |= !answered.counted;
        if self.binding.is_none_or(|kept| binding.rank() < kept.rank()) {
            self.binding = Some(binding);
        }
    }
}

impl Matched<'_, '_> {
    fn hits(&self) -> i64 {
        self.descriptor.hits.clamp(-MAX_HITS, MAX_HITS)
    }

    /// What tells this request's values apart in metrics: the whole descriptor with
    /// `detailed_metric`, else the nodes with the values of those that have `value_to_metric`.
    /// A shared pattern stays a pattern, a secret shows its fingerprint.
    fn detail(&self, rule: &Rule) -> String {
        let mut detail = String::new();
        for (entry, visit) in self.descriptor.entries.iter().zip(self.visits) {
            if !detail.is_empty() {
                detail.push('.');
            }
            let node = visit.node;
            if node.share_threshold() || !(rule.detailed_metric || node.value_to_metric()) {
                detail.push_str(node.pattern());
                continue;
            }
            detail.push_str(entry.key);
            if entry.value.is_empty() {
                continue;
            }
            detail.push('_');
            if self.domain.is_secret(entry.key) {
                detail.push_str(&secret::fingerprint(entry.value));
            } else {
                detail.push_str(entry.value);
            }
        }
        detail
    }
}
