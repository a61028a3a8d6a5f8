//! The answers of failure modes, where the store gives none in time.

use ratekeeper_core::combine;
use ratekeeper_store::{Execution, Extra, Request, Step, StepOutcome, Store, StoreError, Verdicts};
use smallvec::SmallVec;

use super::MatchedCheck;
use crate::fallback::{Passed, owed_hits};
use crate::limiter::Limiter;

impl<S: Store> Limiter<S> {
    /// Turns the store's `answer` into verdicts.
    pub(crate) fn resolve_answer(
        &self,
        matched: &MatchedCheck,
        extra: Option<&Extra>,
        answer: Result<Verdicts, StoreError>,
    ) -> Verdicts {
        match answer {
            Ok(verdicts) if verdicts.fault().is_none() => {
                if self.fallback().is_some_and(|it| it.owed().owes()) {
                    self.post_owed(matched.now);
                }
                verdicts
            }
            answer => self.unanswered(matched, extra, answer),
        }
    }

    /// The verdicts when no answer of the store has come in time: those of the failure modes, which are
    /// settled with the store when its answer comes after all.
    #[cold]
    pub(crate) fn timed_out(&self, matched: &MatchedCheck, late: Option<S::Ticket>) -> Verdicts {
        let Some((late, fallback)) = late.zip(self.fallback()) else {
            return self.unanswered(matched, None, Err(StoreError::Timeout));
        };
        let (plan, snapshot) = (&matched.plan, matched.decision.snapshot());
        let modes = || plan.failure_modes(snapshot);
        let verdicts = fallback.decide(&matched.request(None), modes(), None);
        let passed = self.passed(matched);
        let owed = plan.steps.iter().zip(modes()).zip(&verdicts.outcomes);
        let owed =
            owed.map(|((step, mode), outcome)| owed_hits(step, mode, outcome, verdicts.allowed));
        self.expect_late(late, &plan.steps, owed.collect(), verdicts.allowed, passed);
        verdicts
    }

    /// Gives back what the steps that `is_returned` selects take of the store, once its `late` answer comes: nobody waits for the
    /// request any more, which the store did not answer in time, for the reason `why`.
    #[cold]
    pub(crate) fn give_back_late(
        &self,
        matched: &MatchedCheck,
        is_returned: impl Fn(&Step) -> bool,
        late: Option<S::Ticket>,
        why: StoreError,
    ) {
        let returned = |step: &Step| Step {
            hits: if is_returned(step) { step.hits } else { 0 },
            ..*step
        };
        let steps: SmallVec<[Step; 4]> = matched.plan.steps.iter().map(returned).collect();
        match late.filter(|_| self.fallback().is_some()) {
            Some(late) => {
                let owed = steps.iter().map(|_| 0).collect();
                self.expect_late(late, &steps, owed, false, self.passed(matched));
            }
            None => self.strand(&steps, why),
        }
    }

    /// The verdicts when the store gave none, or its `answer` is about only some of the steps: each rule's
    /// failure mode decides the others. This is the one place in which a fault becomes an answer.
    #[cold]
    fn unanswered(
        &self,
        matched: &MatchedCheck,
        extra: Option<&Extra>,
        answer: Result<Verdicts, StoreError>,
    ) -> Verdicts {
        // A store that has learned its hash key since then does not serve counters named by another key. Where this node would
        // forget counters with its key, which takes long, whoever maintains the limiter adopts it, and no request waits.
        if !self.store().keeps_own()
            && let Some(key) = self.store().hash_key()
        {
            self.adopt_hash_key(key);
        }
        let (plan, snapshot) = (&matched.plan, matched.decision.snapshot());
        let request = matched.request(extra);
        let answered = answer.as_ref().ok();
        let verdicts = match self.fallback() {
            Some(fallback) => {
                let modes = || plan.failure_modes(snapshot);
                let verdicts = fallback.decide(&request, modes(), answered);
                let passed = self.passed(matched);
                let fault = |number| fault_of(&answer, number);
                let owing = (&passed, &plan.unhashed[..]);
                fallback.owe(&request, modes(), &verdicts, fault, owing);
                verdicts
            }
            None => uncounted(&request, answered),
        };
        if !verdicts.allowed
            && let Err(why) = answer
        {
            self.strand(&plan.steps, why);
        }
        if let Some(taken) = answered.filter(|taken| taken.allowed && !verdicts.allowed) {
            self.store().give_back(&request, taken);
        }
        verdicts
    }

    /// The request of `matched`, as one that the store did not answer.
    fn passed(&self, matched: &MatchedCheck) -> Passed {
        Passed {
            now: matched.now,
            boot: self.clock().boot(),
            named_by: matched.decision.snapshot().namer.hash_key(),
        }
    }
}

/// The reason why the store has not decided step `number`; [`None`] if it has.
fn fault_of(answer: &Result<Verdicts, StoreError>, number: usize) -> Option<StoreError> {
    match answer {
        Err(error) => Some(*error),
        Ok(verdicts) => match verdicts.outcomes.get(number) {
            Some(StepOutcome::Unanswered(error)) => Some(*error),
            _ => None,
        },
    }
}

/// The verdicts on `request` if nothing counts the steps that the store has not `answered`.
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
