//! One request whose counters live in several places.
//!
//! Each [`Place`] decides its steps by itself, and none waits for another: all are asked at the
//! same time. A place charges what fits there, unless its own steps are reason enough to deny.
//! What [`combine`](ratekeeper_core::combine) answers to all steps together is the answer; if
//! that is a denial, what the others have taken is given back.
//!
//! ```text
//!            .-- a: fits, taken ------.                 .-- a: given back
//!  request --+                        +-- b denies: no -+
//!            `-- b: full, not taken --'                 `-- the answer
//! ```
//!
//! **A place that fails** leaves its own steps [unanswered](StepOutcome::Unanswered), and the
//! others decide and charge theirs as ever. Whoever asked says what becomes of the rest; if that
//! denies the request, [`give_back`] undoes what was taken. Only if no place has answered, or those
//! that have do not agree whether the request was carried out before, is the whole an error.
//!
//! **What others see meanwhile.** Between the two round trips the counters at `a` hold hits that
//! nobody was granted. Another request may be denied for that while they do, and is never allowed
//! more than the limit. Nothing is granted that was not taken first.
//!
//! **What is given back** is what was taken then and still counts: never into another window, and
//! never twice, since it is asked for once, and a place carries out what it is asked at most once.
//! If that fails, or nobody knows what became of it, the hits stay taken until their window ends,
//! and [`Places::stranded`] is told how many. A place that did not answer in time is not asked to
//! give anything back: what it may have taken of a request that is denied stays taken, and is
//! told there, too. Some things cannot be given back whole: a
//! slot of a leaky bucket behind which others have queued; hits on a concurrency limit without a
//! permit, but for a lone one; and a permit that was not taken but renewed, which is lost.
//!
//! **A request that is carried out once** is known in every place that took part, under a content
//! that covers all of its steps. If the whole is denied, the places forget it again before the
//! answer is given.
//!
//! A denial that is known before anybody is asked, or that a place gives at once, costs the
//! others nothing: they are told, and take nothing. The single place of a request is asked as if
//! it were the only one.

mod journey;
mod parts;
mod verdict;

use std::future::Future;

use ratekeeper_core::Mode;
use smallvec::SmallVec;

pub use journey::{Rest, Ticket};

#[cfg(doc)]
use crate::FullMode;
use crate::{
    Answer, Execution, Permit, PermitAct, Request, Step, StepOutcome, StoreError, Verdicts,
};
use journey::{Asked, Leg};
use parts::Parts;

/// One of the places that counters live in, by whatever number its [`Places`] know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place(pub u32);

/// Places that counters live in. A counter lies in one of them.
pub trait Places: Clone + Send + Sync + 'static {
    /// What is awaited where a place cannot decide at once.
    type Ticket: Future<Output = Result<Verdicts, StoreError>> + Send + Unpin + 'static;

    /// Asks one place, as [`Store::decide`](crate::Store::decide) does.
    fn ask(&self, place: Place, request: &Request<'_>) -> Answer<Self::Ticket>;

    /// Why it is no use to ask this place now, if that is known: its steps are unanswered then. One
    /// whose [`FullMode`] is to deny is sure to deny the request, so the others are told of it.
    fn away(&self, place: Place) -> Option<StoreError> {
        let _ = place;
        None
    }

    /// The place's denial of `request`, if that is known without asking, and charges nothing.
    fn recall(&self, place: Place, request: &Request<'_>) -> Option<Verdicts> {
        let _ = (place, request);
        None
    }

    /// Whether an answer waits until what it gives back is back, and costs another round trip: for
    /// who says what time it is, and would say a later one meanwhile.
    fn answers_last(&self) -> bool {
        false
    }

    /// Awaits `rest`, which nobody else does: where the caller has gone, or has its answer.
    fn detach(&self, rest: Rest<Self>);

    /// So many hits were taken for nothing at `place`, or may have been, and could not be given
    /// back as far as is known.
    fn stranded(&self, place: Place, hits: u64);
}

/// Decides `request`, whose steps lie where `place_of` says.
pub fn decide<P: Places>(
    places: &P,
    request: &Request<'_>,
    place_of: impl Fn(&Step) -> Place,
) -> Answer<Ticket<P>> {
    let Some((first, others)) = request.steps.split_first() else {
        return Answer::Decided(Verdicts {
            allowed: !request.mode.denied,
            outcomes: SmallVec::new(),
            at: request.now,
            execution: Execution::Now,
        });
    };
    let place = place_of(first);
    if others.iter().all(|step| place_of(step) == place) {
        return match places.ask(place, request) {
            Answer::Decided(verdicts) => Answer::Decided(verdicts),
            Answer::Pending(ticket) => Answer::Pending(Ticket::one(ticket)),
        };
    }
    decide_apart(places, request, place_of)
}

#[inline(never)]
fn decide_apart<P: Places>(
    places: &P,
    request: &Request<'_>,
    place_of: impl Fn(&Step) -> Place,
) -> Answer<Ticket<P>> {
    let (parts, steps) = Parts::new(request, place_of);
    let legs = ask(places, request, &parts, &steps);
    journey::begin(places, request, parts, &steps, legs)
}

/// Gives back what an allowed `request` took in the places that answered, as
/// [`Store::give_back`](crate::Store::give_back) has it. Nameless permits stay taken.
pub fn give_back<P: Places>(
    places: &P,
    request: &Request<'_>,
    taken: &Verdicts,
    place_of: impl Fn(&Step) -> Place,
) {
    let (parts, steps) = Parts::new(request, place_of);
    let permit = request.extra.and_then(|extra| extra.permit);
    let legs = parts.ranges().filter_map(|(place, range)| {
        let is_lost = |at: usize| {
            let outcome = taken.outcomes[parts.number(at)];
            outcome == StepOutcome::Unanswered(StoreError::Timeout)
        };
        if range.clone().all(is_lost) {
            verdict::strand(places, place, &steps[range]);
            return None;
        }
        let outcomes = range.clone().map(|at| taken.outcomes[parts.number(at)]);
        Some(Leg {
            place,
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
    journey::give_back(places, request, parts, &steps, legs);
}

/// Asks all places that are there, and tells those that come after a denial of it.
fn ask<P: Places>(
    places: &P,
    request: &Request<'_>,
    parts: &Parts,
    steps: &[Step],
) -> SmallVec<[Leg<P::Ticket>; 4]> {
    let mut denied = parts.mode.denied;
    let mut legs: SmallVec<[Leg<P::Ticket>; 4]> = SmallVec::new();
    for (place, range) in parts.ranges() {
        let part = Request {
            steps: &steps[range.clone()],
            mode: parts.mode,
            now: request.now,
            extra: request.extra,
            named_by: request.named_by,
        };
        let known = match places.away(place) {
            Some(error) => Some(Err(error)),
            None => places.recall(place, &part).map(Ok),
        };
        denied |= match &known {
            Some(Ok(verdicts)) => !verdicts.allowed,
            Some(Err(_)) => part.steps.iter().any(Step::denies_without_answer),
            None => false,
        };
        legs.push(Leg {
            place,
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
        leg.asked = match places.ask(leg.place, &part) {
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
