//! The plan of a request's steps, between test and charge.

use ratekeeper_core::{
    Ask, Heap, Limit, Moment, Outcome, StateMut, StateRef, Timestamp, concurrency,
};

use super::heap::Budget;
use super::table::{Position, Probe};
use crate::{Charge, Permit, PermitAct, RuleSlot, Step, StepOutcome};

/// The position of a step's counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    /// It does not exist, and the step does not create it.
    Absent,
    /// It exists.
    Found(Position),
    /// It is created there if the step is charged.
    New(Position),
}

/// The plan of one step: its answer, and the data for its charge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) probe: Probe,
    pub(super) shard: usize,
    pub(super) spot: Spot,
    pub(super) outcome: StepOutcome,
    pub(super) rule: RuleSlot,
    pub(super) charge: Charge,
    /// Hits that earlier steps of the request take from the same counter.
    pub(super) taken: u64,
    /// Heap bytes taken from the budget for it.
    pub(super) reserved: usize,
    /// Heap bytes that it gets from evicted counters.
    pub(super) inherited: usize,
}

impl Plan {
    /// A plan with only the position of its counter.
    pub(super) fn located(probe: Probe, spot: Spot, step: &Step) -> Self {
        Self {
            probe,
            shard: probe.shard_bits(),
            spot,
            outcome: StepOutcome::Full(step.full_mode),
            rule: step.rule,
            charge: step.charge,
            taken: 0,
            reserved: 0,
            inherited: 0,
        }
    }

    /// The hits that later steps of the request find taken from its counter: those that fitted, and
    /// those that count even if they do not fit.
    pub(super) fn takes(&self, step: &Step) -> u64 {
        match self.outcome {
            StepOutcome::Counted(outcome) if outcome.fits() || step.charge == Charge::Always => {
                u64::try_from(step.hits).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Heap bytes available for its charge.
    pub(super) fn heap_bytes(&self, cx: &Context<'_>) -> usize {
        let is_charged = cx.allowed || self.charge == Charge::Always;
        self.reserved + if is_charged { self.inherited } else { 0 }
    }
}

/// The data that the steps of a request share, as one shard sees it.
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) budget: &'a Budget,
    /// The plans of the request's other steps, whose counters must not be evicted.
    pub(super) others: &'a [Plan],
    /// True if the request is allowed, and so the counters doomed for any of its steps are gone. Not
    /// known, and false, during the test.
    pub(super) allowed: bool,
    /// The permit that concurrency steps take, renew or release.
    pub(super) permit: Option<Permit>,
}

impl Context<'_> {
    pub(super) fn moment(&self, step: &Step) -> Moment {
        Moment {
            now: self.now,
            calendar: step.calendar,
        }
    }

    /// The permit and its action, if the step is about one.
    #[inline]
    fn permit(&self, limit: &Limit) -> Option<Permit> {
        let permit = self.permit?;
        limit.algorithm().holds_permits().then_some(permit)
    }

    /// Returns true if the step changes a permit without taking hits.
    #[inline]
    pub(super) fn moves_permit(&self, limit: &Limit) -> bool {
        self.permit(limit)
            .is_some_and(|permit| permit.act != PermitAct::Acquire)
    }

    /// The counter's answer to the step.
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

    /// Charges an out-of-line state.
    pub(super) fn charge(&self, limit: &Limit, heap: &mut Heap, hits: i64, at: &Moment) {
        match self.permit(limit) {
            Some(Permit { id, act }) if hits > 0 || act != PermitAct::Acquire => {
                // The test has already determined their answers.
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

    /// Returns true if another step of the request uses that position.
    pub(super) fn is_claimed(&self, shard: usize, place: Position) -> bool {
        let claims = |plan: &Plan| match plan.spot {
            Spot::Found(claimed) | Spot::New(claimed) => plan.shard == shard && claimed == place,
            Spot::Absent => false,
        };
        self.others.iter().any(claims)
    }
}
