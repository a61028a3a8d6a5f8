//! From a request to the steps that a store decides; their outcomes are read in [`outcomes`].

mod alone;
mod brought;
mod outcomes;

use ratekeeper_core::{Limit, Micros, Timestamp};
use ratekeeper_rules::{Domain, Entry, Evaluation, Profile, Rule, RuleIndex, TenantHash, Visit};
use ratekeeper_store::{CounterKey, Step};
use smallvec::SmallVec;

use crate::growth::GrowthWatch;
use crate::identity::{LimitIdentity, Naming, UnhashedName, Unhasher, stable_hash};
use crate::purpose::{BudgetUse, Purpose};
use crate::request::{BroughtLimit, Check, Descriptor};
use crate::stats::shortened;
use crate::switch::RuleMode;
use crate::totals::Missed;
use crate::{LimitSource, Snapshot, Waiting};
use brought::limit_of;

/// Rules, time and options that a check is matched by.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) profile: Profile,
    pub(crate) now: Timestamp,
    pub(crate) purpose: Purpose,
    pub(crate) waiting: Waiting,
    pub(crate) budgets: BudgetUse,
}

/// The steps of a request, with what is needed to read their outcomes by the same snapshot. It
/// borrows nothing, so that a request whose store answers later is matched once.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    descriptors: u16,
    pub(crate) steps: SmallVec<[Step; 4]>,
    /// The origin of each step's limit; as long as `steps`.
    pub(crate) sources: SmallVec<[LimitSource; 4]>,
    /// The unhashed names of the counters, while the hash key is not known; else none.
    pub(crate) unhashed: Vec<UnhashedName>,
    unlimited: SmallVec<[(u16, RuleIndex); 2]>,
    /// Metric labels by step, for the few rules whose metrics tell values apart.
    details: Vec<(usize, String)>,
    /// The tenants of the descriptors that cost something and name one in a domain that knows tenants.
    tenants: SmallVec<[(u16, TenantHash); 1]>,
    pub(crate) missed: Missed,
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
    /// The index in `entries` of the subject.
    subject: usize,
    /// The first half of the names.
    subject_name: u64,
    /// The epoch of the tenant's usage.
    epoch: u32,
    /// True of a limit that the tenant has alone: it shares no counter with others of a pattern.
    is_own: bool,
}

impl Plan {
    /// Matches every descriptor of `check` into a plan that is empty so far; a plan is large, so it is
    /// filled in place. A domain without rules gives no steps.
    #[inline]
    pub(crate) fn fill(&mut self, context: &Context<'_>, check: &Check<'_>) {
        let descriptors = check.descriptors();
        self.descriptors = u16::try_from(descriptors.len()).unwrap_or(u16::MAX);
        let common = context.snapshot.domain(check.domain);
        self.missed.unknown_domain = common.is_none() && self.descriptors == 0;
        for (number, descriptor) in (0..self.descriptors).zip(descriptors) {
            let domain = match descriptor.terms.domain {
                None => common,
                Some(name) => context.snapshot.domain(name),
            };
            match (domain, descriptor.terms.limit) {
                (_, Some(BroughtLimit::Own(own))) => {
                    self.add_own(context, number, &descriptor, own);
                }
                (Some(domain), _) => self.add(context, domain, number, &descriptor),
                (None, _) => {
                    self.missed.unknown_domain = true;
                    self.missed.stray.get_or_insert(number);
                }
            }
        }
        if context.snapshot.has_replaces {
            self.drop_replaced(context.snapshot);
        }
    }

    fn add(
        &mut self,
        context: &Context<'_>,
        domain: &Domain,
        number: u16,
        descriptor: &Descriptor<'_>,
    ) {
        let before = (self.steps.len(), self.unlimited.len());
        let own = match descriptor.terms.limit {
            Some(BroughtLimit::Override(own)) => limit_of(own, context.profile),
            Some(BroughtLimit::Own(_)) | None => None,
        };
        match own {
            Some(limit) => self.add_override(context, domain, number, descriptor, limit),
            None => self.add_matched(context, domain, number, descriptor),
        }
        if before == (self.steps.len(), self.unlimited.len()) {
            self.missed.unmatched += 1;
            self.missed.stray.get_or_insert(number);
        }
    }

    fn add_matched(
        &mut self,
        context: &Context<'_>,
        domain: &Domain,
        number: u16,
        descriptor: &Descriptor<'_>,
    ) {
        let entries = descriptor.entries;
        let tenant = domain.tenant_at(entries).unwrap_or(0);
        let walk = domain.walk(entries);
        let subscription = domain.subscription(entries, context.now);
        if let Some(tenant) = subscription.tenant() {
            // Looking at limits, and giving back, are no calls.
            if context.purpose.hits(descriptor.terms.clamped()) > 0 {
                self.tenants.push((number, tenant));
            }
        }
        let mut naming = context.snapshot.namer.descriptor();
        for (depth, (entry, visit)) in (1..).zip(entries.iter().zip(&*walk)) {
            naming.add(entry, Some(visit));
            let counts = depth == entries.len() || domain.evaluation() == Evaluation::Path;
            if !counts {
                continue;
            }
            let in_force = subscription.rules(&entries[..depth], &walk[..depth]);
            let Some(first) = in_force.first() else {
                continue;
            };
            let subject = if tenant < depth { tenant } else { 0 };
            let named = context.snapshot.compiled(first).domain;
            let mut matched = Matched {
                domain,
                number,
                descriptor,
                entries: &entries[..depth],
                visits: &walk[..depth],
                naming: &naming,
                subject,
                subject_name: named.subject(&entries[subject], walk.get(subject)),
                epoch: subscription.epoch(),
                is_own: in_force.is_override,
            };
            let own_naming;
            if in_force.is_override {
                // Others may share a counter by a pattern; the tenant's own limit is its own.
                own_naming = alone::naming(context.snapshot, &entries[..depth], &walk, subject);
                matched.naming = &own_naming;
                matched.subject_name = named.subject(&entries[subject], None);
            }
            in_force
                .iter()
                .for_each(|index| self.add_rule(context, &matched, index));
        }
        if subscription.has_overrides() && entries.get(walk.len()).is_some() {
            self.add_unruled(context, &subscription, &walk, number, descriptor);
        }
    }

    fn add_rule(&mut self, context: &Context<'_>, matched: &Matched<'_, '_>, index: RuleIndex) {
        let Context { snapshot, now, .. } = *context;
        let rule = snapshot.rules().rule(index);
        let compiled = snapshot.compiled(index);
        if compiled.mode == RuleMode::Disabled {
            return;
        }
        let Some(made) = &compiled.limit else {
            self.unlimited.push((matched.number, index));
            return;
        };
        let mut own = None;
        let limit = made.get(context.waiting, &mut own);
        let Some(hits) = context
            .purpose
            .hits_of(limit, matched.descriptor.terms.clamped())
        else {
            self.missed.concurrency_skipped += 1;
            return;
        };
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
            self.details
                .push((self.steps.len(), matched.detail(rule, snapshot)));
        }
        if snapshot.namer.is_provisional() {
            self.unhashed.push(matched.unhashed(rule, limit));
        }
        let shadow = compiled.mode == RuleMode::Shadow || !enforced;
        // One that is only tried out must not lift the quotas in force. `shadow_mode` does, as with envoyproxy/ratelimit.
        let has_say = !shadow || rule.shadow;
        self.sources.push(LimitSource::Rule(index));
        self.steps.push(Step {
            key: matched.counter(made.identity, limit),
            limit: *limit,
            calendar: rule.calendar.as_ref().map(|calendar| calendar.bounds(now)),
            hits,
            charge: compiled.charge,
            descriptor: matched.number,
            shadow,
            quota_mode: has_say && (rule.quota_mode || snapshot.modes.quota),
            rule: compiled.slot,
            store: compiled.store,
            full_mode: compiled.full_mode,
            lease: made.lease,
            sync: made.sync,
            terms: made.terms,
            whole: made.whole,
            counted: made.counted,
        });
        if context.budgets != BudgetUse::Charge
            && limit.is_post_paid()
            && let Some(step) = self.steps.last_mut()
        {
            context.budgets.apply(step);
        }
        if context.purpose.tells_use() {
            self.add_reserved();
        }
    }

    /// Adds a look at the store's own counter of the last step, if that is a synced budget: its reservations are counted there.
    fn add_reserved(&mut self) {
        let is_apart = |step: &&Step| step.limit.is_post_paid() && !step.sync.is_zero();
        let Some(step) = self.steps.last().filter(is_apart) else {
            return;
        };
        let step = Step {
            sync: Micros::ZERO,
            ..*step
        };
        self.steps.push(step);
        self.sources.extend(self.sources.last().copied());
        self.unhashed.extend(self.unhashed.last().cloned());
    }

    /// The tenants whose call this is, by the numbers of their descriptors.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = (u16, TenantHash)> + '_ {
        self.tenants.iter().copied()
    }

    /// Counts the request for each rule that limits it, and for the subject that the rule limits.
    #[cold] // A busy node counts some.
    pub(crate) fn watch(&self, snapshot: &Snapshot, check: &Check<'_>, growth: &GrowthWatch) {
        let mut counted: SmallVec<[(RuleIndex, u64); 8]> = SmallVec::new();
        for (step, source) in self.steps.iter().zip(&self.sources) {
            let LimitSource::Rule(index) = *source else {
                continue;
            };
            let pair = (index, step.key.subject);
            if counted.contains(&pair) {
                continue;
            }
            counted.push(pair);
            let rule = snapshot.rules().rule(index);
            growth.count((&rule.domain, &rule.id), step.key.subject, || {
                let number = usize::from(step.descriptor);
                let descriptor = check.descriptors().nth(number);
                let scope = descriptor.map(|it| snapshot.scope(it.domain, it.entries));
                shortened(scope.unwrap_or_default().subject()).into()
            });
        }
    }

    /// Takes out every limit whose name another matched rule of the request, in its domain, replaces.
    fn drop_replaced(&mut self, snapshot: &Snapshot) {
        let rules = snapshot.rules();
        let matched = self.sources.iter().filter_map(|source| match source {
            LimitSource::Rule(index) => Some(*index),
            LimitSource::Override | LimitSource::Own(_) => None,
        });
        let matched: SmallVec<[RuleIndex; 8]> = matched
            .chain(self.unlimited.iter().map(|(_, index)| *index))
            .collect();
        let replaced = |index: RuleIndex| {
            let own = rules.rule(index);
            let Some(name) = &own.name else {
                return false;
            };
            let others = matched.iter().filter(|other| **other != index);
            let mut others = others.map(|other| rules.rule(*other));
            // A name is of its domain.
            others.any(|other| other.domain == own.domain && other.replaces.contains(name))
        };
        let keep =
            |source: &LimitSource| !matches!(source, LimitSource::Rule(index) if replaced(*index));
        let kept: SmallVec<[bool; 8]> = self.sources.iter().map(keep).collect();
        self.keep(&kept);
        // An unlimited descriptor stays so even if another rule replaces its own, as with envoyproxy/ratelimit.
    }

    /// Takes out the steps that `is_apart` selects, as a plan of their own.
    pub(crate) fn split_off(&mut self, is_apart: impl Fn(&Step) -> bool) -> Self {
        let stays: SmallVec<[bool; 8]> = self.steps.iter().map(|step| !is_apart(step)).collect();
        let mut apart = self.only(is_apart);
        // The call is counted with the steps that stay.
        apart.tenants.clear();
        self.keep(&stays);
        apart
    }

    /// A plan of the steps that `is_in` selects.
    pub(crate) fn only(&self, is_in: impl Fn(&Step) -> bool) -> Self {
        let kept: SmallVec<[bool; 8]> = self.steps.iter().map(is_in).collect();
        let mut plan = Self {
            descriptors: self.descriptors,
            steps: self.steps.clone(),
            sources: self.sources.clone(),
            unhashed: self.unhashed.clone(),
            unlimited: self.unlimited.clone(),
            details: self.details.clone(),
            tenants: self.tenants.clone(),
            missed: Missed::default(),
        };
        plan.keep(&kept);
        plan
    }

    /// Puts the limits in force as of `now`, by `live`, into the steps that were made by the rules of `snapshot`, with the
    /// places of their counters; a tenant's own limit that has changed stays as it was. Drops those whose rules are gone, or
    /// have other counters now.
    pub(crate) fn renew(&mut self, snapshot: &Snapshot, live: &Snapshot, now: Timestamp) {
        let mut kept = SmallVec::<[bool; 8]>::new();
        for (step, source) in self.steps.iter_mut().zip(&self.sources) {
            let token = match source {
                LimitSource::Rule(index) => Some(snapshot.compiled(*index).token),
                LimitSource::Override | LimitSource::Own(_) => None,
            };
            let known = token.and_then(|token| live.limit_of_token(token));
            kept.push(known.is_some());
            let Some(held) = known else {
                continue;
            };
            let calendar = held.rule.calendar.as_ref();
            step.calendar = calendar.map(|calendar| calendar.bounds(now));
            step.full_mode = held.compiled.full_mode;
            // By the old ones it would be counted where no one looks any more, or on terms that regions have left.
            step.lease = held.lease();
            let former = step.limit;
            held.put_into(step, Some(&former));
        }
        self.keep(&kept);
    }

    /// Drops the steps whose entry in `kept` is false.
    fn keep(&mut self, kept: &[bool]) {
        self.details
            .retain(|(step, _)| kept.get(*step).copied().unwrap_or(false));
        for (step, _) in &mut self.details {
            *step = kept[..*step].iter().filter(|kept| **kept).count();
        }
        retain(&mut self.steps, kept);
        retain(&mut self.sources, kept);
        let mut kept = kept.iter();
        self.unhashed
            .retain(|_| kept.next().is_some_and(|is_kept| *is_kept));
    }
}

/// Drops the items whose entry in `kept` is false.
fn retain<A: smallvec::Array>(items: &mut SmallVec<A>, kept: &[bool]) {
    let mut kept = kept.iter();
    items.retain(|_| kept.next().is_some_and(|is_kept| *is_kept));
}

impl Matched<'_, '_> {
    /// The name of the counter of `limit`.
    #[inline]
    fn counter(&self, identity: LimitIdentity, limit: &Limit) -> CounterKey {
        // A reset forgets hits, not requests in flight.
        if self.epoch == 0 || limit.algorithm().holds_permits() {
            return self.naming.counter(self.subject_name, identity);
        }
        let naming = self.naming.in_epoch(self.epoch);
        naming.counter(self.subject_name, identity)
    }

    /// The name of the counter of the limit of `rule`, for when the hash key is known.
    #[cold] // A store tells its hash key once.
    fn unhashed(&self, rule: &Rule, limit: &Limit) -> UnhashedName {
        let visit = |number: usize| {
            let shares = !(self.is_own && number == self.subject);
            self.visits.get(number).filter(|_| shares)
        };
        let subject = &self.entries[self.subject];
        let mut unhasher = Unhasher::new(&rule.domain, subject, visit(self.subject));
        for (number, entry) in self.entries.iter().enumerate() {
            unhasher.add(entry, visit(number));
        }
        // A reset forgets hits, not requests in flight.
        let epoch = match limit.algorithm().holds_permits() {
            true => 0,
            false => self.epoch,
        };
        // As rules are compiled: leases and delays are not in the name.
        let named = rule.limited().unwrap_or(limit);
        unhasher.name(epoch, &rule.domain, named, rule.calendar.as_ref())
    }

    /// The label that tells this request's values apart in metrics: the whole descriptor with
    /// `detailed_metric`, else the nodes with the values of those that have `value_to_metric`.
    /// A shared pattern stays a pattern; a secret shows as its fingerprint.
    fn detail(&self, rule: &Rule, snapshot: &Snapshot) -> String {
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
                    true => detail.push_str(&snapshot.fingerprint(entry.value)),
                    false => detail.push_str(entry.value),
                }
            } else {
                detail.push_str(&self.domain.composite(node.key(), node.value()));
            }
        }
        detail
    }
}
