//! Decoding the script's answer.

use ratekeeper_core::Timestamp;
use ratekeeper_store::{CounterKey, Execution, FullMode, StepOutcome, Verdicts};
use smallvec::SmallVec;

use super::denied_counters::DeniedCounters;
use super::group::Group;
use super::item::{AnswerError, Item, integer};
use super::post;
use super::replay::Replay;
use super::state::Counter;

/// Stands in for the state of a counter if its key holds something else.
const NO_COUNTER: i64 = -1;

/// Turns `reply` into the answers to `groups`, the groups of the call: `answer` gets the number of
/// the group, from 0, and the verdicts of each of its requests, in the order in which they came.
///
/// # Errors
/// If `reply` is no answer to these groups. Those before the one it fails at were answered. If the
/// key of a counter holds something else, all groups but that one were answered.
pub fn decode<'r>(
    groups: &[Group],
    reply: impl IntoIterator<Item = Item<'r>>,
    answer: impl FnMut(usize, Verdicts),
) -> Result<(), AnswerError> {
    let mut is_corrupt = false;
    let aside = |_, aside| is_corrupt |= matches!(aside, GroupNote::Corrupt(_));
    decode_and_keep(groups, reply, answer, aside)?;
    match is_corrupt {
        true => Err(AnswerError::Corrupt),
        false => Ok(()),
    }
}

/// The result of a group besides its verdicts.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are of the large one, which is moved once"
)]
pub(crate) enum GroupNote {
    /// Its last request was denied, and would be again: its known counters.
    Denied(DeniedCounters),
    /// Nothing of it was carried out, and it has no verdicts: one of its keys, that of this counter
    /// as far as is known, holds something else.
    Corrupt(CounterKey),
}

/// The contents of an answer besides its groups' verdicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScriptFooter {
    /// The server's time.
    pub(crate) at: Timestamp,
    /// The number of counters moved to the current window because the clock had gone back.
    pub(crate) moved: u64,
}

/// As [`decode`], and passes the result of a group besides its verdicts to `aside`.
pub(crate) fn decode_and_keep<'r>(
    groups: &[Group],
    reply: impl IntoIterator<Item = Item<'r>>,
    mut answer: impl FnMut(usize, Verdicts),
    mut aside: impl FnMut(usize, GroupNote),
) -> Result<ScriptFooter, AnswerError> {
    let mut items = reply.into_iter();
    let at = time(items.next())?;
    let mut moved = 0;
    for (number, group) in groups.iter().enumerate() {
        let answer = |verdicts| answer(number, verdicts);
        let told = decode_group(group, at, &mut items, answer, &mut moved)?;
        if let Some(told) = told {
            aside(number, told);
        }
    }
    match items.next() {
        None => Ok(ScriptFooter { at, moved }),
        Some(_) => Err(AnswerError::Malformed),
    }
}

fn decode_group<'r>(
    group: &Group,
    mut now: Timestamp,
    items: &mut impl Iterator<Item = Item<'r>>,
    mut answer: impl FnMut(Verdicts),
    moved: &mut u64,
) -> Result<Option<GroupNote>, AnswerError> {
    if group.posted.is_some() {
        if post::decode(items.next())? {
            answer(post::verdicts(now));
            return Ok(None);
        }
        return Ok(group.first_key().map(GroupNote::Corrupt));
    }
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
    let mut counters: SmallVec<[Counter; 2]> = SmallVec::with_capacity(group.parts.len());
    let mut corrupt = None;
    for part in &group.parts {
        let item = items.next().ok_or(AnswerError::Malformed)?;
        let share = match part.is_lent() {
            true => Some(integer(items.next())?),
            false => None,
        };
        if item == Item::Int(NO_COUNTER) {
            corrupt = corrupt.or(Some(part.key));
            continue;
        }
        let counter = Counter::read(part, extra.permit.is_some(), item);
        let counter = counter.ok_or(AnswerError::Malformed)?;
        counters.push(Counter { share, ..counter });
    }
    if let Some(key) = corrupt {
        // No run may have been allowed.
        let nothing = items.by_ref().take(group.runs.len());
        return match nothing.eq(group.runs.iter().map(|_| Item::Int(0))) {
            true => Ok(Some(GroupNote::Corrupt(key))),
            false => Err(AnswerError::Malformed),
        };
    }
    let mut replay = Replay::new(group, now, counters);
    *moved += match execution {
        Execution::Now => replay.moved(),
        // States read by the first execution were moved by it.
        _ => 0,
    };
    let is_denied = replay_runs(group, &mut replay, execution, items, answer)?;
    let known = is_denied
        .then(|| DeniedCounters::new(group, replay))
        .flatten();
    Ok(known.map(GroupNote::Denied))
}

/// Takes the steps of all runs again, and passes the verdicts to `answer`. Returns true if the last request is denied.
///
/// # Errors
/// The server let other requests pass than these steps do.
fn replay_runs<'r>(
    group: &Group,
    replay: &mut Replay<'_>,
    execution: Execution,
    items: &mut impl Iterator<Item = Item<'r>>,
    mut answer: impl FnMut(Verdicts),
) -> Result<bool, AnswerError> {
    let is_lone = group.lone().is_some();
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
                // The limits may have changed since; the first answer stands.
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
    Ok(is_denied)
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

fn time(item: Option<Item<'_>>) -> Result<Timestamp, AnswerError> {
    integer(item).map(Timestamp::from_micros)
}
