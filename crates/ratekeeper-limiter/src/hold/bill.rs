//! Budgets that a request pays once its cost is known: limits that are paid afterwards.

use std::sync::Arc;

use arc_swap::Guard;
use ratekeeper_core::{MAX_COUNT, Timestamp};
use ratekeeper_store::{Answer, Charge, Extra, Step, Store, StoreError, Verdicts};
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
    reserved: u64,
    /// True of each that gives nothing of them back.
    keeps: SmallVec<[bool; 2]>,
    /// The time of the decision by the store's clock.
    at: Timestamp,
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
        let snapshot = decision.snapshot();
        let answers = plan.answers(snapshot, verdicts);
        let budgets = answers.filter(|(step, ..)| is_budget(step));
        let keeps: SmallVec<[bool; 2]> = budgets
            .map(|(step, _, answered)| {
                // What was reserved beyond the quota is forgotten, and must not be given back: who overdraws it again and
                // again would never be denied.
                step.limit.forgets_excess() && answered.remaining == 0
            })
            .collect();
        (!keeps.is_empty()).then(|| {
            Self(Box::new(BillParts {
                snapshot: decision.shared_snapshot(),
                plan: plan.only(is_budget),
                reserved,
                keeps,
                at: verdicts.at,
            }))
        })
    }

    /// Charges `hits` to each budget, less what was reserved; what was reserved beyond that is given back. A charge that
    /// the store does not answer is owed, whatever the failure mode. Done at once, unless there is a future to await.
    #[must_use = "a charge whose future is dropped may never be sent"]
    pub fn pay<S: Store>(
        self,
        limiter: &Arc<Limiter<S>>,
        hits: u64,
    ) -> Option<impl Future<Output = ()> + Send + 'static> {
        let BillParts {
            snapshot,
            mut plan,
            reserved,
            keeps,
            at,
        } = *self.0;
        let now = limiter.clock().now();
        let hits = hits.min(MAX_COUNT);
        if let Some(meter) = limiter.meter().filter(|_| hits > 0) {
            plan.meter_spent(&snapshot, hits, now, meter);
        }
        let due = hits.cast_signed() - reserved.cast_signed();
        if due == 0 {
            return None;
        }
        for (step, keeps) in plan.steps.iter_mut().zip(&keeps) {
            step.hits = if due < 0 && *keeps { 0 } else { due };
            step.charge = Charge::Always;
            // It votes on nothing: what was used is charged.
            step.shadow = true;
        }
        plan.renew(&snapshot, &limiter.load(), now);
        let mut matched = MatchedCheck::new(Guard::from_inner(snapshot), now);
        matched.plan = plan;
        let extra = (due < 0).then(|| Extra {
            taken_at: Some(at),
            ..Extra::default()
        });
        match limiter.send(&matched, extra.as_ref()) {
            Answer::Decided(ref verdicts) => {
                limiter.paid(&matched, verdicts);
                None
            }
            Answer::Pending(mut ticket) => {
                let limiter = Arc::clone(limiter);
                Some(async move {
                    let answer = (&mut ticket).await;
                    let verdicts = match answer {
                        Err(StoreError::Timeout) if extra.is_none() => {
                            limiter.timed_out(&matched, S::late(ticket))
                        }
                        answer => limiter.resolve_answer(&matched, extra.as_ref(), answer),
                    };
                    limiter.paid(&matched, &verdicts);
                })
            }
        }
    }
}

impl<S: Store> Limiter<S> {
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
