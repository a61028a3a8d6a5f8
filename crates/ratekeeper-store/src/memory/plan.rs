//! What is to become of the steps of a request, between the test and the charge.

use ratekeeper_core::{Moment, Timestamp};

use super::heap::Budget;
use super::table::{Place, Probe};
use crate::{RuleSlot, Step, StepOutcome};

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
    pub(super) fn located(probe: Probe, spot: Spot, step: &Step<'_>) -> Self {
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

    /// Hits it takes from its counter if the request is allowed.
    pub(super) fn takes(&self, step: &Step<'_>) -> u64 {
        match self.outcome {
            StepOutcome::Counted(outcome) if outcome.fits() => {
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
}

impl Context<'_> {
    pub(super) fn moment(&self, step: &Step<'_>) -> Moment {
        Moment {
            now: self.now,
            calendar: step.calendar,
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
