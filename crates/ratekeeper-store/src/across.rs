//! Requests whose counters are in several partitions.
//!
//! Each [`Partition`] decides its own steps, and all are asked concurrently. A partition charges the steps
//! that fit there, unless its own steps deny the request. [`combine`](ratekeeper_core::combine)
//! over all steps yields the answer; if that is a denial, the other partitions give back what they
//! took.
//!
//! ```text
//!            .-- a: fits, taken ------.                 .-- a: given back
//!  request --+                        +-- b denies: no -+
//!            `-- b: full, not taken --'                 `-- the answer
//! ```
//!
//! **A failed partition** leaves its own steps [unanswered](StepOutcome::Unanswered); the others decide
//! and charge theirs as usual. The caller decides what the unanswered steps mean; if they deny the
//! request, [`give_back`] undoes the charges. The whole is an error only if no partition has answered,
//! or if the partitions disagree about the execution of an idempotent request.
//!
//! **Concurrent requests.** Between the two round trips, the counters at `a` hold hits that were
//! granted to no request. Another request may be denied because of them in that time, but never
//! admitted beyond the limit. Nothing is granted that was not taken first.
//!
//! **Giving back** covers hits that were taken then and still count: never in another window, and
//! never twice, since it is requested once, and a partition executes a request at most once. If it
//! fails, or its outcome is unknown, the hits stay taken until their window ends, and
//! [`Partitions::stranded`] is told their number. A partition that did not answer in time is not asked to
//! give anything back: the hits that it may have taken for a denied request stay taken, and are
//! reported there, too. Some things cannot be given back completely: a slot of a leaky bucket with
//! others queued behind it; hits on a concurrency limit without a permit id, unless there is only
//! one; and a permit that was renewed rather than taken, which is lost.
//!
//! **An idempotent request** is recorded in every partition that took part, under a content hash that
//! covers all of its steps. If the whole is denied, the partitions delete the record before the answer
//! is given.
//!
//! A denial that is known beforehand, or that a partition gives at once, costs the other partitions
//! nothing: they are told, and take nothing. If a request has a single partition, that is asked as if
//! it were the only one.

mod journey;
mod partition;
mod partitions;
mod parts;
mod verdict;

use ratekeeper_core::Mode;
use smallvec::SmallVec;

pub use journey::{Rest, Ticket};
pub use partition::{CounterSlot, Partition};
pub use partitions::Partitions;

use crate::{Answer, Execution, Permit, PermitAct, Request, Step, StepOutcome, Verdicts};
use journey::{Asked, Leg};
use parts::Parts;

/// Decides `request`; `partition_of` returns the partition of a step's counter.
pub fn decide<P: Partitions>(
    partitions: &P,
    request: &Request<'_>,
    partition_of: impl Fn(&Step) -> Partition,
) -> Answer<Ticket<P>> {
    let Some((first, others)) = request.steps.split_first() else {
        return Answer::Decided(Verdicts {
            allowed: !request.mode.denied,
            outcomes: SmallVec::new(),
            at: request.now,
            execution: Execution::Now,
        });
    };
    let partition = partition_of(first);
    if others.iter().all(|step| partition_of(step) == partition) {
        return match partitions.ask(partition, request) {
            Answer::Decided(verdicts) => Answer::Decided(verdicts),
            Answer::Pending(ticket) => Answer::Pending(Ticket::one(ticket)),
        };
    }
    decide_apart(partitions, request, partition_of)
}

#[inline(never)]
fn decide_apart<P: Partitions>(
    partitions: &P,
    request: &Request<'_>,
    partition_of: impl Fn(&Step) -> Partition,
) -> Answer<Ticket<P>> {
    let (parts, steps) = Parts::new(request, partition_of);
    let legs = ask(partitions, request, &parts, &steps);
    journey::begin(partitions, request, parts, &steps, legs)
}

/// Gives back the hits that an allowed `request` took in the partitions that answered, as in
/// [`Store::give_back`](crate::Store::give_back). Permits without an id stay taken.
pub fn give_back<P: Partitions>(
    partitions: &P,
    request: &Request<'_>,
    taken: &Verdicts,
    partition_of: impl Fn(&Step) -> Partition,
) {
    let (parts, steps) = Parts::new(request, partition_of);
    let permit = request.extra.and_then(|extra| extra.permit);
    let legs = parts.ranges().filter_map(|(partition, range)| {
        let is_lost = |at: usize| {
            let outcome = taken.outcomes[parts.number(at)];
            matches!(outcome, StepOutcome::Unanswered(error) if error.may_be_executed())
        };
        if range.clone().all(is_lost) {
            verdict::strand(partitions, partition, &steps[range]);
            return None;
        }
        let outcomes = range.clone().map(|at| taken.outcomes[parts.number(at)]);
        Some(Leg {
            partition,
            range,
            permit: permit.and_then(acquired),
            may_take: true,
            asked: Asked::Answered(Ok(Verdicts {
                outcomes: outcomes.collect(),
                ..*taken
            })),
        })
    });
    let is_answered = |leg: &Leg<P::Ticket>| {
        let answer = leg.answer();
        answer.is_ok_and(|it| it.outcomes.iter().any(StepOutcome::is_answered))
    };
    let legs = legs.filter(is_answered).collect();
    journey::give_back(partitions, request, parts, &steps, legs);
}

/// Asks all available partitions; after a denial, tells the remaining ones about it.
fn ask<P: Partitions>(
    partitions: &P,
    request: &Request<'_>,
    parts: &Parts,
    steps: &[Step],
) -> SmallVec<[Leg<P::Ticket>; 4]> {
    let mut denied = parts.mode.denied;
    let mut legs: SmallVec<[Leg<P::Ticket>; 4]> = SmallVec::new();
    for (partition, range) in parts.ranges() {
        let part = Request {
            steps: &steps[range.clone()],
            mode: parts.mode,
            now: request.now,
            extra: request.extra,
            named_by: request.named_by,
        };
        let known = match partitions.away(partition) {
            Some(error) => Some(Err(error)),
            None => partitions.recall(partition, &part).map(Ok),
        };
        denied |= match &known {
            Some(Ok(verdicts)) => !verdicts.allowed,
            Some(Err(_)) => part.steps.iter().any(Step::denies_without_answer),
            None => false,
        };
        legs.push(Leg {
            partition,
            range,
            permit: None,
            may_take: false,
            asked: known.map_or(Asked::Not, Asked::Answered),
        });
    }
    for leg in &mut legs {
        if !matches!(leg.asked, Asked::Not) {
            continue;
        }
        let steps = &steps[leg.range.clone()];
        let extra = parts.extra_of(steps);
        leg.permit = extra.and_then(|extra| extra.permit).and_then(acquired);
        leg.may_take = !denied;
        let part = Request {
            steps,
            mode: Mode {
                denied,
                ..parts.mode
            },
            now: request.now,
            extra: extra.as_ref(),
            named_by: request.named_by,
        };
        leg.asked = match partitions.ask(leg.partition, &part) {
            Answer::Decided(verdicts) => {
                denied |= !verdicts.allowed;
                Asked::Answered(Ok(verdicts))
            }
            Answer::Pending(ticket) => Asked::Waiting(ticket),
        };
    }
    legs
}

fn acquired(permit: Permit) -> Option<u128> {
    (permit.act == PermitAct::Acquire).then_some(permit.id)
}
