//! Permits of concurrency limits, and hits reserved for a cost that is known only afterwards.
//!
//! Both are handed out as opaque [tokens](crate::token) that carry all that is needed to settle them,
//! so nothing is kept of them here. A token belongs to the caller that it was issued to.

mod admission;
mod bill;
mod caller;
mod error;
mod permits;
mod receipt;
mod reservations;
mod taken;

use ratekeeper_core::{Limit, Micros, Mode, Timestamp};
use ratekeeper_store::{
    Answer, Charge, Execution, Extra, Request, Step, StepOutcome, Store, StoreError, Verdicts,
};
use smallvec::SmallVec;

pub use admission::{Admitted, DeferredPermits, HeldSlots, PendingAdmission, ReceiptMode};
pub use bill::Bill;
pub use caller::CallerHolds;
pub use error::HoldError;
pub use permits::{Acquired, IssuedPermit, Released};
pub use receipt::{BucketTurn, Queued, Receipt};
pub use reservations::{ChargedOnce, Reservation, Reserve, Reserved, Settled};

use crate::decide::MatchedCheck;
use crate::limiter::Limiter;
use crate::plan::Plan;
use crate::purpose::{Purpose, reserve};
use crate::token::{Claim, HoldPart, Kind, PARTS_MAX, Sealer};
use crate::{Check, Decision, Policies, Snapshot};
use taken::TakenPart;

impl Snapshot {
    /// The steps that apply `hits` to each of `parts` whose rule still exists. They cast no vote:
    /// all are carried out, whatever their outcomes.
    fn settlement(
        &self,
        parts: &[HoldPart],
        now: Timestamp,
        hits: impl Fn(&HoldPart, &Limit) -> i64,
    ) -> SmallVec<[Step; 4]> {
        let mut steps = SmallVec::new();
        for part in parts {
            let Some(held) = self.limit_of_token(part.rule) else {
                continue;
            };
            let (calendar, limit) = (held.rule.calendar.as_ref(), held.limit());
            let mut step = Step {
                calendar: calendar.map(|calendar| calendar.bounds(now)),
                hits: hits(part, limit),
                charge: match limit.is_post_paid() {
                    true => Charge::Always,
                    false => Charge::IfAllowed,
                },
                shadow: true,
                ..Step::new(part.key, *limit)
            };
            held.put_into(&mut step, None);
            steps.push(step);
        }
        steps
    }

    /// Counts the hits that a settlement of `parts` did not charge, as they were beyond the largest debt of their limits.
    fn count_cuts(&self, parts: &[HoldPart], verdicts: &Verdicts) {
        // As the steps: one for each part whose rule still exists.
        let rules = parts
            .iter()
            .filter_map(|part| self.limit_of_token(part.rule));
        for (held, outcome) in rules.zip(&verdicts.outcomes) {
            if let StepOutcome::Counted(outcome) = outcome
                && outcome.cut > 0
            {
                held.compiled.stats.record_cut(outcome.cut);
            }
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Opens `token`, which must be of `kind` and belong to the caller.
    fn open(&self, caller: &str, kind: Kind, token: &str) -> Result<Claim, HoldError> {
        let opened = |sealer: Sealer| Some((sealer.open(token)?, sealer));
        // A token that stands for nothing needs no secret.
        let public = || opened(Sealer::public()).filter(|(claim, _)| claim.parts.is_empty());
        let (claim, sealer) = opened(self.sealer())
            .or_else(public)
            .ok_or(HoldError::Malformed)?;
        if claim.kind != kind {
            return Err(HoldError::WrongKind(match claim.kind {
                Kind::Permit => "a permit, not a reservation",
                Kind::Reservation => "a reservation, not a permit",
            }));
        }
        if claim.caller != sealer.caller(caller) {
            return Err(HoldError::Foreign);
        }
        Ok(claim)
    }

    /// Asks the store to settle what is held, and waits for its answer.
    async fn settle_steps(
        &self,
        steps: &[Step],
        extra: &Extra,
        now: Timestamp,
    ) -> Result<Verdicts, StoreError> {
        match self.send_steps(steps, extra, now) {
            Answer::Decided(verdicts) => Ok(verdicts),
            Answer::Pending(ticket) => fully(ticket.await),
        }
    }

    /// Asks the store to settle what is held.
    fn send_steps(&self, steps: &[Step], extra: &Extra, now: Timestamp) -> Answer<S::Ticket> {
        self.store().decide(&Request {
            extra: Some(extra),
            named_by: Some(self.hash_key()),
            ..Request::new(steps, Mode::default(), now)
        })
    }

    /// Decides `check` for `purpose` with `extra`: the decision, and what it took of the limits that
    /// `is_part` names.
    ///
    /// # Errors
    /// Nothing was taken: too many limits match, or the request is to be carried out once and
    /// was not.
    async fn take(
        &self,
        check: &Check<'_>,
        purpose: Purpose,
        now: Timestamp,
        extra: &Extra,
        is_part: impl Fn(&Step) -> bool,
    ) -> Result<(Decision, Taken), HoldError> {
        let mut matched = self.matched(check, now, purpose);
        let mut parts = 0;
        for step in matched.plan.steps.iter_mut().filter(|step| is_part(step)) {
            parts += 1;
            // What any node may settle later, and only once, is counted in the store.
            step.sync = Micros::ZERO;
            if step.limit.is_post_paid() {
                reserve(step);
            }
        }
        let is_apart = |step: &Step| !step.sync.is_zero() && step.limit.is_post_paid();
        if extra.once.is_some() && matched.plan.steps.iter().any(is_apart) {
            return Err(HoldError::Synced);
        }
        if parts > PARTS_MAX {
            return Err(HoldError::TooManyLimits);
        }
        let verdicts = self.verdicts(&matched, Some(extra)).await;
        carried_out(&verdicts, &matched.plan)?;
        matched.fill(&verdicts, |_, _| {});
        if verdicts.execution == Execution::Now {
            self.count_call(&matched, &verdicts);
        }
        let MatchedCheck { decision, plan, .. } = matched;
        let taken = Taken {
            parts: plan.taken(decision.snapshot(), &verdicts, is_part),
            policies: plan.policies(decision.snapshot()),
            at: verdicts.at,
            is_repeat: verdicts.execution == Execution::Before,
        };
        Ok((decision, taken))
    }
}

/// Returns `answer`, or the fault that left steps unanswered: a partial settlement counts as none.
fn fully(answer: Result<Verdicts, StoreError>) -> Result<Verdicts, StoreError> {
    let verdicts = answer?;
    match verdicts.fault() {
        Some(error) => Err(error),
        None => Ok(verdicts),
    }
}

/// The parts of its limits that a request took.
struct Taken {
    parts: Vec<TakenPart>,
    policies: Policies,
    at: Timestamp,
    is_repeat: bool,
}

/// Checks that a request to be carried out once was, now or before.
fn carried_out(verdicts: &Verdicts, plan: &Plan) -> Result<(), HoldError> {
    match verdicts.execution {
        Execution::Before if verdicts.outcomes.len() != plan.steps.len() => Err(
            HoldError::Conflict("the rules have changed since; use another key"),
        ),
        Execution::Now | Execution::Before => Ok(()),
        Execution::Conflict => Err(HoldError::Conflict("use another key for another request")),
        Execution::NoRoom => Err(HoldError::NoRoom),
        Execution::Unknown => Err(HoldError::Forgotten),
    }
}
