//! From a request to the steps that a store decides; what becomes of them is in [`verdicts`].

mod verdicts;

use std::sync::atomic::Ordering;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Timestamp};
use ratekeeper_rules::{Domain, Entry, Evaluation, Profile, Rule, RuleIndex, Visit, secret};
use ratekeeper_store::{Charge, FullMode, Step, StoreSlot};
use smallvec::SmallVec;

use crate::Snapshot;
use crate::compiled::OVERRIDES;
use crate::decision::Source;
use crate::identity::{Naming, Seed, stable_hash};
use crate::request::{Check, Descriptor, MAX_HITS, Override, Waiting};
use crate::stats::Totals;
use crate::within::Spare;

/// The limits that are a request's own.
#[derive(Default)]
pub(crate) struct Overrides {
    /// Those that it brings along, one place for each descriptor; empty if there are none.
    brought: SmallVec<[Option<Limit>; 2]>,
    /// Those that are made for how long it can wait.
    spare: Spare,
}

/// The limits that the descriptors of `check` bring along, counted as `profile` counts by
/// default.
pub(crate) fn overrides(check: &Check<'_>, profile: Profile) -> Overrides {
    if check
        .descriptors
        .iter()
        .all(|descriptor| descriptor.limit.is_none())
    {
        return Overrides::default();
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
    let descriptors = check.descriptors.iter();
    Overrides {
        brought: descriptors
            .map(|descriptor| descriptor.limit.and_then(limit))
            .collect(),
        spare: Spare::default(),
    }
}

/// What a check looks things up in.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) totals: &'a Totals,
    pub(crate) profile: Profile,
    pub(crate) now: Timestamp,
    /// Whether concurrency limits take part: where permits come back, and in a peek.
    pub(crate) permits: bool,
}

/// The steps of a request, with what is needed to read their outcomes.
pub(crate) struct Plan<'a> {
    context: Context<'a>,
    waiting: Waiting,
    spare: &'a Spare,
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
    #[inline(always)] // The plan is large, and built where it is used.
    pub(crate) fn new(context: Context<'a>, check: &Check<'_>, overrides: &'a Overrides) -> Self {
        let descriptors = u16::try_from(check.descriptors.len()).unwrap_or(u16::MAX);
        let mut plan = Self {
            context,
            waiting: check.waiting,
            spare: &overrides.spare,
            descriptors,
            steps: SmallVec::new(),
            sources: SmallVec::new(),
            unlimited: SmallVec::new(),
            details: Vec::new(),
        };
        let common = context.snapshot.domain(check.domain);
        let mut is_known = common.is_some();
        for (number, descriptor) in (0..descriptors).zip(check.descriptors) {
            let domain = match descriptor.domain {
                None => common,
                Some(name) => context.snapshot.domain(name),
            };
            let Some(domain) = domain else {
                is_known = false;
                let asked = descriptor.domain_in(check.domain);
                context.totals.strays.note(asked, descriptor.entries);
                continue;
            };
            let own = overrides.brought.get(usize::from(number));
            let own = own.and_then(Option::as_ref);
            plan.add(domain, number, descriptor, own);
        }
        if !is_known {
            let unknown = &context.totals.unknown_domain;
            unknown.fetch_add(1, Ordering::Relaxed);
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
        let before = (self.steps.len(), self.unlimited.len());
        match own {
            Some(limit) => self.add_override(domain, number, descriptor, limit),
            None => self.add_matched(domain, number, descriptor),
        }
        if before == (self.steps.len(), self.unlimited.len()) {
            self.context
                .totals
                .unmatched
                .fetch_add(1, Ordering::Relaxed);
            let strays = &self.context.totals.strays;
            strays.note(domain.name(), descriptor.entries);
        }
    }

    fn add_matched(&mut self, domain: &'a Domain, number: u16, descriptor: &Descriptor<'_>) {
        let entries = descriptor.entries;
        let tenant = tenant(domain, entries);
        let walk = domain.walk(entries);
        let mut naming = self.context.snapshot.namer.descriptor();
        for (depth, (entry, visit)) in (1..).zip(entries.iter().zip(&*walk)) {
            naming.add(entry, Some(visit));
            let rules = visit.node.rules();
            let counts = depth == entries.len() || domain.evaluation() == Evaluation::Path;
            let Some(first) = rules.first().filter(|_| counts) else {
                continue;
            };
            let subject = if tenant < depth { tenant } else { 0 };
            let named = self.context.snapshot.compiled(*first).domain;
            let matched = Matched {
                domain,
                number,
                descriptor,
                entries: &entries[..depth],
                visits: &walk[..depth],
                naming: &naming,
                subject,
                subject_name: named.subject(&entries[subject], walk.get(subject)),
            };
            rules
                .iter()
                .for_each(|index| self.add_rule(&matched, *index));
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
        let limit = made.get(self.waiting, self.spare);
        let mut hits = hits(matched.descriptor);
        if limit.algorithm() == Algorithm::Concurrency {
            if !self.context.permits {
                self.context
                    .totals
                    .concurrency_skipped
                    .fetch_add(1, Ordering::Relaxed);
                return;
            }
            // One permit, whatever the request costs.
            hits = hits.signum();
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
            hits,
            charge: compiled.charge,
            descriptor: matched.number,
            shadow: rule.shadow || !enforced,
            quota_mode: rule.quota_mode || snapshot.modes.quota,
            rule: compiled.slot,
            store: compiled.store,
            full_mode: compiled.full_mode,
        });
    }

    /// A limit that the request brings along holds for the descriptor as it is, matched or not,
    /// even without entries.
    fn add_override(
        &mut self,
        domain: &Domain,
        number: u16,
        descriptor: &Descriptor<'_>,
        limit: &'a Limit,
    ) {
        let Context {
            snapshot, profile, ..
        } = self.context;
        let namer = &snapshot.namer;
        let entries = descriptor.entries;
        let mut naming = namer.descriptor();
        entries.iter().for_each(|entry| naming.add(entry, None));
        let none = Entry { key: "", value: "" };
        let subject = entries.get(tenant(domain, entries)).unwrap_or(&none);
        let subject = namer.domain(domain.name()).subject(subject, None);
        self.sources.push(Source::Override);
        self.steps.push(Step {
            key: naming.counter(subject, namer.limit(domain.name(), limit, None)),
            limit,
            calendar: None,
            hits: hits(descriptor),
            charge: match profile {
                Profile::Envoy => Charge::Always,
                Profile::Ratekeeper => Charge::IfAllowed,
            },
            descriptor: number,
            shadow: false,
            quota_mode: snapshot.modes.quota,
            rule: OVERRIDES,
            store: StoreSlot::default(),
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
        self.keep(&kept);
        // What is unlimited stays so, also where another rule replaces it, as the incumbent has it.
    }

    /// The secret that the counters of its steps were named by.
    pub(crate) fn seed(&self) -> Seed {
        self.context.snapshot.namer.seed()
    }

    /// Takes out every step but those that `is_kept` names.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&Step<'_>) -> bool) {
        let kept: SmallVec<[bool; 8]> = self.steps.iter().map(is_kept).collect();
        self.keep(&kept);
    }

    /// Takes out the steps that `kept` does not name, by their place.
    fn keep(&mut self, kept: &[bool]) {
        self.details
            .retain(|(step, _)| kept.get(*step).copied().unwrap_or(false));
        for (step, _) in &mut self.details {
            *step = kept[..*step].iter().filter(|kept| **kept).count();
        }
        let mut place = 0;
        self.steps.retain(|_| {
            place += 1;
            kept[place - 1]
        });
        place = 0;
        self.sources.retain(|_| {
            place += 1;
            kept[place - 1]
        });
    }
}

/// Which entry names the tenant; the first one if none does.
fn tenant(domain: &Domain, entries: &[Entry<'_>]) -> usize {
    let Some(tenant) = domain.tenant() else {
        return 0;
    };
    entries
        .iter()
        .position(|entry| entry.key == tenant)
        .unwrap_or(0)
}

fn hits(descriptor: &Descriptor<'_>) -> i64 {
    descriptor.hits.clamp(-MAX_HITS, MAX_HITS)
}

impl Matched<'_, '_> {
    /// What tells this request's values apart in metrics: the whole descriptor with
    /// `detailed_metric`, else the nodes with the values of those that have `value_to_metric`.
    /// A shared pattern stays a pattern, a secret shows its fingerprint.
    fn detail(&self, rule: &Rule) -> String {
        let mut detail = String::new();
        for (entry, visit) in self.entries.iter().zip(self.visits) {
            if !detail.is_empty() {
                detail.push('.');
            }
            let node = visit.node;
            let tells = rule.detailed_metric || node.value_to_metric();
            if tells && !node.share_threshold() && !entry.value.is_empty() {
                detail.push_str(entry.key);
                detail.push('_');
                match self.domain.is_secret(entry.key) {
                    true => detail.push_str(&secret::fingerprint(entry.value)),
                    false => detail.push_str(entry.value),
                }
            } else {
                detail.push_str(&self.domain.composite(node.key(), node.value()));
            }
        }
        detail
    }
}
