//! Requests that are held until they have ended: they wait for their turn, and give back what they hold.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{
    Answer, Extra, Permit, PermitAct, StepOutcome, Store, StoreError, Verdicts,
};
use smallvec::SmallVec;

use super::permits::is_concurrency;
use super::token::Part;
use super::{HoldError, Queued, Turn, fully};
use crate::plan::{Context, Plan, overrides};
use crate::stats::Totals;
use crate::{Check, Decision, Limiter, Policies};

/// What is said of a request that is held until it has ended.
#[derive(Debug)]
pub struct Admitted {
    /// Whether the request may go on, and what of which limit is left.
    pub decision: Decision,
    /// The enforced limits that it is held to, each once.
    pub policies: Policies,
    /// What it holds of concurrency limits, or may hold, where the store gave no answer: to be
    /// [given back](Limiter::release_slots), also after a denial. None if it holds nothing.
    pub slots: Option<Slots>,
    /// If it was allowed and may not go on yet: since it is to wait for its turn, or since it has
    /// still to get its permits.
    pub queued: Option<Box<Queued>>,
}

/// A request whose store was asked, and has not answered.
#[derive(Debug)]
pub struct Admission {
    decision: Decision,
    now: Timestamp,
    stage: Stage,
    slots: Option<Slots>,
    may_wait: bool,
}

/// Which of a request's limits are asked. All at once, unless a leaky bucket may hold it back that
/// is to have permits: rates first, and permits when its turn has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    All,
    Rates,
    Permits,
}

impl Stage {
    /// Leaves in `plan` what is asked; all of its policies, unless those are the plan's.
    fn cut(self, plan: &mut Plan<'_>) -> Option<Policies> {
        let policies = (self != Self::All).then(|| plan.policies());
        match self {
            Self::All => {}
            Self::Rates => plan.retain(|step| !is_concurrency(step)),
            Self::Permits => plan.retain(is_concurrency),
        }
        policies
    }

    /// What is said of a request that may not go on yet, by verdicts that were `heard` at that
    /// time.
    #[inline]
    fn queued(
        self,
        plan: &Plan<'_>,
        verdicts: &Verdicts,
        turn: Option<Turn>,
        heard: Timestamp,
    ) -> Option<Box<Queued>> {
        let turn = turn.filter(|_| plan.may_wait());
        let wants_permits = self == Self::Rates;
        let waits = verdicts.allowed && (wants_permits || turn.is_some());
        waits.then(|| {
            Box::new(Queued {
                turn,
                wants_permits,
                receipt: plan.receipt(verdicts, heard),
            })
        })
    }
}

impl Admission {
    /// What the request will hold, if it is let in: to be given back if its answer is not waited for.
    #[must_use]
    pub fn slots(&self) -> Option<&Slots> {
        self.slots.as_ref()
    }

    /// Whether a leaky bucket may hold the request back: then it may have taken a turn, which only
    /// the store's answer tells, and whose answer is not waited for is to give it back.
    #[must_use]
    pub const fn may_wait(&self) -> bool {
        self.may_wait
    }
}

/// A request that is to be let in.
#[derive(Debug)]
pub enum Admitting<T> {
    /// The store decided at once.
    Decided(Admitted),
    /// It was asked: await the ticket, then [conclude](Limiter::conclude_admission).
    Asked(Admission, T),
}

/// A permit of each concurrency limit that a request is held to, in the hands of this process: as
/// good as the token of [`Limiter::acquire`], and never written down.
#[derive(Clone, Debug)]
pub struct Slots {
    id: u128,
    parts: SmallVec<[Part; 2]>,
    expires_after: Micros,
}

impl Slots {
    /// Until they end by themselves, counted from when they were taken or renewed: the shortest
    /// timeout of their limits.
    #[must_use]
    pub const fn expires_after(&self) -> Micros {
        self.expires_after
    }

    fn extra(&self, act: PermitAct) -> Extra {
        Extra {
            permit: Some(Permit { id: self.id, act }),
            ..Extra::default()
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Asks the store to decide `check` as of `now`, a time that [`Self::clock`] has just shown,
    /// concurrency limits included, and does not wait for it. Rates and permits are taken together
    /// or not at all, unless a leaky bucket may hold the request back: then the answer says that
    /// permits are [still to be had](Queued::wants_permits). Where no concurrency limit matches it
    /// costs what a check costs.
    #[inline]
    pub fn begin_admission(&self, check: &Check<'_>, now: Timestamp) -> Admitting<S::Ticket> {
        self.begin_stage(check, now, self.totals(), false)
    }

    /// Asks the store for the permits of a request whose rates were taken before, and whose turn
    /// has come. If it is denied, those are to be [given back](Self::give_back).
    pub fn begin_permits(&self, check: &Check<'_>, now: Timestamp) -> Admitting<S::Ticket> {
        // It was heard of when its rates were taken.
        self.begin_stage(check, now, &Totals::default(), true)
    }

    #[inline]
    fn begin_stage(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        totals: &Totals,
        is_admitted: bool,
    ) -> Admitting<S::Ticket> {
        let mut decision = Decision::begin(self.load());
        let overrides = overrides(check, self.profile());
        let (snapshot, statuses) = decision.parts();
        let context = Context {
            totals,
            permits: true,
            ..self.context(snapshot, now)
        };
        let mut plan = Plan::new(context, check, &overrides);
        let mut slots = self.slots(&plan);
        let stage = match is_admitted {
            true => Stage::Permits,
            false if slots.is_some() && plan.may_wait() => Stage::Rates,
            false => Stage::All,
        };
        let policies = stage.cut(&mut plan);
        slots.take_if(|_| stage == Stage::Rates);
        let extra = slots.as_ref().map(|slots| slots.extra(PermitAct::Acquire));
        match self.ask(&plan, now, extra.as_ref()) {
            Answer::Decided(verdicts) => {
                let mut turn = None;
                plan.fill(&verdicts, statuses, |step, _, answered| {
                    self.note(step, &answered, now);
                    Turn::put_later(&mut turn, step, &answered);
                });
                let policies = policies.unwrap_or_else(|| plan.policies());
                let queued = stage.queued(&plan, &verdicts, turn, now);
                drop(plan);
                decision.conclude(verdicts.allowed);
                Admitting::Decided(Admitted {
                    decision,
                    policies,
                    slots: slots.filter(|_| verdicts.allowed),
                    queued,
                })
            }
            Answer::Pending(ticket) => {
                let may_wait = plan.may_wait();
                drop(plan);
                let admission = Admission {
                    decision,
                    now,
                    stage,
                    slots,
                    may_wait,
                };
                Admitting::Asked(admission, ticket)
            }
        }
    }

    /// What the store's `answer` to `check` comes to, the same that was
    /// [begun](Self::begin_admission).
    pub fn conclude_admission(
        &self,
        check: &Check<'_>,
        admission: Admission,
        answer: Result<Verdicts, StoreError>,
    ) -> Admitted {
        let Admission {
            mut decision,
            now,
            stage,
            slots,
            may_wait: _,
        } = admission;
        let overrides = overrides(check, self.profile());
        // Matched once more rather than kept: by the same rules, and heard of already.
        let unheard = Totals::default();
        let (snapshot, statuses) = decision.parts();
        let context = Context {
            totals: &unheard,
            permits: true,
            ..self.context(snapshot, now)
        };
        let mut plan = Plan::new(context, check, &overrides);
        let policies = stage.cut(&mut plan);
        // What was asked in vain may have been done all the same.
        let is_settled = |verdicts: &Verdicts| !verdicts.allowed && verdicts.fault().is_none();
        let may_be_held = !answer.as_ref().is_ok_and(is_settled);
        let extra = slots.as_ref().map(|slots| slots.extra(PermitAct::Acquire));
        let verdicts = self.heard(&plan, now, extra.as_ref(), answer);
        let mut turn = None;
        plan.fill(&verdicts, statuses, |step, _, answered| {
            self.note(step, &answered, now);
            Turn::put_later(&mut turn, step, &answered);
        });
        let policies = policies.unwrap_or_else(|| plan.policies());
        let queued = stage.queued(&plan, &verdicts, turn, self.clock().now());
        drop(plan);
        decision.conclude(verdicts.allowed);
        Admitted {
            decision,
            policies,
            slots: slots.filter(|_| may_be_held),
            queued,
        }
    }

    /// Gives slots back. Twice is as good as once. Done at once, unless there is a ticket to await;
    /// what cannot be given back ends at its deadline.
    #[must_use = "a ticket that is dropped may never be sent"]
    pub fn release_slots(&self, slots: &Slots) -> Option<S::Ticket> {
        match self.act_on(slots, PermitAct::Release) {
            Answer::Decided(_) => None,
            Answer::Pending(ticket) => Some(ticket),
        }
    }

    /// Moves the deadline of slots on, to their limits' timeouts from now.
    ///
    /// # Errors
    /// [`HoldError::NotHeld`] if one is not held any more; [`HoldError::Store`].
    pub async fn renew_slots(&self, slots: &Slots) -> Result<(), HoldError> {
        let verdicts = match self.act_on(slots, PermitAct::Renew) {
            Answer::Decided(verdicts) => verdicts,
            Answer::Pending(ticket) => fully(ticket.await)?,
        };
        let is_held = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Counted(outcome) if outcome.fits());
        match !verdicts.outcomes.is_empty() && verdicts.outcomes.iter().all(is_held) {
            true => Ok(()),
            false => Err(HoldError::NotHeld),
        }
    }

    fn act_on(&self, slots: &Slots, act: PermitAct) -> Answer<S::Ticket> {
        let now = self.clock().now();
        let snapshot = self.load();
        let steps = snapshot.settlement(&slots.parts, now, |_| 0);
        self.send(&steps, &slots.extra(act), now)
    }

    /// The permits that the steps of `plan` take.
    fn slots(&self, plan: &Plan<'_>) -> Option<Slots> {
        let mut parts = SmallVec::new();
        let mut expires_after = Micros::MAX;
        for taken in plan.parts(|step| is_concurrency(step) && step.hits > 0) {
            expires_after = expires_after.min(taken.window);
            parts.push(taken.part);
        }
        (!parts.is_empty()).then(|| Slots {
            id: self.new_id(),
            parts,
            expires_after,
        })
    }
}
