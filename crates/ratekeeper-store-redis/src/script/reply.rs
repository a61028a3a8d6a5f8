//! What the script answers.

use ratekeeper_core::Timestamp;
use ratekeeper_store::{Execution, FullMode, StepOutcome, Verdicts};
use smallvec::SmallVec;

use super::group::Group;
use super::known::Known;
use super::replay::Replay;
use super::state::Kept;

/// One element of the array that the script returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Item<'a> {
    /// Null.
    Null,
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bytes(&'a [u8]),
}

/// Why an answer cannot be used. Nothing is known of what became of the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// It is shorter or longer than the call, or something else than what was asked for: it is
    /// no answer of this version's script.
    #[error("the script's answer is malformed")]
    Malformed,
    /// What the script let pass is not what its own state lets pass: another program writes to
    /// the same keys, or the script and this program differ.
    #[error("the script's answer does not follow from the state it has read")]
    Disagrees,
}

/// Makes `reply` the answers to `groups`, which is what the call held: `answer` is told the
/// number of the group, from 0, and the verdicts of each of its requests, in the order in which
/// they came.
///
/// # Errors
/// If `reply` is no answer to these groups. Those before the one it fails at were answered.
pub fn decode<'r>(
    groups: &[Group],
    reply: impl IntoIterator<Item = Item<'r>>,
    answer: impl FnMut(usize, Verdicts),
) -> Result<(), AnswerError> {
    decode_and_keep(groups, reply, answer, |_, _| {}).map(|_| ())
}

/// As [`decode`], and tells `denied` of each group whose last request was denied, and would be
/// again: what is known of its counters. Answers how many counters were moved, since the clock
/// has gone back.
pub(crate) fn decode_and_keep<'r>(
    groups: &[Group],
    reply: impl IntoIterator<Item = Item<'r>>,
    mut answer: impl FnMut(usize, Verdicts),
    mut denied: impl FnMut(usize, Known),
) -> Result<u64, AnswerError> {
    let mut items = reply.into_iter();
    let now = time(items.next())?;
    let mut moved = 0;
    for (number, group) in groups.iter().enumerate() {
        let answer = |verdicts| answer(number, verdicts);
        let known = decode_group(group, now, &mut items, answer, &mut moved)?;
        if let Some(known) = known {
            denied(number, known);
        }
    }
    match items.next() {
        None => Ok(moved),
        Some(_) => Err(AnswerError::Malformed),
    }
}

fn decode_group<'r>(
    group: &Group,
    mut now: Timestamp,
    items: &mut impl Iterator<Item = Item<'r>>,
    mut answer: impl FnMut(Verdicts),
    moved: &mut u64,
) -> Result<Option<Known>, AnswerError> {
    let extra = group.extra.as_deref().copied().unwrap_or_default();
    let mut execution = Execution::Now;
    if extra.once.is_some() {
        match items.next() {
            Some(Item::Int(0)) => {}
            Some(Item::Int(-1)) => {
                answer(unexecuted(group, now, Execution::Conflict));
                return Ok(None);
            }
            Some(Item::Int(-2)) => {
                answer(unexecuted(group, now, Execution::Unknown));
                return Ok(None);
            }
            before => (now, execution) = (time(before)?, Execution::Before),
        }
    }
    let mut states: SmallVec<[Kept; 2]> = SmallVec::with_capacity(group.parts.len());
    for part in &group.parts {
        let item = items.next().ok_or(AnswerError::Malformed)?;
        let kept = Kept::read(part, extra.permit.is_some(), item);
        states.push(kept.ok_or(AnswerError::Malformed)?);
    }
    let is_lone = group.lone().is_some();
    let mut replay = Replay::new(group, now, states);
    *moved += match execution {
        Execution::Now => replay.moved(),
        // What was read then was moved then.
        _ => 0,
    };
    let mut is_denied = false;
    for run in &group.runs {
        let passed = integer(items.next())?;
        let mut found = 0;
        for _ in 0..run.requests {
            let mut verdicts = replay.next(run);
            verdicts.execution = execution;
            let has_passed = match is_lone {
                true => verdicts.outcomes[0].fits(),
                false => verdicts.allowed,
            };
            found += u64::from(has_passed);
            if execution == Execution::Before {
                // The limits may have changed since; what was answered then stands.
                verdicts.allowed = passed > 0;
                found = passed;
            }
            if found > passed {
                return Err(AnswerError::Disagrees);
            }
            is_denied = !verdicts.allowed;
            answer(verdicts);
        }
        if found != passed {
            return Err(AnswerError::Disagrees);
        }
    }
    Ok(is_denied.then(|| Known::new(group, replay)).flatten())
}

/// The answer to a request that was not carried out.
fn unexecuted(group: &Group, at: Timestamp, execution: Execution) -> Verdicts {
    Verdicts {
        allowed: false,
        outcomes: SmallVec::from_elem(StepOutcome::Full(FullMode::Deny), group.parts.len()),
        at,
        execution,
    }
}

fn integer(item: Option<Item<'_>>) -> Result<u64, AnswerError> {
    match item {
        Some(Item::Int(number)) => u64::try_from(number).map_err(|_| AnswerError::Malformed),
        _ => Err(AnswerError::Malformed),
    }
}

fn time(item: Option<Item<'_>>) -> Result<Timestamp, AnswerError> {
    integer(item).map(Timestamp::from_micros)
}
