//! The answers to a group's requests, computed from the states that the script read: core repeats the script's steps.

use ratekeeper_core::concurrency::Held;
use ratekeeper_core::{Ask, Moment, Outcome, Spill, State, StateMut, StateRef, Timestamp, combine};
use ratekeeper_store::{Charge, Execution, PermitAct, Step, StepOutcome, Verdicts};
use smallvec::SmallVec;

use super::group::{Group, GroupStep, Run};
use super::state::{Counter, Kept};

/// A group's counters before its next request.
pub(super) struct Replay<'a> {
    group: &'a Group,
    now: Timestamp,
    /// One for each part; only the first of each counter is used.
    counters: SmallVec<[Counter; 2]>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(group: &'a Group, now: Timestamp, counters: SmallVec<[Counter; 2]>) -> Self {
        let mut replay = Self {
            group,
            now,
            counters,
        };
        let is_leased = |counter: &Counter| !counter.escrow.is_empty();
        if replay.counters.iter().any(is_leased) {
            replay.expire();
        }
        replay
    }

    /// Returns the time of the decision, and the counters then known.
    pub(super) fn into_parts(self) -> (Timestamp, SmallVec<[Counter; 2]>) {
        (self.now, self.counters)
    }

    /// Charges the leases that are over, as the script did before anything else.
    #[cold]
    fn expire(&mut self) {
        for (part, counter) in self.group.parts.iter().zip(&mut self.counters) {
            let at = Moment {
                now: self.now,
                calendar: part.calendar,
            };
            let mut state = match std::mem::replace(&mut counter.kept, Kept::Words([0; 4])) {
                Kept::Words(words) => State::Words(words),
                Kept::Heap(heap) => State::Heap(heap),
                held @ Kept::Held(_) => {
                    counter.kept = held;
                    continue;
                }
            };
            let limit = part.under(counter.share);
            counter.escrow.expire(&limit, &mut state, None, &at);
            counter.kept = match state {
                State::Words(words) => Kept::Words(words),
                State::Heap(heap) => Kept::Heap(heap),
            };
        }
    }

    /// The number of counters so far ahead of the clock that the script has moved them to its time.
    pub(super) fn moved(&self) -> u64 {
        let parts = self.group.parts.iter().zip(&self.counters).enumerate();
        let moved = parts.filter(|(index, (part, counter))| {
            let state = match &counter.kept {
                Kept::Words(words) => StateRef::Words(words),
                Kept::Heap(heap) => StateRef::Heap(heap),
                Kept::Held(_) => return false,
            };
            usize::from(part.counter) == *index && part.limit.is_ahead(state, self.now)
        });
        moved.count() as u64
    }

    /// The answer to the next request, which is one of `run`.
    pub(super) fn next(&mut self, run: &Run) -> Verdicts {
        let steps: SmallVec<[Step; 2]> = (self.group.parts.iter())
            .zip(&run.hits)
            .map(|(part, hits)| self.as_of(self.step(part, *hits)))
            .collect();
        let outcomes = self.test(&steps);
        let votes = steps.iter().zip(&outcomes);
        let votes = votes.map(|(step, outcome)| step.vote(outcome.fits()));
        let allowed = combine(votes, self.group.mode);
        for (index, (step, outcome)) in steps.iter().zip(&outcomes).enumerate() {
            let always = step.hits < 0 || step.charge == Charge::Always;
            let is_charged = always || (allowed && outcome.fits());
            self.charge(index, step, if is_charged { step.hits } else { 0 });
        }
        Verdicts {
            allowed,
            outcomes: outcomes.into_iter().map(StepOutcome::Counted).collect(),
            at: self.now,
            execution: Execution::Now,
        }
    }

    /// The step of `part`, under the share that its counter has.
    fn step(&self, part: &GroupStep, hits: i64) -> Step {
        let share = self.counters[usize::from(part.counter)].share;
        Step {
            limit: part.under(share),
            ..part.step(hits)
        }
    }

    fn test(&self, steps: &[Step]) -> SmallVec<[Outcome; 4]> {
        let mut taken: SmallVec<[u64; 4]> = SmallVec::from_elem(0, steps.len());
        let mut outcomes = SmallVec::with_capacity(steps.len());
        for (index, step) in steps.iter().enumerate() {
            let counter = usize::from(self.group.parts[index].counter);
            let outcome = self.ask(counter, step, taken[counter]);
            if outcome.fits() || step.charge == Charge::Always {
                let takes = u64::try_from(step.hits).unwrap_or(0);
                taken[counter] = taken[counter].saturating_add(takes);
            }
            outcomes.push(outcome);
        }
        outcomes
    }

    fn ask(&self, counter: usize, step: &Step, taken: u64) -> Outcome {
        let ask = Ask {
            taken,
            hits: step.hits,
        };
        let Counter { kept, escrow, .. } = &self.counters[counter];
        let state = match kept {
            Kept::Held(held) => return self.ask_held(*held, step, ask),
            Kept::Words(words) => StateRef::Words(words),
            Kept::Heap(heap) => StateRef::Heap(heap),
        };
        escrow.test(&step.limit, state, ask, &self.moment(step))
    }

    fn ask_held(&self, held: Held, step: &Step, ask: Ask) -> Outcome {
        match self.act(step) {
            Some(PermitAct::Acquire) => held.acquire(&step.limit, ask.taken),
            Some(PermitAct::Renew) => held.settle(&step.limit, false),
            Some(PermitAct::Release) => held.settle(&step.limit, true),
            None => held.test(&step.limit, ask),
        }
    }

    /// Charges the counter of the step, also with 0 hits, which settles it. A group with an extra
    /// has one request, so its permits are not seen afterwards.
    fn charge(&mut self, index: usize, step: &Step, hits: i64) {
        let at = self.moment(step);
        let counter = usize::from(self.group.parts[index].counter);
        let state = match &mut self.counters[counter].kept {
            Kept::Held(held) => {
                let room = step.limit.quota().saturating_sub(held.count);
                held.count += u64::try_from(hits).unwrap_or(0).min(room);
                return;
            }
            Kept::Words(words) => StateMut::Words(words),
            Kept::Heap(heap) => StateMut::Heap(heap),
        };
        if step.limit.charge(state, hits, &at) == Err(Spill)
            && let Kept::Words(words) = &self.counters[counter].kept
        {
            // A limit raised in use. A heap never spills again.
            let mut heap = step.limit.spill(words);
            let _ = step.limit.charge(StateMut::Heap(&mut heap), hits, &at);
            self.counters[counter].kept = Kept::Heap(heap);
        }
    }

    /// The step, without hits if it gives back hits that no longer count.
    fn as_of(&self, step: Step) -> Step {
        let taken_at = self.group.extra.as_ref().and_then(|extra| extra.taken_at);
        let is_gone = |at| step.hits < 0 && !step.limit.still_counts(at, &self.moment(&step));
        Step {
            hits: if taken_at.is_some_and(is_gone) {
                0
            } else {
                step.hits
            },
            ..step
        }
    }

    fn act(&self, step: &Step) -> Option<PermitAct> {
        let permit = self.group.extra.as_ref()?.permit?;
        step.limit.algorithm().holds_permits().then_some(permit.act)
    }

    fn moment(&self, step: &Step) -> Moment {
        Moment {
            now: self.now,
            calendar: step.calendar,
        }
    }
}
