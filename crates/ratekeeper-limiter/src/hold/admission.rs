//! Requests that are held until they have ended: they wait for their turn, and release their slots.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arc_swap::Guard;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_store::{
    Answer, Extra, Permit, PermitAct, StepOutcome, Store, StoreError, Verdicts,
};
use smallvec::SmallVec;

use super::permits::is_concurrency;
use super::{Bill, BucketTurn, HoldError, Queued, Receipt, fully};
use crate::decide::MatchedCheck;
use crate::plan::Plan;
use crate::purpose::{BudgetUse, Purpose, is_reserve};
use crate::token::HoldPart;
use crate::{Check, Decision, Limiter, Policies, Snapshot};

/// The answer to a request that is held until it has ended.
#[derive(Debug)]
pub struct Admitted {
    /// The decision: allow or deny, and what remains of each limit.
    pub decision: Decision,
    /// The enforced limits that it is held to, each once.
    pub policies: Policies,
    /// Slots of concurrency limits that it holds, or may hold if the store gave no answer: to be
    /// [released](HeldSlots::release), even after a denial. None if it holds nothing.
    pub slots: Option<HeldSlots>,
    /// The queued request, if it was allowed and may not go on yet, because it must wait for its turn
    /// or still has to get its permits.
    pub queued: Option<Box<Queued>>,
    /// The receipt for what it took of its rates, if it [is kept](ReceiptMode::Kept) and the request was allowed to
    /// go on at once.
    pub receipt: Option<Receipt>,
    /// The bill to pay when the cost of the request is known, if it was to [look](BudgetUse::Look) at budgets or
    /// [reserve](BudgetUse::Reserve) hits of them, and is held to one.
    pub bill: Option<Bill>,
}

/// The use of the [receipt](Admitted::receipt) for what a request takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReceiptMode {
    /// It is dropped.
    Dropped,
    /// It is kept, to give back what was taken: the request may still be refused for overload.
    Kept,
}

/// A request whose store was asked, and has not answered.
#[derive(Debug)]
pub struct PendingAdmission<T>(Box<Pending<T>>);

#[derive(Debug)]
struct Pending<T> {
    matched: MatchedCheck,
    terms: Terms,
    ticket: T,
}

/// Policies and slots that a request is admitted with.
#[derive(Debug)]
struct Terms {
    policies: Policies,
    /// Slots that it will hold if it is admitted.
    slots: Option<HeldSlots>,
    deferred: Option<DeferredPermits>,
    receipt: ReceiptMode,
    budgets: BudgetUse,
}

/// The concurrency limits of a request that a leaky bucket may hold back: they are checked once its
/// turn has come, by the rules that it was matched with.
#[derive(Debug)]
pub struct DeferredPermits(Box<DeferredPlan>);

#[derive(Debug)]
struct DeferredPlan {
    snapshot: Arc<Snapshot>,
    plan: Plan,
    /// The policies of all its limits.
    policies: Policies,
}

impl<T> PendingAdmission<T> {
    /// Slots that the request will hold if it is admitted: to be released if its answer is not waited
    /// for.
    #[must_use]
    pub const fn slots(&self) -> Option<&HeldSlots> {
        self.0.terms.slots.as_ref()
    }

    /// True if the request may have taken a turn in a leaky bucket, or reserved hits of a budget. Only the store's answer tells,
    /// and a caller that no longer waits for it must [abandon](Self::abandon) the request, so that they are given back.
    #[must_use]
    pub fn must_be_heard(&self) -> bool {
        let MatchedCheck { decision, plan, .. } = &self.0.matched;
        plan.may_wait(decision.snapshot()) || plan.steps.iter().any(is_reserve)
    }

    /// Polls the store for its answer, which is then to be [read](Self::conclude).
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T::Output>
    where
        T: Future + Unpin,
    {
        Pin::new(&mut self.0.ticket).poll(cx)
    }

    /// Reads the store's `answer`, by the `limiter` that asked. One that comes too late is settled in the background, but
    /// for permits, which end at their deadline.
    pub fn conclude<S: Store<Ticket = T>>(
        self,
        limiter: &Limiter<S>,
        answer: Result<Verdicts, StoreError>,
    ) -> Admitted {
        self.concluded(limiter, answer, read)
    }

    /// As [`Self::conclude`], with verdicts that `read` reads.
    #[inline]
    fn concluded<S: Store<Ticket = T>>(
        self,
        limiter: &Limiter<S>,
        answer: Result<Verdicts, StoreError>,
        read: impl FnOnce(&Limiter<S>, &mut MatchedCheck, &Verdicts) -> Option<BucketTurn>,
    ) -> Admitted {
        let Pending {
            mut matched,
            terms,
            ticket,
        } = *self.0;
        // A request without an answer may have been carried out all the same.
        let is_settled = |verdicts: &Verdicts| !verdicts.allowed && verdicts.fault().is_none();
        let may_be_held = !answer.as_ref().is_ok_and(is_settled);
        let verdicts = match (answer, terms.extra()) {
            (Err(StoreError::Timeout), None) => limiter.timed_out(&matched, S::late(ticket)),
            (answer, extra) => limiter.resolve_answer(&matched, extra.as_ref(), answer),
        };
        let turn = read(limiter, &mut matched, &verdicts);
        let heard = limiter.clock().now();
        let MatchedCheck {
            decision, ref plan, ..
        } = matched;
        terms.admitted(decision, plan, &verdicts, turn, may_be_held, heard)
    }

    /// Waits for the store's answer to a request whose caller is gone, and gives back what only that tells: what it reserved of
    /// budgets, and a turn in a leaky bucket with the hits that it took along with that. Other hits stay taken, and its
    /// [slots](Self::slots) are to be released apart. It is no call, and in no statistics.
    pub async fn abandon<S: Store<Ticket = T>>(mut self, limiter: Arc<Limiter<S>>)
    where
        T: Future<Output = Result<Verdicts, StoreError>> + Unpin,
    {
        let answer = poll_fn(|cx| self.poll(cx)).await;
        if let Err(why) = answer {
            return self.abandon_unanswered(&limiter, why);
        }
        let Admitted { queued, bill, .. } = self.concluded(&limiter, answer, turn);
        match (queued, bill) {
            // It has the reserved hits too.
            (Some(queued), _) => {
                if let Some(back) = queued.receipt.give_back(&limiter) {
                    let _ = back.await;
                }
            }
            (None, Some(bill)) => {
                if let Some(paying) = bill.pay(&limiter, 0) {
                    paying.await;
                }
            }
            (None, None) => {}
        }
    }

    /// Gives back what the store reserves for a request whose caller is gone, once it answers after all.
    fn abandon_unanswered<S: Store<Ticket = T>>(self, limiter: &Limiter<S>, why: StoreError) {
        let Pending {
            matched, ticket, ..
        } = *self.0;
        let late = match why {
            StoreError::Timeout => S::late(ticket),
            _ => None,
        };
        limiter.give_back_late(&matched, is_reserve, late, why);
    }
}

/// Reads the verdicts into the decision, and finds the turn to wait for.
#[inline]
fn read<S: Store>(
    limiter: &Limiter<S>,
    matched: &mut MatchedCheck,
    verdicts: &Verdicts,
) -> Option<BucketTurn> {
    let now = matched.now;
    let mut turn = None;
    matched.fill(verdicts, |step, answered| {
        limiter.observe(step, answered, now);
        BucketTurn::put_later(&mut turn, step, answered);
    });
    limiter.count_call(matched, verdicts);
    turn
}

/// Finds the turn of a request whose caller is gone: its decision is for nobody, and it does not count.
fn turn<S: Store>(
    _: &Limiter<S>,
    matched: &mut MatchedCheck,
    verdicts: &Verdicts,
) -> Option<BucketTurn> {
    let mut turn = None;
    let snapshot = matched.decision.snapshot();
    for (step, _, answered) in matched.plan.answers(snapshot, verdicts) {
        BucketTurn::put_later(&mut turn, step, &answered);
    }
    turn
}

impl Terms {
    /// The permit that the request takes.
    fn extra(&self) -> Option<Extra> {
        let slots = self.slots.as_ref()?;
        Some(slots.extra(PermitAct::Acquire))
    }

    /// The answer to the request, by `verdicts` that were received at `heard`.
    #[inline]
    fn admitted(
        self,
        decision: Decision,
        plan: &Plan,
        verdicts: &Verdicts,
        turn: Option<BucketTurn>,
        may_be_held: bool,
        heard: Timestamp,
    ) -> Admitted {
        let snapshot = decision.snapshot();
        let turn = turn.filter(|_| plan.may_wait(snapshot));
        let waits = verdicts.allowed && (self.deferred.is_some() || turn.is_some());
        let is_kept = self.receipt == ReceiptMode::Kept && verdicts.allowed && !waits;
        let receipt = is_kept.then(|| plan.receipt(snapshot, verdicts, heard));
        let queued = waits.then(|| {
            Box::new(Queued {
                turn,
                permits: self.deferred,
                receipt: plan.receipt(snapshot, verdicts, heard),
            })
        });
        let bill = Bill::of(plan, &decision, verdicts, self.budgets);
        Admitted {
            decision,
            policies: self.policies,
            slots: self.slots.filter(|_| may_be_held),
            queued,
            receipt,
            bill,
        }
    }
}

/// A permit of each concurrency limit that a request is held to, kept by this process: equivalent to
/// the token of [`CallerHolds::acquire`](super::CallerHolds::acquire), but never serialized.
#[derive(Clone, Debug)]
pub struct HeldSlots {
    id: u128,
    parts: SmallVec<[HoldPart; 2]>,
    expires_after: Micros,
}

impl HeldSlots {
    /// The time until they expire, counted from when they were taken or renewed: the shortest
    /// timeout of their limits.
    #[must_use]
    pub const fn expires_after(&self) -> Micros {
        self.expires_after
    }

    /// Gives the slots back to the `limiter` that granted them. Doing so twice does no harm. Done at
    /// once, unless there is a ticket to await; a slot that cannot be given back ends at its deadline.
    #[must_use = "a ticket that is dropped may never be sent"]
    pub fn release<S: Store>(&self, limiter: &Limiter<S>) -> Option<S::Ticket> {
        match self.act(limiter, PermitAct::Release) {
            Answer::Decided(_) => None,
            Answer::Pending(ticket) => Some(ticket),
        }
    }

    /// Extends the deadline to their limits' timeouts from now.
    ///
    /// # Errors
    /// [`HoldError::NotHeld`] if one is no longer held; [`HoldError::Store`].
    pub async fn renew<S: Store>(&self, limiter: &Limiter<S>) -> Result<(), HoldError> {
        let verdicts = match self.act(limiter, PermitAct::Renew) {
            Answer::Decided(verdicts) => verdicts,
            Answer::Pending(ticket) => fully(ticket.await)?,
        };
        let is_held = |outcome: &StepOutcome| matches!(outcome, StepOutcome::Counted(outcome) if outcome.fits());
        match !verdicts.outcomes.is_empty() && verdicts.outcomes.iter().all(is_held) {
            true => Ok(()),
            false => Err(HoldError::NotHeld),
        }
    }

    fn act<S: Store>(&self, limiter: &Limiter<S>, act: PermitAct) -> Answer<S::Ticket> {
        let now = limiter.clock().now();
        let steps = limiter.load().settlement(&self.parts, now, |_, _| 0);
        limiter.send_steps(&steps, &self.extra(act), now)
    }

    fn extra(&self, act: PermitAct) -> Extra {
        Extra {
            permit: Some(Permit { id: self.id, act }),
            ..Extra::default()
        }
    }
}

impl<S: Store> Limiter<S> {
    /// Asks the store to decide `check` as of `now`, a time just read from [`Self::clock`],
    /// concurrency limits included, and does not wait for it. Rates and permits are taken together
    /// or not at all, unless a leaky bucket may hold the request back: then permits are
    /// [taken later](Queued::permits). If no concurrency limit matches, it costs as much as a
    /// check.
    #[inline]
    pub fn admit(
        &self,
        check: &Check<'_>,
        now: Timestamp,
        receipt: ReceiptMode,
    ) -> Answer<PendingAdmission<S::Ticket>, Admitted> {
        self.begin_admission(self.load(), now, |matched| {
            self.begin(matched, check, Purpose::Hold);
            let MatchedCheck { decision, plan, .. } = matched;
            let policies = plan.policies(decision.snapshot());
            let mut slots = self.slots(plan, decision.snapshot());
            let mut deferred = None;
            if slots.is_some() && plan.may_wait(decision.snapshot()) {
                slots = None;
                deferred = Some(DeferredPermits(Box::new(DeferredPlan {
                    snapshot: decision.shared_snapshot(),
                    plan: plan.split_off(is_concurrency),
                    policies: policies.clone(),
                })));
            }
            Terms {
                policies,
                slots,
                deferred,
                receipt,
                budgets: check.budgets,
            }
        })
    }

    /// Asks the store for the permits of a request whose rates were taken before, and whose turn
    /// has come. If it is denied, those are to be [given back](super::Receipt::give_back).
    pub fn admit_deferred(
        &self,
        deferred: DeferredPermits,
        now: Timestamp,
    ) -> Answer<PendingAdmission<S::Ticket>, Admitted> {
        let DeferredPlan {
            snapshot,
            plan,
            policies,
        } = *deferred.0;
        self.begin_admission(Guard::from_inner(snapshot), now, |matched| {
            matched.plan = plan;
            let MatchedCheck { decision, plan, .. } = matched;
            Terms {
                policies,
                slots: self.slots(plan, decision.snapshot()),
                deferred: None,
                receipt: ReceiptMode::Dropped,
                budgets: BudgetUse::Charge,
            }
        })
    }

    /// Asks the store about the check that `prepare` fills in; it is large, and is filled in place.
    #[inline(always)]
    fn begin_admission(
        &self,
        snapshot: Guard<Arc<Snapshot>>,
        now: Timestamp,
        prepare: impl FnOnce(&mut MatchedCheck) -> Terms,
    ) -> Answer<PendingAdmission<S::Ticket>, Admitted> {
        let mut matched = MatchedCheck::new(snapshot, now);
        let terms = prepare(&mut matched);
        match self.send(&matched, terms.extra().as_ref()) {
            Answer::Decided(ref verdicts) => {
                let turn = read(self, &mut matched, verdicts);
                // Moved out alone: the plan is large, and is read in place.
                let MatchedCheck {
                    decision, ref plan, ..
                } = matched;
                let holds = verdicts.allowed;
                Answer::Decided(terms.admitted(decision, plan, verdicts, turn, holds, now))
            }
            Answer::Pending(ticket) => Answer::Pending(PendingAdmission(Box::new(Pending {
                matched,
                terms,
                ticket,
            }))),
        }
    }

    /// The permits that the steps of `plan` take.
    fn slots(&self, plan: &Plan, snapshot: &Snapshot) -> Option<HeldSlots> {
        let mut parts = SmallVec::new();
        let mut expires_after = Micros::MAX;
        let takes = |step: &ratekeeper_store::Step| is_concurrency(step) && step.hits > 0;
        for taken in plan.parts(snapshot, takes) {
            expires_after = expires_after.min(taken.window);
            parts.push(taken.part);
        }
        (!parts.is_empty()).then(|| HeldSlots {
            id: self.new_id(),
            parts,
            expires_after,
        })
    }
}
