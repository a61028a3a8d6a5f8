//! `sliding_window` with `sub_windows: k`: the window is cut into k sub-windows of length s; with
//! f the elapsed part of the current one, current + (k - 1) full + oldest * (1 - f) + n <= limit.
//!
//! ```text
//!   k = 4                    now
//!      |oldest| full | full | full |curr.|
//!      |   [-----------w-----------]     |
//!       f   1-f of the oldest still counts
//! ```
//!
//! k = 1 is the two-counter window that Cloudflare measured
//! (<https://blog.cloudflare.com/counting-things-a-lot-of-different-things/>: 0.003 % of 400 M
//! requests of ordinary traffic judged wrongly). Cutting the window finer is from Figma
//! (<https://www.figma.com/blog/an-alternative-approach-to-rate-limiting/>), who count sixty
//! whole sub-windows; here the oldest one fades out instead of leaving at once.
//!
//! The hits of the oldest sub-window are taken to be spread evenly over it. Whatever they
//! really are, they are the only ones in doubt: at any moment what is counted differs from the
//! true number of hits in the last k * s by at most the hits of that one sub-window, and so at
//! most the limit and one sub-window's hits pass in any such span. Those can be the whole limit:
//! a burst at the end of a sub-window is taken for one that was spread over it, and lets nearly
//! twice the limit pass, whatever k is. [`equal_count`](crate::equal_count), the default, has a
//! bound of a sixteenth.
//!
//! s = w / k is rounded up to whole microseconds, by at most 0.1 % of the window. The carried
//! part is one expression of doubles, rounded up to a whole hit (see `carry`), so that a script
//! which has only doubles gets the same number.
//!
//! State (words): the low 48 bits of word 0 are the index of the current sub-window since the
//! epoch; the other 208 bits are k + 1 lanes, a ring indexed by sub-window, as wide as they can
//! be (16 bits for k = 12). State (heap), for k > 12 or counts too large for a lane: the index,
//! then the k + 1 counts of the same ring: 8 * (k + 2) bytes.
//!
//! A counter's time does not go back: an earlier sub-window than the one last charged is
//! answered as the beginning of that one. If the clock went back by more than the window, all
//! counts move, so that the newest are those of the sub-window that the clock says; a charge
//! writes that down, one of 0 hits too.

mod carry;
mod cut;
mod ring;
#[cfg(test)]
mod tests;

use crate::ask::Finding;
use crate::{Ask, Limit, MAX_COUNT, Micros, Outcome, Spill, StateMut, StateRef, Timestamp};
use carry::{carried, first_fit};
pub(crate) use cut::SubWindows;
use ring::{Counts, CountsMut, Listed, ListedMut, Packed, SHORT};

/// A counter read at a given time.
#[derive(Clone, Copy)]
struct Reading<'a, C> {
    sub: &'a SubWindows,
    counts: C,
    /// The current sub-window, never before the one last charged.
    index: u64,
    /// Microseconds into it.
    elapsed: u64,
    /// Sub-windows since the one last charged.
    behind: u64,
    /// The lane of the oldest sub-window.
    lane: usize,
    /// Hits of the oldest sub-window, which is only partly in the window.
    oldest: u64,
    /// Hits of the sub-windows entirely in the window, including the current one.
    whole: u64,
}

impl<'a, C: Counts + Copy> Reading<'a, C> {
    // Always, so that what is known at compile time about the counts is known here too.
    #[inline(always)]
    fn new(sub: &'a SubWindows, counts: C, now: Timestamp) -> Self {
        let kept = counts.index();
        let (mut index, mut elapsed) = sub.length.divide(now.as_micros());
        if index < kept {
            (index, elapsed) = (kept, 0);
        }
        let behind = index - kept;
        let mut reading = Self {
            sub,
            counts,
            index,
            elapsed,
            behind,
            lane: sub.lane(kept),
            oldest: 0,
            whole: 0,
        };
        if behind <= u64::from(sub.count) {
            reading.whole = reading.counts.total();
            reading.leave();
            (0..behind).for_each(|_| reading.leave());
        }
        reading
    }

    /// Makes the next sub-window of the ring the oldest, starting with the one after the last
    /// charged, which was charged longest ago.
    #[inline]
    fn leave(&mut self) {
        self.lane = self.sub.next(self.lane);
        // A refund took the newest hits, and left nothing in the lanes that it emptied.
        self.oldest = self.counts.get(self.lane).min(self.whole);
        self.whole -= self.oldest;
    }

    /// The hits of the oldest sub-window that still count.
    #[inline]
    fn carried(&self) -> u64 {
        carried(self.sub, self.oldest, self.elapsed)
    }

    /// Hits of the current sub-window.
    fn current(&self) -> u64 {
        match self.behind {
            0 => self.counts.get(self.sub.lane(self.index)).min(self.whole),
            _ => 0,
        }
    }

    /// The first time after now at which fewer than `used` + `spent` hits count, where `spent` are
    /// yet to be charged to the current sub-window.
    fn first_back(&self, used: u64, spent: u64) -> Timestamp {
        let current = self.current();
        if spent == 0 || current < self.whole || self.oldest > 0 {
            // The older hits are gone before the current sub-window begins to leave.
            return self.falls_to(used - 1);
        }
        let leaving = self.index + u64::from(self.sub.count);
        let hits = current + spent;
        match first_fit(self.sub, hits, hits - 1, 0) {
            Some(elapsed) => self.sub.start(leaving).after(Micros::new(elapsed)),
            None => self.sub.start(leaving + 1),
        }
    }

    /// The time at which nothing counts any more of the present hits, of `spent` hits charged now,
    /// and after the `refund` newest are given back.
    fn all_gone(&self, spent: u64, mut refund: u64) -> Timestamp {
        let count = u64::from(self.sub.count);
        if spent > 0 {
            return self.sub.start(self.index + count + 1);
        }
        let newest = (self.behind..=count).find(|age| {
            let hits = self.counts.get(self.sub.lane_of_age(self.index, *age));
            let left = hits.saturating_sub(refund);
            // Hits that are only partly in the window are not given back.
            refund = refund.saturating_sub(hits);
            left > 0 || (hits > 0 && *age == count)
        });
        newest.map_or(Timestamp::EPOCH, |age| {
            self.sub.start(self.index + count + 1 - age)
        })
    }

    /// The first time after now at which at most `most` hits count, if more do now.
    fn falls_to(mut self, most: u64) -> Timestamp {
        loop {
            let room = most.checked_sub(self.whole);
            if let Some(room) = room.filter(|_| self.oldest > 0) {
                let fit = first_fit(self.sub, self.oldest, room, self.elapsed);
                if let Some(elapsed) = fit {
                    return self.sub.start(self.index).after(Micros::new(elapsed));
                }
            }
            self.index += 1;
            self.behind += 1;
            self.elapsed = 0;
            if self.behind > u64::from(self.sub.count) {
                return self.sub.start(self.index);
            }
            self.leave();
            if self.whole.saturating_add(self.oldest) <= most {
                return self.sub.start(self.index);
            }
        }
    }
}

pub(crate) fn test(
    limit: &Limit,
    sub: &SubWindows,
    state: StateRef<'_>,
    ask: Ask,
    now: Timestamp,
) -> Outcome {
    match state {
        StateRef::Words(words) if sub.is_ahead(Packed::new(words, sub).index(), now) => {
            let mut words = *words;
            sub.bring_back(&mut Packed::new(&mut words, sub), now);
            test(limit, sub, StateRef::Words(&words), ask, now)
        }
        StateRef::Heap(heap) if sub.is_ahead(Listed(heap).index(), now) => {
            let mut heap = heap.to_vec();
            sub.bring_back(&mut ListedMut::new(&mut heap, sub), now);
            test(limit, sub, StateRef::Heap(&heap), ask, now)
        }
        StateRef::Words(words) if sub.lane_bits == SHORT => {
            let reading = Reading::new(sub, Packed::shorts(words), now);
            answer(limit.quota(), reading, ask, now)
        }
        StateRef::Words(words) => {
            let reading = Reading::new(sub, Packed::new(words, sub), now);
            answer(limit.quota(), reading, ask, now)
        }
        StateRef::Heap(heap) => {
            let reading = Reading::new(sub, Listed(heap), now);
            answer(limit.quota(), reading, ask, now)
        }
    }
}

#[inline(always)]
fn answer<C: Counts + Copy>(
    quota: u64,
    mut reading: Reading<'_, C>,
    ask: Ask,
    now: Timestamp,
) -> Outcome {
    // A refund takes from the sub-windows entirely in the window; see `take`.
    reading.whole = reading.whole.saturating_sub(ask.refund());
    let used = reading.whole.saturating_add(reading.carried());
    let room = quota.saturating_sub(used);
    let all_gone = reading.all_gone(ask.spent(room), ask.refund());
    let outcome = Finding {
        capacity: quota,
        room,
        full_after: all_gone.since(now),
    }
    .outcome(
        ask,
        |hits| reading.falls_to(quota - hits).since(now),
        |spent| reading.first_back(quota - room, spent).since(now),
    );
    if ask.hits == 0 && used > quota {
        // Denied hits were counted, or the limit was lowered.
        return outcome.overdrawn(quota);
    }
    outcome
}

pub(crate) fn charge(
    sub: &SubWindows,
    state: StateMut<'_>,
    hits: i64,
    now: Timestamp,
) -> Result<(), Spill> {
    let is_ahead = match &state {
        StateMut::Words(words) => sub.is_state_ahead(StateRef::Words(words), now),
        StateMut::Heap(heap) => sub.is_state_ahead(StateRef::Heap(heap), now),
    };
    match state {
        _ if hits == 0 && !is_ahead => Ok(()),
        StateMut::Words(words) if sub.lane_bits == SHORT => {
            take(sub, Packed::shorts(words), hits, now)
        }
        StateMut::Words(words) => take(sub, Packed::new(words, sub), hits, now),
        StateMut::Heap(heap) => take(sub, ListedMut::new(heap, sub), hits, now),
    }
}

/// Moves the ring on to `now`, then adds `hits` to the current sub-window or takes them back,
/// newest first, from the sub-windows that lie wholly inside the window.
#[inline(always)]
fn take(
    sub: &SubWindows,
    mut ring: impl CountsMut,
    hits: i64,
    now: Timestamp,
) -> Result<(), Spill> {
    if sub.is_ahead(ring.index(), now) {
        sub.bring_back(&mut ring, now);
    }
    let kept = ring.index();
    let index = sub.length.quotient(now.as_micros()).max(kept);
    let lane = sub.lane(index);
    let count = if index == kept { ring.get(lane) } else { 0 };
    let charged = count.saturating_add_signed(hits).min(MAX_COUNT);
    if charged > ring.most() {
        return Err(Spill);
    }
    if index > kept {
        move_on(sub, &mut ring, kept, index);
    }
    ring.set(lane, charged);
    if hits < 0 {
        let refund = hits.unsigned_abs().saturating_sub(count);
        refund_older(sub, &mut ring, index, refund);
    }
    Ok(())
}

/// Empties the lanes of the sub-windows that were skipped.
fn move_on(sub: &SubWindows, ring: &mut impl CountsMut, kept: u64, index: u64) {
    if index - kept > u64::from(sub.count) {
        ring.clear();
    } else {
        (kept + 1..index).for_each(|skipped| ring.set(sub.lane(skipped), 0));
    }
    ring.set_index(index);
}

/// Takes `refund` hits from the sub-windows before `index` that are entirely in the window.
fn refund_older(sub: &SubWindows, ring: &mut impl CountsMut, index: u64, mut refund: u64) {
    for lane in (1..u64::from(sub.count)).map(|age| sub.lane_of_age(index, age)) {
        let count = ring.get(lane);
        ring.set(lane, count.saturating_sub(refund));
        refund = refund.saturating_sub(count);
    }
}
