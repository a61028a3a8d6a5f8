//! Budgets that a request pays once its cost is known: limits that are paid afterwards.

use std::sync::Arc;

use arc_swap::Guard;
use ratekeeper_core::{MAX_COUNT, Micros, Timestamp};
use ratekeeper_store::{Answer, Charge, Extra, Step, StepOutcome, Store, StoreError, Verdicts};
use smallvec::SmallVec;

use crate::decide::MatchedCheck;
use crate::plan::Plan;
use crate::purpose::BudgetUse;
use crate::{Decision, LimitSource, Limiter, Snapshot};

/// The budgets that a request is to pay. Dropped unpaid, it costs what it reserved.
#[derive(Debug)]
pub struct Bill(Box<BillParts>);

#[derive(Debug)]
struct BillParts {
    snapshot: Arc<Snapshot>,
    /// The steps on limits that are paid afterwards.
    plan: Plan,
    /// The hits that each of them took.
    taken: SmallVec<[TakenHits; 2]>,
    /// The use that the request made of them.
    budgets: BudgetUse,
    /// The time of the decision by the store's clock.
    at: Timestamp,
}

/// The hits that a request took of a budget before its cost was known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TakenHits {
    hits: u64,
    counter: TakenOf,
}

/// The counter that hits were taken of, which alone can give them back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TakenOf {
    /// The store's.
    Store,
    /// One of this node, while the store gave no answer. Nobody knows how many of them the store will have counted.
    Node,
    /// None: a failure mode let them pass.
    Nothing,
}

impl TakenHits {
    /// The part of the `reserved` hits that an allowed request took, by the outcome of its step.
    fn of(reserved: u64, outcome: &StepOutcome) -> Self {
        let hits = match outcome.fits() {
            true => reserved.saturating_sub(outcome.cut()),
            // In shadow, or in quota mode, it was let in all the same.
            false => 0,
        };
        let counter = match outcome {
            StepOutcome::Counted(_) => TakenOf::Store,
            StepOutcome::OnThisNode(_) => TakenOf::Node,
            StepOutcome::Leased(_) | StepOutcome::Full(_) | StepOutcome::Unanswered(_) => {
                TakenOf::Nothing
            }
        };
        Self { hits, counter }
    }
}

impl Bill {
    /// The bill of a request that made such `budgets` of the limits in `plan`; None if none of them is paid afterwards.
    pub(super) fn of(
        plan: &Plan,
        decision: &Decision,
        verdicts: &Verdicts,
        budgets: BudgetUse,
    ) -> Option<Self> {
        let reserved = match budgets {
            BudgetUse::Charge => return None,
            BudgetUse::Look => 0,
            BudgetUse::Reserve(hits) if verdicts.allowed => hits.min(MAX_COUNT),
            BudgetUse::Reserve(_) => 0,
        };
        let is_budget = |step: &Step| step.limit.is_post_paid();
        let steps = plan.steps.iter().zip(&verdicts.outcomes);
        let taken = steps.filter(|(step, _)| is_budget(step));
        let taken = taken.map(|(_, outcome)| TakenHits::of(reserved, outcome));
        let taken: SmallVec<[TakenHits; 2]> = taken.collect();
        (!taken.is_empty()).then(|| {
            Self(Box::new(BillParts {
                snapshot: decision.shared_snapshot(),
                plan: plan.only(is_budget),
                taken,
                budgets,
                at: verdicts.at,
            }))
        })
    }

    /// Charges `hits` to each budget, less what was taken of it. What was taken beyond that is given back to the counter that
    /// it was taken of: the store, while it does not answer, keeps it, and gets nothing back of what this node took alone. A
    /// charge that the store does not answer is owed, whatever the failure mode. Done at once, unless there is a future to
    /// await.
    #[must_use = "a charge whose future is dropped may never be sent"]
    pub fn pay<S: Store>(
        mut self,
        limiter: &Arc<Limiter<S>>,
        hits: u64,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let now = limiter.clock().now();
        let hits = hits.min(MAX_COUNT);
        if let Some(meter) = limiter.meter().filter(|_| hits > 0) {
            let BillParts { snapshot, plan, .. } = &*self.0;
            plan.meter_spent(snapshot, hits, now, meter);
        }
        let on_node = self.0.settle(hits);
        let BillParts {
            snapshot,
            mut plan,
            budgets,
            at,
            ..
        } = *self.0;
        if let Some(fallback) = limiter.fallback().filter(|_| !on_node.is_empty()) {
            fallback.give_back(&on_node, at, now);
        }
        plan.renew(&snapshot, &limiter.load(), now);
        if let BudgetUse::Reserve(_) = budgets {
            // As the reservation was made: of the store's counter, though the rules keep one on each node.
            let steps = plan.steps.iter_mut();
            steps.for_each(|step| step.sync = Micros::ZERO);
        }
        // What is given back is never owed, so it goes apart.
        let more = plan.only(|step| step.hits > 0);
        let back = plan.only(|step| step.hits < 0);
        let extra = Extra {
            taken_at: Some(at),
            ..Extra::default()
        };
        let paid = limiter.send_bill(&snapshot, more, None, now);
        let given_back = limiter.send_bill(&snapshot, back, Some(extra), now);
        (paid.is_some() || given_back.is_some()).then_some(async move {
            if let Some(paid) = paid {
                paid.await;
            }
            if let Some(given_back) = given_back {
                given_back.await;
            }
        })
    }
}

impl BillParts {
    /// Sets the hits that each step charges to the store, or gives back to it if negative, where `hits` were used. Returns the
    /// steps that give hits back to counters of this node.
    fn settle(&mut self, hits: u64) -> SmallVec<[Step; 2]> {
        let mut on_node = SmallVec::new();
        for (step, taken) in self.plan.steps.iter_mut().zip(&self.taken) {
            step.charge = Charge::Always;
            // It votes on nothing: what was used is charged.
            step.shadow = true;
            step.hits = hits.cast_signed() - taken.hits.cast_signed();
            if step.hits >= 0 || taken.counter == TakenOf::Store {
                continue;
            }
            if taken.counter == TakenOf::Node {
                on_node.push(*step);
            }
            step.hits = 0;
        }
        on_node
    }
}

impl<S: Store> Limiter<S> {
    /// Carries out the steps of `plan`, which was made by `snapshot`.
    fn send_bill(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        plan: Plan,
        extra: Option<Extra>,
        now: Timestamp,
    ) -> Option<impl Future<Output = ()> + Send + use<S>> {
        if plan.steps.is_empty() {
            return None;
        }
        let mut matched = MatchedCheck::new(Guard::from_inner(Arc::clone(snapshot)), now);
        matched.plan = plan;
        match self.send(&matched, extra.as_ref()) {
            Answer::Decided(ref verdicts) => {
                self.paid(&matched, verdicts);
                None
            }
            Answer::Pending(mut ticket) => {
                let limiter = Arc::clone(self);
                Some(async move {
                    let answer = (&mut ticket).await;
                    let verdicts = match (answer, extra) {
                        (Err(StoreError::Timeout), None) => {
                            limiter.timed_out(&matched, S::late(ticket))
                        }
                        (answer, None) => limiter.resolve_answer(&matched, None, answer),
                        (Ok(verdicts), Some(_)) => verdicts,
                        // The counters of this node took nothing that they could give back.
                        (Err(_), Some(_)) => return,
                    };
                    limiter.paid(&matched, &verdicts);
                })
            }
        }
    }

    /// Records what budgets answered to a charge. It is no decision, so it counts as none.
    fn paid(&self, matched: &MatchedCheck, verdicts: &Verdicts) {
        let snapshot = matched.decision.snapshot();
        for (step, source, answered) in matched.plan.answers(snapshot, verdicts) {
            self.observe(step, &answered, matched.now);
            if answered.cut > 0
                && let LimitSource::Rule(index) = source
            {
                snapshot.compiled(index).stats.record_cut(answered.cut);
            }
        }
    }
}
