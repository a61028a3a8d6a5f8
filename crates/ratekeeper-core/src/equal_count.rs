//! `sliding_window`, the default: an equal-count log. Hits are remembered in groups of g, and of
//! each group only when it began. A hit counts until its group's beginning has left the window:
//! with a groups begun in the window and p hits in the newest, p + g (a - 1) + n <= limit.
//!
//! ```text
//!  limit 9, g = 2                         now
//!     T4    T3 T2        T1     T0         |
//!   --|-x---|x-|x--------|--x---|----------|      | the first hit of a group   x the others
//!        [----------------- w -------------]
//!        ^    T4 has left: what is left of its group (g - 1 hits at most) does not count;
//!             the others all do: 1 + 2 * 3 = 7
//! ```
//!
//! Up to limit 23 a group is one hit, and this is an exact log. Above, seventeen groups of
//! g = ceil((limit - 1) / 16) hits hold the limit, and at most g - 1 hits that are in the window
//! are not counted: **at most limit + g - 1 pass in any window, less than a sixteenth more than
//! the limit, whatever the traffic.** A window cut into equal parts of time has no such bound: a
//! burst at the end of a part lets nearly twice the limit pass (see [`sub_windows`](crate::sub_windows)).
//!
//! Nothing is counted twice or too long either. Every counted hit came after the beginning of a
//! group that is in the window, so a caller who asks for less than the limit in any w and a tick
//! is never denied. The boundaries are an instance of the "equi-depth" cut of a histogram; the
//! analysis, and what it was compared with, are in docs/decisions/0004-equal-count-log.md.
//!
//! **Ticks.** A beginning is kept in ticks since the epoch, rounded up, so that a group leaves less
//! than a tick late and never early. A tick is 1/4,194,301 of the window for limits up to 9,
//! 1/65,533 up to 12, 1/253 from 18 to 23, and 1/2,045 for all others, but at least 32 microseconds,
//! for which reason a window is at least 8 ms. Up to a second it is made longer, by at most twice,
//! so that it divides a second: logs and timetables have whole seconds, and a hit that comes exactly a
//! window after another finds that it has left. So hits leave late by less than 1/126 of the window
//! for limits from 18 to 23 (1/130 for 20 in 130 s, with ticks of a second), less than 1/1,022 for
//! all others, or 32 microseconds where that is longer.
//!
//! **Strict.** The same with a smaller limit, the largest for which limit + g - 1 is not above
//! what the operator wrote: never more than that passes, and from 16/17 of it on hits may be
//! refused that would have fitted.
//!
//! **A limit changed in use** finds the groups that the one before left, and keeps them while they
//! are enough to hold it and at most twice as large as its own would be. Otherwise the next
//! charge regroups the counted hits. Each new group begins where the group of its oldest hit did:
//! never too late, so that no caller is denied for it, and the hits that stop counting early are
//! fewer than a group's. A counter that has emptied starts with groups of its own limit.
//!
//! **Time that goes back** finds the counter at its newest boundary. One further ahead than a
//! window has been written by a clock that was wrong: it is moved to now, all boundaries by the
//! same offset.
//!
//! State (words): word 0 the tick at which the newest group began (48 bits) and p above it (16);
//! words 1 to 3 the distances from each boundary to the one before it, newest first, 176 bits in
//! all, and in the last 16 bits of word 3 the form: how wide a distance is, and g. State (heap),
//! for limits above 1,048,513: the tick, p, the form and the three words of distances, 48 bytes.

mod distances;
mod form;
mod log;
mod reading;
#[cfg(test)]
mod tests;

use crate::ask::Finding;
use crate::{Ask, Heap, Micros, Outcome, Spill, StateMut, StateRef, Timestamp, Verdict, Words};
pub(crate) use form::EqualCount;
pub use form::{EXACT_UP_TO, Groups, SHORTEST_WINDOW};
use log::Log;
pub use log::Parts;
use reading::Reading;

/// Words of a counter on the heap.
pub(crate) const HEAP_WORDS: usize = Log::HEAP_WORDS;

#[inline]
pub(crate) fn test(cut: &EqualCount, state: StateRef<'_>, ask: Ask, now: Timestamp) -> Outcome {
    let reading = Reading::new(cut, Log::read(state), now);
    let groups = reading.alive();
    if ask.hits > 0 && groups.0 > 0 && !reading.regroups() {
        let room = cut.most().saturating_sub(reading.count(groups.0));
        if ask.wanted() <= room {
            return fits_in_use(&reading, groups, ask.wanted(), room, now);
        }
    }
    test_reading(cut, reading, groups, ask, now)
}

/// The answer to most requests that are admitted: hits fit a counter that counts some already. It
/// is the general answer, of which little is left to compute.
#[inline(always)]
fn fits_in_use(
    reading: &Reading<'_>,
    (_, oldest): (usize, u64),
    wanted: u64,
    room: u64,
    now: Timestamp,
) -> Outcome {
    let next = reading.leaves(oldest);
    let last = match reading.begun(wanted) {
        0 => reading.leaves(0),
        _ => reading.leaves_now(),
    };
    Outcome {
        verdict: Verdict::Fits,
        remaining: room - wanted,
        reset_after: next.since(now),
        full_after: last.since(now),
        retry_after: Micros::ZERO,
        delay: Micros::ZERO,
        cut: 0,
    }
}

/// The answer of a counter whose groups in the window have been found.
#[inline(never)]
fn test_reading(
    cut: &EqualCount,
    reading: Reading<'_>,
    groups: (usize, u64),
    ask: Ask,
    now: Timestamp,
) -> Outcome {
    let left = reading.count(groups.0).saturating_sub(ask.refund());
    let room = cut.most().saturating_sub(left);
    let taken = if ask.wanted() <= room {
        ask.wanted()
    } else {
        ask.taken
    };
    let full = match taken {
        0 => reading.leaves(reading.age(reading.groups_of(ask.refund()))),
        _ => full_after_taking(&reading, groups, taken),
    };
    let outcome = Finding {
        capacity: cut.most(),
        room,
        full_after: full.since(now),
    }
    .outcome(
        ask,
        |hits| reading.falls_to(cut.most() - hits, groups).since(now),
        |spent| {
            let more = match spent {
                // The newest are gone, and the rest leaves as it would have.
                0 => left.min(cut.most()).checked_sub(1).map(|most| {
                    let most = most.saturating_add(ask.refund());
                    reading.falls_to(most, groups)
                }),
                _ if groups.0 > 0 && reading.regroups() => {
                    let log = reading.regrouped(groups.0);
                    let regrouped = Reading::new(cut, log, now);
                    Some(more_after_taking(&regrouped, regrouped.alive(), spent))
                }
                _ => Some(more_after_taking(&reading, groups, spent)),
            };
            more.unwrap_or(Timestamp::EPOCH).since(now)
        },
    );
    if ask.hits == 0 && left > cut.most() {
        // Denied hits were counted, or the limit was lowered.
        return outcome.overdrawn(cut.most());
    }
    outcome
}

/// The time at which nothing counts any more of a counter in whose window so many groups are, once more than
/// no hits were charged to it.
#[inline(always)]
fn full_after_taking(reading: &Reading<'_>, (alive, _): (usize, u64), taken: u64) -> Timestamp {
    if alive > 0 && reading.regroups() {
        return reading.regrouped_full(alive, taken);
    }
    match alive {
        0 => reading.leaves_now(),
        _ if reading.begun(taken) > 0 => reading.leaves_now(),
        _ => reading.leaves(0),
    }
}

/// The time at which one hit more fits than `taken`, more than 0, leave of a counter with so many groups in
/// its window, of which the oldest began so many ticks before the newest.
#[inline(always)]
fn more_after_taking(
    reading: &Reading<'_>,
    (alive, oldest): (usize, u64),
    taken: u64,
) -> Timestamp {
    if alive == 0 {
        return reading.leaves_now();
    }
    if reading.count(alive).saturating_add(taken) <= reading.most() {
        return reading.leaves(oldest);
    }
    let begun = reading.begun(taken);
    reading.falls_after(taken, begun, reading.most().saturating_sub(1))
}

#[inline]
pub(crate) fn charge(
    cut: &EqualCount,
    mut state: StateMut<'_>,
    hits: i64,
    now: Timestamp,
) -> Result<(), Spill> {
    if log::charged_in_place(cut, &mut state, hits, now) {
        return Ok(());
    }
    charge_log(cut, state, hits, now)
}

/// Takes the counter apart and puts it together again.
#[inline(never)]
fn charge_log(
    cut: &EqualCount,
    state: StateMut<'_>,
    hits: i64,
    now: Timestamp,
) -> Result<(), Spill> {
    let log = match &state {
        StateMut::Words(words) => Log::read(StateRef::Words(words)),
        StateMut::Heap(heap) => Log::read(StateRef::Heap(heap)),
    };
    let reading = Reading::new(cut, log, now);
    let charged = match hits {
        0 => reading.moved(),
        1.. => Some(reading.taken(hits.unsigned_abs())),
        _ => Some(reading.refunded(hits.unsigned_abs())),
    };
    charged.map_or(Ok(()), |log| log.write(state))
}

/// Returns true if the newest group began more than a window after `now`.
pub(crate) fn is_ahead(cut: &EqualCount, state: StateRef<'_>, now: Timestamp) -> bool {
    Reading::new(cut, Log::read(state), now).moved().is_some()
}

/// The words of a counter as a heap.
pub(crate) fn spill(words: &Words) -> Heap {
    let mut heap = Heap::new();
    // A heap takes every log.
    let _ = Log::read(StateRef::Words(words)).write(StateMut::Heap(&mut heap));
    heap
}

/// The time at which the newest group leaves; the epoch if nothing was counted.
pub(crate) fn expires_at(cut: &EqualCount, state: StateRef<'_>) -> Timestamp {
    let log = Log::read(state);
    if log.is_empty() {
        return Timestamp::EPOCH;
    }
    cut.leaves(&log)
}
