//! From the store's verdicts to answers and statistics.

use std::cmp::Reverse;

use ratekeeper_core::{Limit, Micros, Mode, Timestamp, combine, quota_denies};
use ratekeeper_rules::{FailureMode, RuleIndex, TenantHash, Unit};
use ratekeeper_store::{Charge, Step, Verdicts};

use super::Plan;
use crate::decision::{
    Answered, Binding, Code, DescriptorAnswer, DescriptorAnswers, Policies, Policy, ShadowDenial,
    ShadowDenials,
};
use crate::purpose::is_reserve;
use crate::stats::{RuleAnswer, RuleStats};
use crate::usage::{Counted, UsageMeter};
use crate::{LimitSource, Snapshot};

impl Plan {
    /// The mode that bears on the combined answer besides the steps.
    pub(crate) fn mode(&self, snapshot: &Snapshot) -> Mode {
        let modes = snapshot.modes;
        Mode {
            shadow: modes.shadow,
            idle_quota: modes.quota && self.has_idle_descriptor(),
            denied: false,
        }
    }

    /// The failure mode of each step's rule; a limit that came with the request has the default.
    pub(crate) fn failure_modes<'p>(
        &'p self,
        snapshot: &'p Snapshot,
    ) -> impl Iterator<Item = FailureMode> + 'p {
        let rules = snapshot.rules();
        self.sources.iter().map(|source| match source {
            LimitSource::Rule(index) => rules.rule(*index).on_store_failure,
            LimitSource::Override => FailureMode::default(),
            LimitSource::Own(mode) => *mode,
        })
    }

    /// Returns true if a descriptor has no limit at all, not even an unlimited one: with every
    /// descriptor in quota mode, envoyproxy/ratelimit treats it as one that is not over.
    fn has_idle_descriptor(&self) -> bool {
        let mut limited = vec![false; usize::from(self.descriptors)];
        let stepped = self.steps.iter().map(|step| step.descriptor);
        for number in stepped.chain(self.unlimited.iter().map(|(number, _)| *number)) {
            limited[usize::from(number)] = true;
        }
        limited.contains(&false)
    }

    /// The answer of the limit that `source` contributed for descriptor `number`, if there is one: of a budget that is counted
    /// in two places, that of the fuller one.
    pub(crate) fn answered<'p>(
        &'p self,
        snapshot: &'p Snapshot,
        number: u16,
        source: LimitSource,
        verdicts: &'p Verdicts,
    ) -> Option<(&'p Step, Answered)> {
        let answers = self.answers(snapshot, verdicts);
        let found = answers.filter(|(step, from, _)| step.descriptor == number && *from == source);
        let fuller = found
            .min_by_key(|(_, _, answered)| (answered.remaining, Reverse(answered.retry_after)));
        fuller.map(|(step, _, answered)| (step, answered))
    }

    /// Returns true if `rule` makes descriptor `number` unlimited.
    pub(crate) fn is_unlimited(&self, number: u16, rule: RuleIndex) -> bool {
        self.unlimited.contains(&(number, rule))
    }

    /// Every limit with its origin and its answer.
    pub(crate) fn answers<'p>(
        &'p self,
        snapshot: &'p Snapshot,
        verdicts: &'p Verdicts,
    ) -> impl Iterator<Item = (&'p Step, LimitSource, Answered)> {
        let places = self.steps.iter().zip(&self.sources);
        places
            .zip(&verdicts.outcomes)
            .map(|((step, source), outcome)| {
                let mut answered = Answered::new(*outcome, step, verdicts.allowed);
                if let Some(hint) = retry_hint(snapshot, step, *source) {
                    answered.hint(hint);
                }
                (step, *source, answered)
            })
    }

    /// Counts the answer of each limit, passes it to `each`, and folds the limits of each descriptor
    /// into its answer; those that are over and do not deny are `shadowed`.
    #[inline(always)] // As above: reading the verdicts where they lie.
    pub(crate) fn read(
        &self,
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        (answers, shadowed): (&mut DescriptorAnswers, &mut ShadowDenials),
        mut each: impl FnMut(&Step, &Answered),
    ) {
        (0..self.descriptors).for_each(|_| answers.push(DescriptorAnswer::NONE));
        let quota_denies = !verdicts.allowed && self.quota_denies(snapshot, verdicts);
        let mut details = self.details.iter().peekable();
        for (number, (step, source, answered)) in self.answers(snapshot, verdicts).enumerate() {
            // A limit denies if it is why the request was denied; else it only would have.
            let denies = !answered.fits()
                && !step.shadow
                && !verdicts.allowed
                && (!step.quota_mode || quota_denies);
            let detail = details.next_if(|(at, _)| *at == number);
            if let LimitSource::Rule(index) = source {
                let stats = &snapshot.compiled(index).stats;
                let detail = detail.map(|(_, detail)| detail);
                record(stats, step, &answered, denies, detail);
            }
            if !answered.fits() && !denies {
                let descriptor = step.descriptor;
                shadowed.push(ShadowDenial { descriptor, source });
            }
            each(step, &answered);
            let told = told(snapshot, step, source);
            let binding = Binding {
                source,
                quota: told.quota(),
                ceiling: told.ceiling(),
                window: step.limit.window(),
                unit: unit(snapshot, step, source),
                shadow: step.shadow,
                denies,
                answered,
            };
            let answer = &mut answers[usize::from(step.descriptor)];
            answer.add(binding);
            if !step.shadow && !snapshot.modes.shadow {
                answer.delay = answer.delay.max(answered.delay);
            }
        }
        for (descriptor, index) in &self.unlimited {
            let answer = &mut answers[usize::from(*descriptor)];
            // On a path, another node may limit what this one does not.
            if answer.binding.is_none() {
                answer.unlimited = Some(*index);
            }
        }
    }

    /// Counts the call for its tenants.
    pub(crate) fn meter(
        &self,
        snapshot: &Snapshot,
        verdicts: &Verdicts,
        now: Timestamp,
        meter: &UsageMeter,
    ) {
        let rules = snapshot.rules();
        for tenant in self.callers() {
            let limited = self.answers(snapshot, verdicts);
            let limited = limited.filter_map(|(step, source, answered)| {
                // A limit that had room is not why the request was denied.
                let answers = verdicts.allowed || (!answered.fits() && !step.shadow);
                let counted = match step.limit.is_post_paid() {
                    // What is charged was used, whatever the answer. What is reserved is counted once it is used.
                    true if step.charge == Charge::Always => {
                        Counted::Spent(step.hits.unsigned_abs())
                    }
                    true if answers => Counted::Spent(0),
                    false if answers => Counted::answered(verdicts.allowed),
                    _ => return None,
                };
                self.rule_of(tenant, step, source)
                    .map(|rule| (rule, counted))
            });
            let is_of = |number: u16| self.tenants.contains(&(number, tenant));
            let unlimited = self.unlimited.iter();
            let unlimited = unlimited.filter(|(number, _)| verdicts.allowed && is_of(*number));
            let unlimited = unlimited.map(|(_, rule)| (*rule, Counted::Allowed));
            let matched = limited.chain(unlimited);
            let matched = matched.map(|(rule, counted)| (rules.rule(rule), counted));
            meter.count(now, tenant, (rules, matched), Some(verdicts.allowed));
        }
    }

    /// Counts for its tenants the hits that the request used of every limit; the call itself was counted before.
    pub(crate) fn meter_spent(
        &self,
        snapshot: &Snapshot,
        hits: u64,
        now: Timestamp,
        meter: &UsageMeter,
    ) {
        let rules = snapshot.rules();
        for tenant in self.callers() {
            let steps = self.steps.iter().zip(&self.sources);
            let matched = steps.filter_map(|(step, source)| self.rule_of(tenant, step, *source));
            let matched = matched.map(|rule| (rules.rule(rule), Counted::Spent(hits)));
            meter.count(now, tenant, (rules, matched), None);
        }
    }

    /// The tenants of the request, each once.
    fn callers(&self) -> impl Iterator<Item = TenantHash> + '_ {
        let tenants = self.tenants.iter().enumerate();
        let first = tenants.filter(|(at, (_, tenant))| {
            let mut before = self.tenants[..*at].iter();
            !before.any(|(_, known)| known == tenant)
        });
        first.map(|(_, (_, tenant))| *tenant)
    }

    /// The rule of a step, if it limits the tenant.
    fn rule_of(&self, tenant: TenantHash, step: &Step, source: LimitSource) -> Option<RuleIndex> {
        match source {
            LimitSource::Rule(rule) => {
                let is_its = self.tenants.contains(&(step.descriptor, tenant));
                is_its.then_some(rule)
            }
            LimitSource::Override | LimitSource::Own(_) => None,
        }
    }

    /// Returns true if one of the leaky buckets may hold the request back.
    pub(crate) fn may_wait(&self, snapshot: &Snapshot) -> bool {
        let holds =
            |step: &Step| step.limit.algorithm().has_turns() && !step.shadow && step.hits > 0;
        !snapshot.modes.shadow && self.steps.iter().any(holds)
    }

    /// Returns true if one hit on each descriptor would pass, by the verdicts of a plan of peeks.
    pub(crate) fn would_allow(&self, snapshot: &Snapshot, verdicts: &Verdicts) -> bool {
        let votes = self.answers(snapshot, verdicts).map(|(step, _, answered)| {
            step.vote(answered.fits() && answered.retry_after.is_zero())
        });
        combine(votes, self.mode(snapshot))
    }

    /// Returns true if limits in quota mode are among the reasons for a denial.
    fn quota_denies(&self, snapshot: &Snapshot, verdicts: &Verdicts) -> bool {
        let votes = self.steps.iter().zip(&verdicts.outcomes);
        quota_denies(
            votes.map(|(step, outcome)| step.vote(outcome.fits())),
            self.mode(snapshot),
        )
    }

    /// The enforced limits that take part, each once, in the order of the descriptors.
    pub(crate) fn policies(&self, snapshot: &Snapshot) -> Policies {
        let mut policies = Policies::new();
        for (step, source) in self.steps.iter().zip(&self.sources) {
            let limit = told(snapshot, step, *source);
            let policy = Policy {
                source: *source,
                ceiling: limit.ceiling(),
                window: limit.window(),
                is_concurrency: limit.algorithm().holds_permits(),
            };
            if !step.shadow && !policies.contains(&policy) {
                policies.push(policy);
            }
        }
        policies
    }
}

/// The limit that callers are told: of one that regions share, all of it.
#[inline]
fn told<'a>(snapshot: &'a Snapshot, step: &'a Step, source: LimitSource) -> &'a Limit {
    let LimitSource::Rule(index) = source else {
        return &step.limit;
    };
    let rule = snapshot.rules().rule(index);
    match &rule.share {
        Some(_) => rule.limited().unwrap_or(&step.limit),
        None => &step.limit,
    }
}

/// The unit that the window is named by, if there is one.
fn unit(snapshot: &Snapshot, step: &Step, source: LimitSource) -> Option<Unit> {
    match source {
        LimitSource::Rule(index) => snapshot.rules().rule(index).unit,
        LimitSource::Override | LimitSource::Own(_) => Unit::from_window(step.limit.window()),
    }
}

/// The wait that a concurrency limit's rule suggests before a retry: it is unknown when a permit
/// comes back.
fn retry_hint(snapshot: &Snapshot, step: &Step, source: LimitSource) -> Option<Micros> {
    if !step.limit.algorithm().holds_permits() {
        return None;
    }
    match source {
        LimitSource::Rule(index) => snapshot.rules().rule(index).retry_after,
        LimitSource::Override | LimitSource::Own(_) => None,
    }
}

/// Counts the answer of a rule.
fn record(
    stats: &RuleStats,
    step: &Step,
    answered: &Answered,
    denies: bool,
    detail: Option<&String>,
) {
    let answer = match (answered.fits(), denies) {
        (true, _) => RuleAnswer::Allowed,
        (false, true) => RuleAnswer::Denied,
        (false, false) => RuleAnswer::ShadowDenied,
    };
    if !answered.counted {
        return stats.record_uncounted(answer);
    }
    let capacity = step.limit.capacity();
    // What a region has borrowed is beyond its own.
    let remaining = answered.remaining.min(capacity);
    stats.record(answer, remaining, capacity);
    if answered.cut > 0 && !is_reserve(step) {
        stats.record_cut(answered.cut);
    }
    if let Some(detail) = detail {
        stats.record_detail(detail, answer, remaining, capacity);
    }
}

impl DescriptorAnswer {
    /// Folds another limit of the descriptor into its answer.
    fn add(&mut self, binding: Binding) {
        let answered = &binding.answered;
        if !answered.fits() && !binding.shadow {
            self.code = Code::OverLimit;
        }
        self.degraded |= !answered.counted;
        if self.binding.is_none_or(|kept| binding.rank() < kept.rank()) {
            self.binding = Some(binding);
        }
    }
}
