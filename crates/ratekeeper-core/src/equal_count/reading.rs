//! A counter read at some time under some limit, and charged.

use super::distances::{ALL_GONE, alive, distance};
use super::form::{EqualCount, Form, Width};
use super::log::{BASE_MASK, Log};
use crate::divisor::Divisor;
use crate::{MAX_COUNT, Timestamp};

/// A counter read at some time under some limit.
#[derive(Clone, Copy)]
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
    /// True if the newest boundary was more than a window ahead, and is now.
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
            is_moved = log.base > now.saturating_add(window).div_ceil(tick.get());
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

    /// The number of groups that began in the window, and how many ticks before the newest the oldest of
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

    /// Ticks from the boundary with this index (newest first) to the newest.
    pub(super) fn age(&self, index: usize) -> u64 {
        let index = index.min(self.form.width.distances());
        let distances =
            (0..index).map(|i| distance(&self.log.distances, self.form.width.bits(), i));
        distances.sum()
    }

    /// The time at which the boundary that is so many ticks before the newest leaves the window.
    #[inline(always)]
    pub(super) fn leaves(&self, age: u64) -> Timestamp {
        match self.log.base.checked_sub(age) {
            Some(at) => self.leaves_at(at, self.tick),
            None => self.leaves_from_before_the_epoch(age - self.log.base),
        }
    }

    /// The same of a boundary so many ticks before the epoch: where a clock that went back is in the first window.
    #[cold]
    fn leaves_from_before_the_epoch(&self, ticks: u64) -> Timestamp {
        let before = ticks.saturating_mul(self.tick.get());
        Timestamp::from_micros(self.cut.window().saturating_sub(before))
    }

    #[inline(always)]
    fn leaves_at(&self, at: u64, tick: Divisor) -> Timestamp {
        let at = at.saturating_mul(tick.get());
        Timestamp::from_micros(at.saturating_add(self.cut.window()))
    }

    /// The time at which a group leaves that begins now.
    #[inline(always)]
    pub(super) fn leaves_now(&self) -> Timestamp {
        if self.reach > 0 {
            return self.leaves_at(self.at_now(), self.tick);
        }
        // A counter that is empty starts over, with this limit's ticks.
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

    /// The number of groups that `hits` begin where one is alive.
    #[inline(always)]
    pub(super) fn begun(&self, hits: u64) -> u64 {
        let total = self.log.newest.saturating_add(hits).min(MAX_COUNT);
        if total <= self.form.group {
            0
        } else {
            (total - 1) / self.form.group
        }
    }

    /// The time at which at most `most` hits count, fewer than do now: the boundary leaves that is the
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

    /// Returns true if the next hits are charged to other groups than are kept.
    #[inline(always)]
    pub(super) fn regroups(&self) -> bool {
        self.cut.regroups(self.form)
    }

    /// The counter with `hits` more, at least 1.
    #[inline(always)]
    pub(super) fn taken(&self, hits: u64) -> Log {
        if self.reach == 0 {
            return self.restarted_with(hits);
        }
        if self.regroups() {
            let log = self.regrouped(self.alive().0);
            return Reading::new(self.cut, log, Timestamp::from_micros(self.now)).added(hits);
        }
        self.added(hits)
    }

    /// The first hits of a counter, or the first since it emptied.
    #[cold]
    fn restarted_with(&self, hits: u64) -> Log {
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
        let mut beginnings = [0; Width::Bits8.distances() + 1];
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

    /// The time at which nothing counts any more of a counter that is regrouped and charged `hits`.
    #[cold]
    pub(super) fn regrouped_full(&self, alive: usize, hits: u64) -> Timestamp {
        let now = Timestamp::from_micros(self.now);
        let regrouped = Reading::new(self.cut, self.regrouped(alive), now);
        match regrouped.begun(hits) {
            0 => regrouped.leaves(0),
            _ => regrouped.leaves_now(),
        }
    }

    /// The number of newest groups that are given back wholly with `hits`, if more than those count.
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
