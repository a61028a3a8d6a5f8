//! A counter's boundaries: unpacked, read at some time, charged.

use super::form::{DISTANCE_BITS, EqualCount, Form, Width};
use crate::divisor::Divisor;
use crate::{MAX_COUNT, Spill, State, StateMut, StateRef, Timestamp};

/// Bits of word 0 that hold the newest boundary's tick.
const BASE_BITS: u32 = 48;

const BASE_MASK: u64 = (1 << BASE_BITS) - 1;

/// Bits of word 3 that hold distances.
const LAST_BITS: u32 = DISTANCE_BITS - 128;

const LAST_MASK: u64 = (1 << LAST_BITS) - 1;

/// All distances, the newest lowest.
type Distances = [u64; 3];

/// No boundary but the newest.
const ALL_GONE: Distances = [u64::MAX, u64::MAX, LAST_MASK];

/// A counter as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Log {
    /// The tick at which the newest group began.
    pub(super) base: u64,
    /// Hits of the newest group, 1 to all of it.
    newest: u64,
    /// None if nothing has been counted.
    form: Option<Form>,
    distances: Distances,
}

impl Log {
    /// The largest group whose size fits beside the distances.
    pub(super) const INLINE_GROUP: u64 = u16::MAX as u64 - 3;

    /// Words of a counter on the heap.
    pub(super) const HEAP_WORDS: usize = 6;

    const EMPTY: Self = Self {
        base: 0,
        newest: 0,
        form: None,
        distances: [0; 3],
    };

    #[inline(always)]
    pub(super) fn read(state: StateRef<'_>) -> Self {
        let (base, newest, form, distances) = match state {
            StateRef::Words([head, low, middle, last]) => (
                head & BASE_MASK,
                head >> BASE_BITS,
                last >> LAST_BITS,
                [*low, *middle, last & LAST_MASK],
            ),
            StateRef::Heap([base, newest, form, low, middle, last, ..]) => (
                (*base).min(BASE_MASK),
                (*newest).min(MAX_COUNT),
                *form,
                [*low, *middle, last & LAST_MASK],
            ),
            StateRef::Heap(_) => return Self::EMPTY,
        };
        Self {
            base,
            newest: newest.max(1),
            form: Form::from_bits(form),
            distances,
        }
    }

    /// Puts it where the counter is kept; nothing is changed if it does not fit there.
    #[inline(always)]
    pub(super) fn write(self, state: StateMut<'_>) -> Result<(), Spill> {
        let [low, middle, last] = self.distances;
        let form = self.form.map_or(0, Form::to_bits);
        match state {
            StateMut::Words(_) if self.form.is_some_and(|f| f.group > Self::INLINE_GROUP) => {
                return Err(Spill);
            }
            StateMut::Words(words) => {
                let head = self.base | self.newest << BASE_BITS;
                *words = [head, low, middle, last | form << LAST_BITS];
            }
            StateMut::Heap(heap) => {
                heap.clear();
                heap.extend([self.base, self.newest, form, low, middle, last]);
            }
        }
        Ok(())
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.form.is_none()
    }

    pub(super) fn form_or(&self, form: Form) -> Form {
        self.form.unwrap_or(form)
    }

    /// Begins `groups` new groups at tick `at`, which is not before the newest boundary.
    #[inline(always)]
    fn push(&mut self, width: Width, groups: u64, at: u64) {
        let Some(zeros) = groups.checked_sub(1) else {
            return;
        };
        let bits = width.bits();
        let distance = (at - self.base).min(width.gone());
        shift_up(&mut self.distances, bits);
        self.distances[0] |= distance;
        let zeros = zeros.min(width.groups());
        // At most 23 groups of 8 bits.
        (0..zeros).for_each(|_| shift_up(&mut self.distances, bits));
        self.base = at;
    }

    /// Drops the newest `groups`, fewer than are alive.
    fn pop(&mut self, width: Width, groups: usize) {
        for _ in 0..groups {
            let distance = self.distances[0] & width.gone();
            self.base = self.base.saturating_sub(distance);
            shift_down(&mut self.distances, width);
        }
    }
}

/// A counter in the parts that a store may keep it in.
#[derive(Clone, Debug)]
pub struct Parts<D> {
    /// The tick at which the newest group began.
    pub base: u64,
    /// Hits of the newest group.
    pub newest: u64,
    /// Hits of every other group, 1 or more.
    pub group: u64,
    /// Bits of a distance: 22, 16, 11 or 8.
    pub bits: u32,
    /// Ticks from the beginning of each group to that of the one before, newest first. What is
    /// missing has left.
    pub distances: D,
}

impl<D: AsRef<[u64]>> Parts<D> {
    /// The counter that has these parts.
    #[must_use]
    pub fn pack(&self) -> State {
        let width = Width::ALL
            .into_iter()
            .find(|width| width.bits() == self.bits);
        let width = width.unwrap_or(Width::Bits11);
        let distances = self.distances.as_ref();
        let known = distances.len().min(width.distances());
        let mut packed = ALL_GONE;
        for distance in distances[..known].iter().rev() {
            shift_up(&mut packed, width.bits());
            packed[0] |= (*distance).min(width.gone());
        }
        let log = Log {
            base: self.base.min(BASE_MASK),
            newest: self.newest.clamp(1, MAX_COUNT),
            form: Some(Form {
                width,
                group: self.group.clamp(1, MAX_COUNT),
            }),
            distances: packed,
        };
        let mut words = [0; 4];
        if log.write(StateMut::Words(&mut words)).is_ok() {
            return State::Words(words);
        }
        let mut heap = Vec::new();
        // A heap takes every log.
        let _ = log.write(StateMut::Heap(&mut heap));
        State::Heap(heap)
    }
}

/// Moves all distances up by one of so many bits; the oldest is dropped.
#[inline]
const fn shift_up(distances: &mut Distances, bits: u32) {
    let [low, middle, last] = *distances;
    *distances = [
        low << bits,
        middle << bits | low >> (64 - bits),
        (last << bits | middle >> (64 - bits)) & LAST_MASK,
    ];
}

/// Moves all distances down by one; nothing older is known.
const fn shift_down(distances: &mut Distances, width: Width) {
    let bits = width.bits();
    let [low, middle, last] = *distances;
    *distances = [
        low >> bits | middle << (64 - bits),
        middle >> bits | last << (64 - bits),
        last >> bits | width.gone() << (LAST_BITS - bits),
    ];
}

/// How many groups began less than `reach` ticks before the newest, that one among them, and how
/// many ticks before it the oldest of them did. `reach` is at least 1. This is where a step's
/// time goes: known widths let as many distances as fit a word be taken out of it by shifts.
#[inline(always)]
fn alive<const BITS: u32, const DISTANCES: usize>(all: &Distances, reach: u64) -> (usize, u64) {
    let a_word = (64 / BITS) as usize;
    let (mut groups, mut age) = (1, 0);
    for first in (0..DISTANCES).step_by(a_word) {
        let mut word = bits_from(all, first as u32 * BITS);
        for _ in 0..a_word {
            let next = age + (word & ((1 << BITS) - 1));
            if next >= reach {
                return (groups, age);
            }
            (age, word, groups) = (next, word >> BITS, groups + 1);
        }
    }
    (groups, age)
}

/// 64 bits of the distances, from that one on; beyond the last all have left.
#[inline(always)]
const fn bits_from(all: &Distances, bit: u32) -> u64 {
    let [low, middle, last] = *all;
    let last = last | !LAST_MASK;
    let (here, next) = match bit / 64 {
        0 => (low, middle),
        1 => (middle, last),
        _ => (last, u64::MAX),
    };
    let shift = bit % 64;
    // Two shifts, since one by 64 is none.
    here >> shift | next << 1 << (63 - shift)
}

/// The distance from boundary `index` to the one before it.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "at most 22")]
const fn distance(all: &Distances, bits: u32, index: usize) -> u64 {
    bits_from(all, index as u32 * bits) & ((1 << bits) - 1)
}

/// A counter read at some time under some limit.
pub(super) struct Reading<'a> {
    cut: &'a EqualCount,
    log: Log,
    form: Form,
    tick: Divisor,
    now: u64,
    /// The time that counts, which does not go back before the newest group began.
    clock: u64,
    /// Boundaries less than so many ticks before the newest are in the window; 0 if none is.
    reach: u64,
    /// Whether the newest boundary was more than a window ahead, and is now.
    is_moved: bool,
}

impl<'a> Reading<'a> {
    #[inline(always)]
    pub(super) fn new(cut: &'a EqualCount, mut log: Log, now: Timestamp) -> Self {
        let form = log.form_or(cut.form());
        let tick = cut.tick_of(form);
        let now = now.as_micros();
        let (window, mut clock, mut is_moved) = (cut.window(), now, false);
        // The earliest that it can have been when the newest group began.
        let began = log.base.saturating_sub(1).saturating_mul(tick.get());
        let began = began.saturating_add(1);
        if began > now && !log.is_empty() {
            is_moved = log.base > (now.saturating_add(window)).div_ceil(tick.get());
            match is_moved {
                true => log.base = now.div_ceil(tick.get()).min(BASE_MASK),
                // Its time does not go back: the same boundaries are in the window as then.
                false => clock = began.min(MAX_COUNT * 2),
            }
        }
        let reach = if log.is_empty() {
            0
        } else if clock >= window {
            log.base.saturating_sub(tick.quotient(clock - window))
        } else {
            log.base + tick.quotient_up(window - clock)
        };
        Self {
            cut,
            log,
            form,
            tick,
            now,
            clock,
            reach,
            is_moved,
        }
    }

    pub(super) const fn most(&self) -> u64 {
        self.cut.most()
    }

    /// How many groups began in the window, and how many ticks before the newest the oldest of
    /// them did.
    #[inline(always)]
    pub(super) fn alive(&self) -> (usize, u64) {
        if self.reach == 0 {
            return (0, 0);
        }
        let distances = &self.log.distances;
        match self.form.width {
            Width::Bits22 => alive::<22, 8>(distances, self.reach),
            Width::Bits16 => alive::<16, 11>(distances, self.reach),
            Width::Bits11 => alive::<11, 16>(distances, self.reach),
            Width::Bits8 => alive::<8, 22>(distances, self.reach),
        }
    }

    /// Hits that count, with so many groups alive.
    #[inline(always)]
    pub(super) fn count(&self, alive: usize) -> u64 {
        match alive.checked_sub(1) {
            None => 0,
            Some(whole) => self
                .log
                .newest
                .saturating_add(self.form.group.saturating_mul(whole as u64)),
        }
    }

    /// How many ticks before the newest boundary the one with this index is, newest first.
    pub(super) fn age(&self, index: usize) -> u64 {
        let index = index.min(self.form.width.distances());
        let distances =
            (0..index).map(|i| distance(&self.log.distances, self.form.width.bits(), i));
        distances.sum()
    }

    /// When the boundary that is so many ticks before the newest leaves the window.
    #[inline(always)]
    pub(super) fn leaves(&self, age: u64) -> Timestamp {
        self.leaves_at(self.log.base.saturating_sub(age), self.tick)
    }

    #[inline(always)]
    fn leaves_at(&self, at: u64, tick: Divisor) -> Timestamp {
        let at = at.saturating_mul(tick.get());
        Timestamp::from_micros(at.saturating_add(self.cut.window()))
    }

    /// When a group leaves that begins now.
    #[inline(always)]
    pub(super) fn leaves_now(&self) -> Timestamp {
        if self.reach > 0 {
            return self.leaves_at(self.at_now(), self.tick);
        }
        // A counter that is empty begins anew, with this limit's ticks.
        let tick = self.cut.tick_of(self.cut.form());
        self.leaves_at(self.tick_now(tick), tick)
    }

    /// The tick of a group that begins now, if it is not the only one.
    #[inline(always)]
    fn at_now(&self) -> u64 {
        self.tick_now(self.tick).max(self.log.base)
    }

    #[inline(always)]
    fn tick_now(&self, tick: Divisor) -> u64 {
        tick.quotient_up(self.now).min(BASE_MASK)
    }

    /// How many new groups `hits` begin where one is alive.
    #[inline(always)]
    pub(super) fn begun(&self, hits: u64) -> u64 {
        let total = self.log.newest.saturating_add(hits).min(MAX_COUNT);
        if total <= self.form.group {
            0
        } else {
            (total - 1) / self.form.group
        }
    }

    /// When at most `most` hits count, fewer than do now: the boundary leaves that is the
    /// oldest of too many. For most questions that is the oldest there is.
    #[inline(always)]
    pub(super) fn falls_to(&self, most: u64, (alive, oldest): (usize, u64)) -> Timestamp {
        if alive <= 1 || self.count(alive - 1) <= most {
            return self.leaves(oldest);
        }
        self.falls_far(most)
    }

    #[cold]
    fn falls_far(&self, most: u64) -> Timestamp {
        let index = index(self.log.newest, self.form.group, most);
        self.leaves(self.age(index))
    }

    /// The same after `hits` were charged, which begin so many groups.
    pub(super) fn falls_after(&self, hits: u64, begun: u64, most: u64) -> Timestamp {
        let total = self.log.newest.saturating_add(hits).min(MAX_COUNT);
        let newest = total - begun * self.form.group;
        let index = index(newest, self.form.group, most) as u64;
        match index.checked_sub(begun) {
            None => self.leaves_now(),
            Some(older) => self.leaves(self.age(usize::try_from(older).unwrap_or(usize::MAX))),
        }
    }

    /// The counter where the clock was found to have gone back; None if it need not be written.
    pub(super) fn moved(&self) -> Option<Log> {
        self.is_moved.then_some(self.log)
    }

    /// Whether the next hits are charged to other groups than are kept.
    #[inline(always)]
    pub(super) fn regroups(&self) -> bool {
        self.cut.regroups(self.form)
    }

    /// The counter with `hits` more, at least 1.
    #[inline(always)]
    pub(super) fn taken(&self, hits: u64) -> Log {
        if self.reach == 0 {
            return self.begun_anew(hits);
        }
        if self.regroups() {
            let log = self.regrouped(self.alive().0);
            return Reading::new(self.cut, log, Timestamp::from_micros(self.now)).added(hits);
        }
        self.added(hits)
    }

    /// The first hits of a counter, or the first since it emptied.
    #[cold]
    fn begun_anew(&self, hits: u64) -> Log {
        let form = self.cut.form();
        let hits = hits.min(MAX_COUNT);
        let more = (hits - 1) / form.group;
        let at = self.tick_now(self.cut.tick_of(form));
        let mut log = Log {
            base: at,
            newest: hits - more * form.group,
            form: Some(form),
            distances: ALL_GONE,
        };
        log.push(form.width, more, at);
        log
    }

    /// `hits` fill the newest group and begin others.
    #[inline(always)]
    fn added(&self, hits: u64) -> Log {
        let mut log = self.log;
        let total = log.newest.saturating_add(hits).min(MAX_COUNT);
        let begun = self.begun(hits);
        log.newest = total - begun * self.form.group;
        if begun > 0 {
            log.push(self.form.width, begun, self.at_now());
        }
        log
    }

    /// The counter in the form of this limit, with so many groups alive, at least one. Hits are
    /// counted off from the newest on into groups of the new size; each begins where the group
    /// did that its oldest hit came in.
    #[cold]
    pub(super) fn regrouped(&self, alive: usize) -> Log {
        let count = self.count(alive).min(MAX_COUNT);
        let form = self.cut.form();
        let tick = self.cut.tick_of(form).get();
        let convert = |age: u64| {
            let at = self.log.base.saturating_sub(age);
            // A coarser tick has been rounded up beyond now, which no beginning was.
            let micros = at.saturating_mul(self.tick.get()).min(self.clock);
            match form.width == self.form.width {
                true => at,
                false => micros.div_ceil(tick).min(BASE_MASK),
            }
        };
        let mut log = Log {
            base: 0,
            newest: (count - 1) % form.group + 1,
            form: Some(form),
            distances: ALL_GONE,
        };
        let mut beginnings = [0; Width::Bits8.groups() as usize];
        let mut found = 0;
        // How many hits came since the group with this index began, and how long ago that was.
        let (mut index, mut since, mut age) = (0, self.log.newest.min(count), 0);
        let mut needed = log.newest;
        while needed <= count && found < form.width.distances() + 1 {
            while since < needed {
                age += distance(&self.log.distances, self.form.width.bits(), index);
                index += 1;
                since = since.saturating_add(self.form.group).min(count);
            }
            beginnings[found] = convert(age);
            found += 1;
            needed = needed.saturating_add(form.group);
        }
        let mut oldest_first = beginnings[..found].iter().rev();
        log.base = oldest_first.next().copied().unwrap_or(0);
        for at in oldest_first {
            log.push(form.width, 1, (*at).max(log.base));
        }
        log
    }

    /// When nothing counts any more of a counter that is regrouped and charged `hits`.
    #[cold]
    pub(super) fn regrouped_full(&self, alive: usize, hits: u64) -> Timestamp {
        let now = Timestamp::from_micros(self.now);
        let regrouped = Reading::new(self.cut, self.regrouped(alive), now);
        match regrouped.begun(hits) {
            0 => regrouped.leaves(0),
            _ => regrouped.leaves_now(),
        }
    }

    /// How many of the newest groups are given back wholly with `hits`, if more than those count.
    pub(super) fn groups_of(&self, hits: u64) -> usize {
        match hits.checked_sub(self.log.newest) {
            None => 0,
            Some(older) => usize::try_from(older / self.form.group + 1).unwrap_or(usize::MAX),
        }
    }

    /// The counter with `hits` fewer: the newest are given back. Empty if no more than those
    /// count.
    #[cold]
    pub(super) fn refunded(&self, hits: u64) -> Log {
        let count = self.count(self.alive().0);
        if hits >= count {
            return Log::EMPTY;
        }
        let groups = self.groups_of(hits);
        let mut log = self.log;
        let given = self.form.group.saturating_mul(groups as u64);
        log.newest = log.newest.saturating_add(given).saturating_sub(hits).max(1);
        log.pop(self.form.width, groups);
        log
    }
}

/// The boundary, newest first, with whose leaving at most `most` hits count, of a counter with
/// so many hits in its newest group.
fn index(newest: u64, group: u64, most: u64) -> usize {
    match most.checked_sub(newest) {
        None => 0,
        Some(older) => usize::try_from(older / group + 1).unwrap_or(usize::MAX),
    }
}
