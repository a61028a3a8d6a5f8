//! Hits that are charged before they are spent, and given back if they are not.
//!
//! A hit that is charged at t may come until t + lead. Groups therefore begin at t + lead: no hit of
//! a group comes after the beginning of the next one, and the first of them no later than its own. So
//! as without leases, at most g - 1 hits that are in the window are not counted.
//!
//! **Given back** are the oldest groups, as many as the hits fill: the truth lies among what was
//! recorded, some of it older than what then stays counted. The newest would leave hits counted in groups
//! that are older than they are, and so too short. Only while the group in which the
//! hits lie is still the newest one, its count goes down, but for one hit: that stays for the first of the group, which
//! must not be later than its beginning.

use super::form::{EqualCount, Form};
use super::log::Log;
use super::reading::Reading;
use crate::{StateMut, StateRef, Timestamp};

/// The place of a grant's hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedGroups {
    /// Beginning of the newest of their groups, in ticks.
    base: u64,
    /// The counter's form.
    form: u64,
    /// Hits of the grant in groups that began then.
    hits: u64,
}

impl GrantedGroups {
    pub(crate) const fn to_words(self) -> [u64; 3] {
        [self.base, self.form, self.hits]
    }

    pub(crate) const fn from_words([base, form, hits]: [u64; 3]) -> Self {
        Self { base, form, hits }
    }
}

/// The newest group before a grant: when it began, and how many hits fit in it yet.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Before {
    base: u64,
    left: u64,
}

/// Reads a counter to which a grant will be charged.
pub(crate) fn before_grant(cut: &EqualCount, state: StateRef<'_>, now: Timestamp) -> Before {
    let reading = Reading::new(cut, Log::read(state), now);
    match reading.alive().0 {
        0 => Before::default(),
        alive if reading.regroups() => Before::of(&reading.regrouped(alive)),
        _ => Before::of(reading.log()),
    }
}

impl Before {
    fn of(log: &Log) -> Self {
        let group = log.form.map_or(1, |form| form.group);
        Self {
            base: log.base,
            left: group.saturating_sub(log.newest),
        }
    }
}

/// The place of `hits` that were just charged.
pub(crate) fn granted(
    cut: &EqualCount,
    state: StateRef<'_>,
    before: Before,
    hits: u64,
) -> GrantedGroups {
    let log = Log::read(state);
    let there = match log.base == before.base {
        true => hits,
        false => hits.saturating_sub(before.left),
    };
    GrantedGroups {
        base: log.base,
        form: log.form_or(cut.form()).to_bits(),
        hits: there,
    }
}

/// Takes back up to `left` hits of a grant that is younger than the window; how many.
pub(crate) fn give_back(
    cut: &EqualCount,
    state: StateMut<'_>,
    place: GrantedGroups,
    left: u64,
    now: Timestamp,
) -> u64 {
    let log = match &state {
        StateMut::Words(words) => Log::read(StateRef::Words(words)),
        StateMut::Heap(heap) => Log::read(StateRef::Heap(heap)),
    };
    let reading = Reading::new(cut, log, now);
    let alive = reading.alive().0;
    if alive == 0 || reading.moved().is_some() {
        return 0;
    }
    let counted = reading.count(alive);
    let newest = reading.newest_of(place, left);
    let log = match newest {
        0 => log,
        _ => reading.refunded(newest),
    };
    let form = log.form_or(cut.form());
    let oldest = usize::try_from((left - newest) / form.group).unwrap_or(usize::MAX);
    let log = Reading::new(cut, log, now).without_oldest(oldest);
    let after = Reading::new(cut, log, now);
    // Where the clock has gone back, the older beginning that is the newest now brings others back.
    let given = counted.saturating_sub(after.count(after.alive().0));
    // It was kept there as it was larger.
    if log.write(state).is_err() {
        return 0;
    }
    given
}

impl Reading<'_> {
    /// The part of `left` hits of a grant that can be taken from the newest groups.
    fn newest_of(&self, place: GrantedGroups, left: u64) -> u64 {
        let (log, form) = (self.log(), self.form());
        if place.base != log.base || place.form != form.to_bits() {
            return 0;
        }
        let alive = self.alive().0;
        let zeros = (1..alive).take_while(|group| self.age(*group) == 0).count();
        let there = self.count(zeros + 1);
        let most = left.min(place.hits).min(there);
        match most < there {
            true => most.saturating_sub(1),
            false => most,
        }
    }

    /// The counter without so many of the oldest groups that count.
    fn without_oldest(&self, groups: usize) -> Log {
        let alive = self.alive().0;
        if groups == 0 || alive == 0 {
            return *self.log();
        }
        match alive.checked_sub(groups) {
            None | Some(0) => Log::EMPTY,
            Some(kept) => self.log().with_newest(self.form(), kept),
        }
    }
}

impl Log {
    /// The counter with so many of its newest groups alone, at least one.
    fn with_newest(&self, form: Form, groups: usize) -> Self {
        let mut log = *self;
        super::distances::forget_from(&mut log.distances, form.width, groups - 1);
        log
    }
}
