//! Combines the answers of the parts, and determines the hits to give back.

use ratekeeper_core::{Algorithm, Mode, Timestamp};
use smallvec::SmallVec;

use super::journey::{Leg, Returning};
use super::parts::Parts;
use super::{Place, Places};
use crate::{
    Answer, Charge, Execution, Extra, FullMode, Permit, PermitAct, Request, Step, StepOutcome,
    StoreError, Verdicts,
};

/// The answer to the whole request, once all places have answered or failed.
pub(super) fn whole<T>(
    parts: &Parts,
    steps: &[Step],
    legs: &[Leg<T>],
) -> Result<Verdicts, StoreError> {
    let mut outcomes: SmallVec<[StepOutcome; 4]> =
        SmallVec::from_elem(StepOutcome::Full(FullMode::Deny), parts.len());
    let mut allowed = true;
    let (mut has_now, mut has_before, mut fault) = (false, false, None);
    // A time that every place has reached: nothing is later given back to a window that began in
    // between.
    let mut at = Timestamp::from_micros(u64::MAX);
    let mut unexecuted = None;
    for leg in legs {
        let verdicts = match leg.answer() {
            Ok(verdicts) => verdicts,
            Err(error) => {
                fault.get_or_insert(error);
                for place in leg.range.clone() {
                    outcomes[parts.number(place)] = StepOutcome::Unanswered(error);
                }
                continue;
            }
        };
        allowed &= verdicts.allowed;
        at = at.min(verdicts.at);
        match verdicts.execution {
            Execution::Now => has_now = true,
            Execution::Before => has_before = true,
            Execution::Conflict | Execution::NoRoom | Execution::Unknown => {
                unexecuted.get_or_insert(verdicts);
            }
        }
        for (place, outcome) in leg.range.clone().zip(&verdicts.outcomes) {
            outcomes[parts.number(place)] = *outcome;
        }
    }
    if let Some(refused) = unexecuted {
        return Ok(Verdicts {
            allowed: false,
            outcomes: SmallVec::from_elem(StepOutcome::Full(FullMode::Deny), parts.len()),
            at: refused.at,
            execution: refused.execution,
        });
    }
    // Neither: no place has answered. Both: the parts executed now do not belong to those executed
    // before.
    if let Some(error) = fault.filter(|_| has_now == has_before) {
        return Err(error);
    }
    let fits = |place: usize| outcomes[parts.number(place)].fits();
    allowed = allowed && !parts.quota_denies(steps, fits);
    let execution = match has_now {
        true => Execution::Now,
        false => Execution::Before,
    };
    Ok(Verdicts {
        allowed,
        outcomes,
        at,
        execution,
    })
}

/// Asks the place of `leg` to give back the hits that it has taken now, if any, and to delete its
/// record.
pub(super) fn give_back<P: Places>(
    places: &P,
    parts: &Parts,
    steps: &[Step],
    leg: &Leg<P::Ticket>,
    now: Timestamp,
) -> Option<Returning<P::Ticket>> {
    let verdicts = leg.answer().ok()?;
    if verdicts.execution != Execution::Now {
        return None;
    }
    let steps = &steps[leg.range.clone()];
    let asks = steps.iter().any(|step| step.hits > 0);
    let forgets = parts.once().filter(|_| verdicts.allowed || !asks);
    let mut back: SmallVec<[Step; 4]> = SmallVec::new();
    let (mut hits, mut permit) = (0, None);
    for (number, (step, outcome)) in steps.iter().zip(&verdicts.outcomes).enumerate() {
        let is_permit = step.limit.algorithm() == Algorithm::Concurrency;
        let mut returned = 0;
        if verdicts.allowed && takes(step, outcome) {
            if is_permit && leg.permit.is_none() {
                // Permits without an id can only expire.
                places.stranded(leg.place, step.hits.unsigned_abs());
                continue;
            }
            hits += step.hits.unsigned_abs();
            match is_permit {
                true => permit = leg.permit,
                false => returned = -step.hits,
            }
        } else if forgets.is_none() || (is_permit && number > 0) {
            // An idempotent request is recorded under its first step, also in every place into
            // which its place divides it: that step is looked up.
            continue;
        }
        back.push(Step {
            hits: returned,
            charge: Charge::IfAllowed,
            shadow: true,
            quota_mode: false,
            ..*step
        });
    }
    if back.is_empty() {
        return None;
    }
    let extra = Extra {
        permit: permit.map(|id| Permit {
            id,
            act: PermitAct::Release,
        }),
        once: None,
        taken_at: Some(verdicts.at),
        forgets,
    };
    let request = Request {
        extra: Some(&extra),
        ..Request::new(&back, Mode::default(), now)
    };
    match places.ask(leg.place, &request) {
        Answer::Decided(_) => None,
        Answer::Pending(ticket) => Some(Returning {
            place: leg.place,
            hits,
            ticket,
        }),
    }
}

/// Reports the hits that `place`, which has not answered in time, may have taken by `steps` for
/// nothing.
pub(super) fn strand<P: Places>(places: &P, place: Place, steps: &[Step]) {
    let may_be_taken = |step: &&Step| step.hits > 0 && step.charge == Charge::IfAllowed;
    let hits = steps.iter().filter(may_be_taken);
    let hits = hits.map(|step| step.hits.unsigned_abs()).sum();
    if hits > 0 {
        places.stranded(place, hits);
    }
}

/// Returns true if an allowed part has taken the step's hits, which a denied request must not.
fn takes(step: &Step, outcome: &StepOutcome) -> bool {
    let is_counted = matches!(outcome, StepOutcome::Counted(outcome) if outcome.fits());
    step.hits > 0 && step.charge == Charge::IfAllowed && is_counted
}
