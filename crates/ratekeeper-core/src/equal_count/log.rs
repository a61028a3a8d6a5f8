//! A counter as it is kept: unpacked, and packed again.

use super::distances::{ALL_GONE, Distances, LAST_BITS, LAST_MASK, shift_down, shift_up};
use super::form::{EqualCount, Form, Width};
use crate::{MAX_COUNT, Spill, State, StateMut, StateRef, Timestamp};

/// Bits of word 0 that hold the newest boundary's tick.
const BASE_BITS: u32 = 48;

pub(super) const BASE_MASK: u64 = (1 << BASE_BITS) - 1;

/// A counter as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Log {
    /// The tick at which the newest group began.
    pub(super) base: u64,
    /// Hits of the newest group, 1 to all of it.
    pub(super) newest: u64,
    /// None if nothing has been counted.
    pub(super) form: Option<Form>,
    pub(super) distances: Distances,
}

impl Log {
    /// The largest group whose size fits beside the distances.
    pub(super) const INLINE_GROUP: u64 = u16::MAX as u64 - 3;

    /// Words of a counter on the heap.
    pub(super) const HEAP_WORDS: usize = 6;

    pub(super) const EMPTY: Self = Self {
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
    pub(super) fn push(&mut self, width: Width, groups: u64, at: u64) {
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
    pub(super) fn pop(&mut self, width: Width, groups: usize) {
        for _ in 0..groups {
            let distance = self.distances[0] & width.gone();
            self.base = self.base.saturating_sub(distance);
            shift_down(&mut self.distances, width);
        }
    }
}

/// Charges a counter without taking it apart, if it is kept in this limit's form, its clock has not
/// gone back, and the hits go into the newest group, which is in the window. That is nearly every
/// charge of a counter in use, and those of no hits that follow a denial.
#[inline(always)]
pub(super) fn charged_in_place(
    cut: &EqualCount,
    state: &mut StateMut<'_>,
    hits: i64,
    now: Timestamp,
) -> bool {
    match state {
        StateMut::Words(words) => {
            let [head, .., last] = &mut **words;
            let base = *head & BASE_MASK;
            let form = *last >> LAST_BITS;
            match newest_after(cut, (base, *head >> BASE_BITS, form), hits, now) {
                Some(newest) => *head = base | newest << BASE_BITS,
                None => return false,
            }
        }
        StateMut::Heap(heap) => {
            let [base, newest, form, _, _, _] = &mut heap[..] else {
                return false;
            };
            match newest_after(cut, (*base, *newest, *form), hits, now) {
                Some(after) => *newest = after,
                None => return false,
            }
        }
    }
    true
}

/// The hits of the newest group after `hits` more, of a counter that began it at tick `base`; None
/// if more than this number changes.
#[inline(always)]
fn newest_after(
    cut: &EqualCount,
    (base, newest, form): (u64, u64, u64),
    hits: i64,
    now: Timestamp,
) -> Option<u64> {
    let (now, tick) = (now.as_micros(), cut.tick_of(cut.form()).get());
    let began = base.saturating_mul(tick);
    // Rounded up, the newest beginning may be ahead by less than a tick.
    if form != cut.form().to_bits() || began >= now.saturating_add(tick) {
        return None;
    }
    let total = newest.max(1).saturating_add_signed(hits);
    let is_in_window = began.saturating_add(cut.window()) > now;
    if hits > 0 && is_in_window && total <= cut.form().group {
        return Some(total);
    }
    (hits == 0).then_some(newest)
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
