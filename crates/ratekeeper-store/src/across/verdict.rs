//! Combines the answers of the parts, and determines the hits to give back.

use ratekeeper_core::{Mode, Timestamp};
use smallvec::SmallVec;

use super::journey::{Leg, Returning};
use super::partition::Partition;
use super::partitions::Partitions;
use super::parts::Parts;
use crate::{
    Answer, Charge, Execution, Extra, FullMode, Permit, PermitAct, Request, Step, StepOutcome,
    StoreError, Verdicts,
};

/// The answer to the whole request, once all partitions have answered or failed.
pub(super) fn whole<T>(
    parts: &Parts,
    steps: &[Step],
    legs: &[Leg<T>],
) -> Result<Verdicts, StoreError> {
    let mut outcomes: SmallVec<[StepOutcome; 4]> =
        SmallVec::from_elem(StepOutcome::Full(FullMode::Deny), parts.len());
    let mut allowed = true;
    let (mut has_now, mut has_before, mut fault) = (false, false, None);
    // A time that every partition has reached: nothing is later given back to a window that began in
    // between.
    let mut at = Timestamp::from_micros(u64::MAX);
    let mut unexecuted = None;
    for leg in legs {
        let verdicts = match leg.answer() {
            Ok(verdicts) => verdicts,
            Err(error) => {
                fault.get_or_insert(error);
                for partition in leg.range.clone() {
                    outcomes[parts.number(partition)] = StepOutcome::Unanswered(error);
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
        for (partition, outcome) in leg.range.clone().zip(&verdicts.outcomes) {
            outcomes[parts.number(partition)] = *outcome;
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
    // Neither: no partition has answered. Both: the parts executed now do not belong to those executed
    // before.
    if let Some(error) = fault.filter(|_| has_now == has_before) {
        return Err(error);
    }
    let fits = |partition: usize| outcomes[parts.number(partition)].fits();
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

/// Asks the partition of `leg` to give back the hits that it has taken now, if any, and to delete its
/// record.
pub(super) fn give_back<P: Partitions>(
    partitions: &P,
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
        let is_permit = step.limit.algorithm().holds_permits();
        let mut returned = 0;
        if let Some(taken) = taken(step, outcome).filter(|_| verdicts.allowed) {
            if is_permit && leg.permit.is_none() {
                // Permits without an id can only expire.
                partitions.stranded(leg.partition, taken);
                continue;
            }
            hits += taken;
            match is_permit {
                true => permit = leg.permit,
                false => returned = -taken.cast_signed(),
            }
        } else if forgets.is_none() || (is_permit && number > 0) {
            // An idempotent request is recorded under its first step, also in every partition into
            // which its partition divides it: that step is looked up.
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
    match partitions.ask(leg.partition, &request) {
        Answer::Decided(_) => None,
        Answer::Pending(ticket) => Some(Returning {
            partition: leg.partition,
            hits,
            ticket,
        }),
    }
}

/// Reports the hits that `partition`, which has not answered in time, may have taken by `steps` for
/// nothing.
pub(super) fn strand<P: Partitions>(partitions: &P, partition: Partition, steps: &[Step]) {
    let may_be_taken = |step: &&Step| step.hits > 0 && step.charge == Charge::IfAllowed;
    let hits = steps.iter().filter(may_be_taken);
    let hits = hits.map(|step| step.hits.unsigned_abs()).sum();
    if hits > 0 {
        partitions.stranded(partition, hits);
    }
}

/// The hits of the step that an allowed part has taken, and a denied request must not; None if it took none.
fn taken(step: &Step, outcome: &StepOutcome) -> Option<u64> {
    let StepOutcome::Counted(outcome) = outcome else {
        return None;
    };
    let is_taken = step.hits > 0 && step.charge == Charge::IfAllowed && outcome.fits();
    is_taken.then(|| step.hits.unsigned_abs().saturating_sub(outcome.cut))
}
