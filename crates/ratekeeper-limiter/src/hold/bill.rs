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
    taken: SmallVec<[u64; 2]>,
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
        let taken: SmallVec<[u64; 2]> = budgets
            .map(|(_, _, answered)| reserved.saturating_sub(answered.cut))
            .collect();
        (!taken.is_empty()).then(|| {
            Self(Box::new(BillParts {
                snapshot: decision.shared_snapshot(),
                plan: plan.only(is_budget),
                taken,
                at: verdicts.at,
            }))
        })
    }

    /// Charges `hits` to each budget, less what was taken of it; what was taken beyond that is given back. A charge that
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
            taken,
            at,
        } = *self.0;
        let now = limiter.clock().now();
        let hits = hits.min(MAX_COUNT);
        if let Some(meter) = limiter.meter().filter(|_| hits > 0) {
            plan.meter_spent(&snapshot, hits, now, meter);
        }
        for (step, taken) in plan.steps.iter_mut().zip(&taken) {
            step.hits = hits.cast_signed() - taken.cast_signed();
            step.charge = Charge::Always;
            // It votes on nothing: what was used is charged.
            step.shadow = true;
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

impl<S: Store> Limiter<S> {
    /// Carries out the steps of `plan`, which was made by `snapshot`, as the limits are now.
    fn send_bill(
        self: &Arc<Self>,
        snapshot: &Arc<Snapshot>,
        mut plan: Plan,
        extra: Option<Extra>,
        now: Timestamp,
    ) -> Option<impl Future<Output = ()> + Send + use<S>> {
        plan.renew(snapshot, &self.load(), now);
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
