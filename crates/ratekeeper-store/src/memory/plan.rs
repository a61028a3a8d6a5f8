//! What is to become of the steps of a request, between the test and the charge.

use ratekeeper_core::{
    Algorithm, Ask, Heap, Limit, Moment, Outcome, StateMut, StateRef, Timestamp, concurrency,
};

use super::heap::Budget;
use super::table::{Place, Probe};
use crate::{Charge, Permit, PermitAct, RuleSlot, Step, StepOutcome};

/// Where a step's counter lies, or would.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    /// There is none, and the step makes none.
    Absent,
    /// It exists.
    Found(Place),
    /// It is made there if the step is charged.
    New(Place),
}

/// What is to become of one step: its answer, and what the charge will need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) probe: Probe,
    pub(super) shard: usize,
    pub(super) spot: Spot,
    pub(super) outcome: StepOutcome,
    pub(super) rule: RuleSlot,
    /// Hits that earlier steps of the request take from the same counter.
    pub(super) taken: u64,
    /// Heap bytes taken from the budget for it.
    pub(super) reserved: usize,
    /// Heap bytes that the doomed counters will leave it.
    pub(super) inherited: usize,
}

impl Plan {
    /// A plan that knows where its counter lies and nothing else yet.
    pub(super) fn located(probe: Probe, spot: Spot, step: &Step) -> Self {
        Self {
            probe,
            shard: probe.shard_bits(),
            spot,
            outcome: StepOutcome::Full(step.full_mode),
            rule: step.rule,
            taken: 0,
            reserved: 0,
            inherited: 0,
        }
    }

    /// Hits that later steps of the request find taken from its counter: those that fitted, and
    /// those that count whether they fit or not.
    pub(super) fn takes(&self, step: &Step) -> u64 {
        match self.outcome {
            StepOutcome::Counted(outcome) if outcome.fits() || step.charge == Charge::Always => {
                u64::try_from(step.hits).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Heap bytes that are there for its charge.
    pub(super) fn heap_bytes(&self, cx: &Context<'_>) -> usize {
        self.reserved + if cx.executed { self.inherited } else { 0 }
    }
}

/// The part of a request that its steps share, as one shard sees it.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) budget: &'a Budget,
    /// The plans of the request's other steps, whose counters are not to be evicted.
    pub(super) others: &'a [Plan],
    /// Whether anything is charged, and so the doomed counters are gone. Not known, and
    /// false, while steps are tested.
    pub(super) executed: bool,
    /// The permit that concurrency steps take, prolong or free.
    pub(super) permit: Option<Permit>,
}

impl Context<'_> {
    pub(super) fn moment(&self, step: &Step) -> Moment {
        Moment {
            now: self.now,
            calendar: step.calendar,
        }
    }

    /// What is to become of which permit, if the step is about one.
    #[inline]
    fn permit(&self, limit: &Limit) -> Option<Permit> {
        let permit = self.permit?;
        (limit.algorithm() == Algorithm::Concurrency).then_some(permit)
    }

    /// Whether the step changes a permit though it takes nothing.
    #[inline]
    pub(super) fn moves_permit(&self, limit: &Limit) -> bool {
        self.permit(limit)
            .is_some_and(|permit| permit.act != PermitAct::Acquire)
    }

    /// What the counter answers to the step.
    #[inline]
    pub(super) fn test(&self, step: &Step, taken: u64, state: StateRef<'_>) -> Outcome {
        let (limit, now) = (&step.limit, self.now);
        if let (Some(Permit { id, act }), StateRef::Heap(heap)) = (self.permit(limit), state) {
            return match act {
                PermitAct::Acquire => concurrency::ask(limit, heap, id, taken, now),
                PermitAct::Renew => concurrency::ask_holder(limit, heap, id, false, now),
                PermitAct::Release => concurrency::ask_holder(limit, heap, id, true, now),
            };
        }
        let ask = Ask {
            taken,
            hits: step.hits,
        };
        limit.test(state, ask, &self.moment(step))
    }

    /// Charges a state on the heap.
    pub(super) fn charge(&self, limit: &Limit, heap: &mut Heap, hits: i64, at: &Moment) {
        match self.permit(limit) {
            Some(Permit { id, act }) if hits > 0 || act != PermitAct::Acquire => {
                // What they answer was found out by the test.
                let _ = match act {
                    PermitAct::Acquire => concurrency::acquire(limit, heap, id, at.now).fits(),
                    PermitAct::Renew => concurrency::renew(limit, heap, id, at.now),
                    PermitAct::Release => concurrency::release(heap, id, at.now),
                };
            }
            _ => {
                // A heap never spills again.
                let _ = limit.charge(StateMut::Heap(heap), hits, at);
            }
        }
    }

    /// Whether another step of the request has a claim on that place.
    pub(super) fn is_claimed(&self, shard: usize, place: Place) -> bool {
        let claims = |plan: &Plan| match plan.spot {
            Spot::Found(claimed) | Spot::New(claimed) => plan.shard == shard && claimed == place,
            Spot::Absent => false,
        };
        self.others.iter().any(claims)
    }
}
