//! The limiter itself.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use ratekeeper_core::{Mode, Timestamp, combine};
use ratekeeper_rules::{Profile, RuleSet};
use ratekeeper_store::{Answer, Never, Request, Step, StepOutcome, Store, Verdicts};
use smallvec::SmallVec;

use crate::Clock;
use crate::compiled::{Modes, Snapshot};
use crate::decision::{Answered, Decision, Policy, Source};
use crate::explain::Explanation;
use crate::identity::{Namer, Seed};
use crate::plan::{Context, Plan, overrides};
use crate::request::{Check, Descriptor};
use crate::stats::Totals;

/// How a limiter is set up, besides its rules and its store.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct LimiterOptions {
    /// How limits count that a request brings along: as the rules do by default.
    pub profile: Profile,
    /// Modes that hold for every rule.
    pub modes: Modes,
    /// The secret under which counters are named; None makes a new one. Counters that are to be
    /// found again after a restart need the seed they were named with.
    pub seed: Option<Seed>,
}

/// Decides requests by rules, with counters in a store.
#[derive(Debug)]
pub struct Limiter<S> {
    snapshot: ArcSwap<Snapshot>,
    store: S,
    clock: Clock,
    namer: Namer,
    options: LimiterOptions,
    totals: Totals,
}

impl<S: Store> Limiter<S> {
    /// A limiter of `rules` with its counters in `store`.
    pub fn new(rules: RuleSet, store: S, options: LimiterOptions) -> Self {
        let namer = Namer::new(options.seed.unwrap_or_else(Seed::random));
        let snapshot = Snapshot::new(rules, options.modes, &namer, None);
        Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            store,
            clock: Clock::new(),
            namer,
            options,
            totals: Totals::default(),
        }
    }

    /// Puts `rules` in force, all at once: a check sees the old ones or the new ones. Counters
    /// whose identity did not change keep their usage, rules of the same id their statistics.
    ///
    /// Calls must not overlap, or the statistics of the rules between are lost.
    pub fn replace_rules(&self, rules: RuleSet) {
        let before = self.snapshot.load();
        let after = Snapshot::new(rules, self.options.modes, &self.namer, Some(&before));
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
    pub const fn seed(&self) -> Seed {
        self.namer.seed()
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
    pub async fn check(&self, check: &Check<'_>) -> Decision {
        let now = self.clock.now();
        let mut decision = Decision::begin(self.snapshot.load());
        let overrides = overrides(check, self.options.profile);
        let (snapshot, statuses) = decision.parts();
        let plan = Plan::new(self.context(snapshot, now), check, &overrides);
        let verdicts = match self.ask(&plan, now) {
            Answer::Decided(verdicts) => verdicts,
            Answer::Pending(ticket) => match ticket.await {
                Ok(verdicts) => verdicts,
                Err(_) => unanswered(&plan.steps, plan.mode()),
            },
        };
        plan.fill(&verdicts, statuses, |_, _, _| {});
        drop(plan);
        decision.conclude(verdicts.allowed);
        decision
    }

    /// The enforced limits that `check` is held to, each once, by the rules that `decision` was
    /// taken with. Matches again, so it is for callers who are to be told all of them.
    pub fn policies(&self, check: &Check<'_>, decision: &Decision) -> Vec<Policy> {
        let overrides = overrides(check, self.options.profile);
        let unheard = Totals::default();
        let context = self.context(decision.snapshot(), self.clock.now());
        let context = Context {
            totals: &unheard,
            ..context
        };
        Plan::new(context, check, &overrides).policies()
    }

    fn context<'a>(&'a self, snapshot: &'a Snapshot, now: Timestamp) -> Context<'a> {
        let profile = self.options.profile;
        Context {
            snapshot,
            namer: &self.namer,
            totals: &self.totals,
            profile,
            now,
        }
    }

    fn ask(&self, plan: &Plan<'_>, now: Timestamp) -> Answer<S::Ticket> {
        if plan.steps.is_empty() {
            return Answer::Decided(Verdicts {
                allowed: true,
                outcomes: SmallVec::new(),
            });
        }
        self.store.decide(&Request {
            steps: &plan.steps,
            mode: plan.mode(),
            now,
        })
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
        let (snapshot, statuses) = decision.parts();
        let plan = Plan::new(self.context(snapshot, now), check, &overrides);
        let Answer::Decided(verdicts) = self.ask(&plan, now);
        plan.fill(&verdicts, statuses, each);
        drop(plan);
        decision.conclude(verdicts.allowed);
        decision
    }

    /// Decides `check` now.
    pub fn check_now(&self, check: &Check<'_>) -> Decision {
        self.check_at(check, self.clock.now())
    }

    /// Says how `check` is decided, and takes nothing: which nodes match, which limits count,
    /// and what each would answer to one hit.
    pub fn explain<'a>(&self, check: &Check<'a>) -> Explanation {
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let peek = |descriptor: &Descriptor<'a>| Descriptor {
            hits: 0,
            ..*descriptor
        };
        let peeks: Vec<_> = check.descriptors.iter().map(peek).collect();
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
        let Answer::Decided(verdicts) = self.ask(&plan, now);
        Explanation::new(&snapshot, &check, &plan, &verdicts)
    }
}

/// The verdicts when the store gave none: each rule's failure mode. The one place in which a
/// fault becomes an answer.
fn unanswered(steps: &[Step<'_>], mode: Mode) -> Verdicts {
    let outcomes: SmallVec<[StepOutcome; 4]> = steps
        .iter()
        .map(|step| StepOutcome::Full(step.full_mode))
        .collect();
    let votes = steps.iter().zip(&outcomes);
    let votes = votes.map(|(step, outcome)| step.vote(outcome.fits()));
    Verdicts {
        allowed: combine(votes, mode),
        outcomes,
    }
}
