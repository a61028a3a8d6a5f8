//! The known counters of a group that was denied.

use ratekeeper_core::{Ask, Micros, Moment, StateRef, Timestamp, combine};
use ratekeeper_store::{Charge, Execution, Request, StepOutcome, Verdicts};
use smallvec::SmallVec;

use super::group::{Group, GroupStep};
use super::replay::Replay;
use super::state::{Counter, Kept};

/// The counters of a denied group, as they were right after. Unless something is given back, they
/// only get fuller until time passes, and time is accounted for: Redis would deny whatever these
/// states deny.
#[derive(Clone, Debug)]
pub(crate) struct DeniedCounters {
    group: Group,
    counters: SmallVec<[Counter; 2]>,
    at: Timestamp,
}

impl DeniedCounters {
    /// The counters of `group` that `replay` ends with; [`None`] if its denials must not be
    /// repeated from memory: if a denial changes counters, permits are waited for, or a request
    /// takes twice from one counter.
    pub(super) fn new(group: &Group, replay: Replay<'_>) -> Option<Self> {
        // Of a limit paid afterwards looks are denied, and nothing else is.
        let is_repeatable = |(part, hits): (&GroupStep, &i64)| match part.limit.is_post_paid() {
            true => *hits == 0,
            false => *hits > 0 && part.charge == Charge::IfAllowed,
        };
        let is_repeatable = group.extra.is_none()
            && group.parts.iter().enumerate().all(|(index, part)| {
                usize::from(part.counter) == index && !part.limit.algorithm().holds_permits()
            })
            && group
                .runs
                .iter()
                .all(|run| group.parts.iter().zip(&run.hits).all(is_repeatable));
        if !is_repeatable {
            return None;
        }
        let (at, counters) = replay.into_parts();
        let mut group = group.clone();
        // The last run is the one that was denied last.
        let denied = group.runs.pop()?;
        group.runs.clear();
        group.runs.push(denied);
        Some(Self {
            group,
            counters,
            at,
        })
    }

    /// The counters' names.
    pub(crate) fn keys(&self) -> impl Iterator<Item = ratekeeper_store::CounterKey> + '_ {
        self.group.parts.iter().map(|part| part.key)
    }

    /// Returns true if leases were open on one of the counters: what they hold comes back at any time.
    pub(crate) fn is_leased(&self) -> bool {
        self.counters
            .iter()
            .any(|counter| !counter.escrow.is_empty())
    }

    /// Returns true if regions share one of the counters: other nodes may add to what this region may use at any time.
    pub(crate) fn is_shared(&self) -> bool {
        self.group.parts.iter().any(GroupStep::is_lent)
    }

    /// Returns true if `now` is in a window of `part` that has a share of its own, which is not known.
    fn is_another_window(&self, part: &GroupStep, now: Timestamp) -> bool {
        let window = part.limit.window().get().max(1);
        part.is_lent()
            && part.limit.algorithm().has_fixed_windows()
            && now.as_micros() / window != self.at.as_micros() / window
    }

    /// Returns the answer to `request`, `since` these states were read, if that is a denial;
    /// [`None`] if Redis has to be asked.
    pub(crate) fn denial(&self, request: &Request<'_>, since: Micros) -> Option<Verdicts> {
        if !self.group.asks(request) || !self.are_hits_known(request) {
            return None;
        }
        let now = self.at.after(since);
        let mut parts = self.group.parts.iter();
        if parts.any(|part| self.is_another_window(part, now)) {
            return None;
        }
        let mut outcomes: SmallVec<[StepOutcome; 4]> = SmallVec::new();
        let parts = self.group.parts.iter().zip(&self.counters);
        for (step, (part, counter)) in request.steps.iter().zip(parts) {
            let state = match &counter.kept {
                Kept::Words(words) => StateRef::Words(words),
                Kept::Heap(heap) => StateRef::Heap(heap),
                Kept::Held(_) => return None,
            };
            let moment = Moment {
                now,
                calendar: step.calendar,
            };
            let limit = part.under(counter.share);
            let ask = Ask::hits(step.hits);
            let outcome = counter.escrow.test(&limit, state, ask, &moment);
            outcomes.push(StepOutcome::Counted(outcome));
        }
        let votes = request.steps.iter().zip(&outcomes);
        let votes = votes.map(|(step, outcome)| step.vote(outcome.fits()));
        let allowed = combine(votes, request.mode);
        (!allowed).then_some(Verdicts {
            allowed,
            outcomes,
            at: now,
            execution: Execution::Now,
        })
    }

    /// False for looks and refunds. Of a log no more is known than the denied hits needed.
    fn are_hits_known(&self, request: &Request<'_>) -> bool {
        let denied = self.group.runs.first().map(|run| &run.hits);
        let known = denied.into_iter().flatten();
        request.steps.iter().zip(known).all(|(step, denied)| {
            // A charge of a limit paid afterwards is never answered from memory, and no other look is.
            (step.hits > 0) != step.limit.is_post_paid()
                && step.hits >= 0
                && (!step.limit.algorithm().lists_hits() || step.hits == *denied)
        })
    }
}
