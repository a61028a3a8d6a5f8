//! The limiter itself.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use ratekeeper_core::{Timestamp, combine};
use ratekeeper_rules::{Profile, RuleSet};
use ratekeeper_store::{
    Answer, Execution, Extra, Never, Request, Step, StepOutcome, Store, StoreError, Verdicts,
};
use smallvec::SmallVec;

use crate::Clock;
use crate::batch::Begun;
use crate::compiled::{Modes, Snapshot};
use crate::decision::{Answered, Decision, Policies, Source};
use crate::explain::Explanation;
use crate::fallback::Fallback;
use crate::hold::token::Sealer;
use crate::identity::{Namer, Seed};
use crate::plan::{Context, Plan, overrides};
use crate::request::{Check, recosted};
use crate::stats::Totals;

/// How a limiter is set up, besides its rules and its store.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LimiterOptions {
    /// How limits count that a request brings along: as the rules do by default.
    pub profile: Profile,
    /// Modes that hold for every rule.
    pub modes: Modes,
    /// The secret under which counters are named; None takes that of the store, if its nodes share
    /// one, else makes a new one. Counters that are to be found again after a restart need the seed
    /// they were named with.
    pub seed: Option<Seed>,
}

/// Decides requests by rules, with counters in a store.
#[derive(Debug)]
pub struct Limiter<S> {
    snapshot: ArcSwap<Snapshot>,
    store: S,
    clock: Clock,
    /// Held while a snapshot is made from the one before.
    replacing: Mutex<()>,
    /// [`None`] for a store that always answers.
    fallback: Option<Fallback>,
    options: LimiterOptions,
    totals: Totals,
    /// Makes ids that nobody can guess.
    ids: Sealer,
    ids_made: AtomicU64,
}

impl<S: Store> Limiter<S> {
    /// A limiter of `rules` with its counters in `store`.
    pub fn new(rules: RuleSet, store: S, options: LimiterOptions) -> Self {
        let shared = || store.hash_key().map(Seed::from);
        let seed = options.seed.or_else(shared);
        let namer = Namer::new(seed.unwrap_or_else(Seed::random));
        let slot = |name: &str| store.slot(name);
        let snapshot = Snapshot::new(Arc::new(rules), options.modes, namer, slot, None);
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            store,
            clock: Clock::new(),
            replacing: Mutex::new(()),
            fallback: None,
            options,
            totals: Totals::default(),
            ids: Sealer::new(Seed::random()),
            ids_made: AtomicU64::new(0),
        }
    }

    /// The same limiter, which goes on by itself while its store cannot answer. Without, rules
    /// whose failure mode is `local` let everything pass then.
    #[must_use]
    pub fn with_fallback(mut self, fallback: Fallback) -> Self {
        self.fallback = Some(fallback);
        self
    }

    /// Forgets a share of what has expired beside the store; to be called about once a second.
    pub fn tend(&self) {
        if let Some(fallback) = &self.fallback {
            fallback.tend(self.clock.now());
        }
    }

    /// Puts `rules` in force, all at once: a check sees the old ones or the new ones. Counters
    /// whose identity did not change keep their usage, rules of the same id their statistics.
    pub fn replace_rules(&self, rules: RuleSet) {
        let _alone = self.replacing.lock();
        let before = self.snapshot.load();
        let rules = Arc::new(rules);
        self.put(rules, before.namer, &before);
    }

    /// Names counters by `seed` from now on, so that nodes with one store find each other's. What
    /// was counted, and the permits that were given, under other names are not found again.
    pub fn adopt_seed(&self, seed: Seed) {
        // Most often it is the same, and nobody has to wait to find that.
        if self.seed() == seed {
            return;
        }
        let _alone = self.replacing.lock();
        let before = self.snapshot.load();
        if before.namer.seed() == seed {
            return;
        }
        let (rules, namer) = (before.shared_rules(), Namer::new(seed));
        self.put(rules, namer, &before);
    }

    fn put(&self, rules: Arc<RuleSet>, namer: Namer, before: &Snapshot) {
        let slot = |name: &str| self.store.slot(name);
        let after = Snapshot::new(rules, self.options.modes, namer, slot, Some(before));
        self.snapshot.store(Arc::new(after));
    }

    /// The rules in force, with their statistics.
    #[must_use]
    pub fn snapshot(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// Where the counters are.
    #[must_use]
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// The clock that every check reads once.
    #[must_use]
    pub const fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The secret under which counters are named.
    #[must_use]
    pub fn seed(&self) -> Seed {
        self.snapshot.load().namer.seed()
    }

    /// Writes permits and reservations.
    pub(crate) fn sealer(&self) -> Sealer {
        self.snapshot.load().sealer
    }

    /// What was counted about requests, whatever their rules.
    #[must_use]
    pub const fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Decides `check` now, and charges what it takes.
    ///
    /// A fault of the store is no error: the rules' failure modes answer, and the decision says
    /// that it is degraded.
    pub fn check(&self, check: &Check<'_>) -> impl Future<Output = Decision> + Send {
        self.check_as_of(check, self.clock.now())
    }

    /// Decides `check` as of `now`, a time that [`Self::clock`] has just shown: for callers with
    /// many checks at once.
    pub async fn check_as_of(&self, check: &Check<'_>, now: Timestamp) -> Decision {
        match self.begin(check, now) {
            Begun::Decided(decision) => decision,
            // In a box: futures are moved before they are polled, as large as whatever they may
            // ever hold, and most decisions hold nothing of this.
            Begun::Asked(asked) => Box::pin(self.finish(check, asked)).await,
        }
    }

    /// How `check` stands now, concurrency limits included, and whether one hit on each of its
    /// descriptors would pass. Takes nothing, whatever hits the descriptors have, and makes no
    /// counter.
    pub async fn peek(&self, check: &Check<'_>) -> (Decision, bool) {
        let now = self.clock.now();
        let looks = recosted(check.descriptors, |_| 0);
        let check = Check {
            descriptors: &looks,
            ..*check
        };
        let mut decision = Decision::begin(self.snapshot.load());
        let overrides = overrides(&check, self.options.profile);
        let (snapshot, statuses) = decision.parts();
        let context = Context {
            permits: true,
            ..self.context(snapshot, now)
        };
        let plan = Plan::new(context, &check, &overrides);
        let verdicts = self.verdicts(&plan, now, None).await;
        plan.fill(&verdicts, statuses, |_, _, _| {});
        let would_allow = plan.would_allow(&verdicts);
        drop(plan);
        decision.conclude(verdicts.allowed);
        (decision, would_allow)
    }

    /// Says how `check` is decided, and takes nothing: which nodes match, which limits count,
    /// and what each would answer to one hit.
    pub async fn explanation(&self, check: &Check<'_>) -> Explanation {
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let peeks = recosted(check.descriptors, |_| 0);
        let check = Check {
            descriptors: &peeks,
            ..*check
        };
        let overrides = overrides(&check, self.options.profile);
        let totals = Totals::default();
        let context = Context {
            totals: &totals,
            ..self.context(&snapshot, now)
        };
        let plan = Plan::new(context, &check, &overrides);
        let verdicts = self.verdicts(&plan, now, None).await;
        Explanation::new(&snapshot, &check, &plan, &verdicts)
    }

    /// The store's verdicts on `plan`; without any, the failure modes'.
    pub(crate) async fn verdicts(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        extra: Option<&Extra>,
    ) -> Verdicts {
        match self.ask(plan, now, extra) {
            Answer::Decided(verdicts) => verdicts,
            Answer::Pending(ticket) => self.heard(plan, now, extra, ticket.await),
        }
    }

    pub(crate) fn load(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    pub(crate) const fn profile(&self) -> Profile {
        self.options.profile
    }

    /// 128 bits that nobody else has, nor can guess.
    pub(crate) fn new_id(&self) -> u128 {
        // Relaxed: each number is given out once, in whatever order.
        let number = self.ids_made.fetch_add(1, Ordering::Relaxed);
        self.ids.hash("id", &[&number.to_be_bytes()])
    }

    /// The enforced limits that `check` is held to, each once, by the rules that `decision` was
    /// taken with. Matches again, so it is for callers who are to be told all of them.
    pub fn policies(&self, check: &Check<'_>, decision: &Decision) -> Policies {
        let overrides = overrides(check, self.options.profile);
        let unheard = Totals::default();
        let context = self.context(decision.snapshot(), self.clock.now());
        let context = Context {
            totals: &unheard,
            ..context
        };
        Plan::new(context, check, &overrides).policies()
    }

    pub(crate) fn context<'a>(&'a self, snapshot: &'a Snapshot, now: Timestamp) -> Context<'a> {
        let profile = self.options.profile;
        Context {
            snapshot,
            totals: &self.totals,
            profile,
            now,
            permits: false,
        }
    }

    /// Tells the fallback what a limit answered, if there is one.
    #[inline]
    pub(crate) fn note(&self, step: &Step<'_>, answered: &Answered, now: Timestamp) {
        if let Some(fallback) = &self.fallback {
            fallback.note(step, answered, now);
        }
    }

    #[inline]
    pub(crate) fn ask(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        extra: Option<&Extra>,
    ) -> Answer<S::Ticket> {
        if plan.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: SmallVec::new(),
                at: now,
                execution: Execution::Now,
            });
        }
        self.store.decide(&Request {
            extra,
            named_by: Some(plan.seed().hash_key()),
            ..Request::new(&plan.steps, plan.mode(), now)
        })
    }

    /// The verdicts that the store's `answer` to `plan` comes to.
    pub(crate) fn heard(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        extra: Option<&Extra>,
        answer: Result<Verdicts, StoreError>,
    ) -> Verdicts {
        match answer {
            Ok(verdicts) if verdicts.fault().is_none() => verdicts,
            answer => self.unanswered(plan, now, extra, answer.ok()),
        }
    }

    /// The verdicts when the store gave none, or has `answered` but some of the steps: each rule's
    /// failure mode for the others. The one place in which a fault becomes an answer.
    #[cold]
    fn unanswered(
        &self,
        plan: &Plan<'_>,
        now: Timestamp,
        extra: Option<&Extra>,
        answered: Option<Verdicts>,
    ) -> Verdicts {
        // A store that has learned its secret since is unavailable to counters of another name.
        if let Some(key) = self.store.hash_key() {
            self.adopt_seed(key.into());
        }
        let request = Request {
            extra,
            ..Request::new(&plan.steps, plan.mode(), now)
        };
        let answered = answered.as_ref();
        let verdicts = match &self.fallback {
            Some(fallback) => fallback.decide(&request, plan.failure_modes(), answered),
            None => uncounted(&request, answered),
        };
        if let Some(taken) = answered.filter(|taken| taken.allowed && !verdicts.allowed) {
            self.store.give_back(&request, taken);
        }
        verdicts
    }
}

/// The verdicts on `request` where nobody counts what the store has not `answered`.
fn uncounted(request: &Request<'_>, answered: Option<&Verdicts>) -> Verdicts {
    let outcomes = request.steps.iter().enumerate().map(|(number, step)| {
        let outcome = answered.map(|verdicts| verdicts.outcomes[number]);
        let outcome = outcome.filter(StepOutcome::is_answered);
        outcome.unwrap_or(StepOutcome::Full(step.full_mode))
    });
    let outcomes: SmallVec<[StepOutcome; 4]> = outcomes.collect();
    let votes = request.steps.iter().zip(&outcomes);
    let votes = votes.map(|(step, outcome)| step.vote(outcome.fits()));
    Verdicts {
        allowed: combine(votes, request.mode),
        outcomes,
        at: answered.map_or(request.now, |verdicts| verdicts.at),
        execution: answered.map_or(Execution::Now, |verdicts| verdicts.execution),
    }
}

impl<S: Store<Ticket = Never>> Limiter<S> {
    /// Decides `check` as of `now`, for stores that always decide at once: no runtime needed.
    pub fn check_at(&self, check: &Check<'_>, now: Timestamp) -> Decision {
        self.check_at_with(check, now, |_, _, _| {})
    }

    /// As [`Self::check_at`], and shows `each` every limit that took part, in the order of the
    /// descriptors: what the store was asked, where the limit came from, what it answered. A
    /// decision has room for one limit of each descriptor; statistics want them all.
    pub fn check_at_with(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        each: impl FnMut(&Step<'_>, Source, Answered),
    ) -> Decision {
        let mut decision = Decision::begin(self.snapshot.load());
        let overrides = overrides(check, self.options.profile);
        let allowed = {
            let (snapshot, statuses) = decision.parts();
            let plan = Plan::new(self.context(snapshot, now), check, &overrides);
            let Answer::Decided(ref verdicts) = self.ask(&plan, now, None);
            plan.fill(verdicts, statuses, each);
            verdicts.allowed
        };
        decision.conclude(allowed);
        decision
    }

    /// Decides `check` now.
    pub fn check_now(&self, check: &Check<'_>) -> Decision {
        self.check_at(check, self.clock.now())
    }

    /// What [`Self::explanation`] says, at once.
    pub fn explain(&self, check: &Check<'_>) -> Explanation {
        let mut explaining = std::pin::pin!(self.explanation(check));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            // A store without tickets keeps nobody waiting.
            if let std::task::Poll::Ready(explanation) = explaining.as_mut().poll(&mut context) {
                return explanation;
            }
        }
    }
}
