//! A window cut into sub-windows.

use super::ring::{Counts, CountsMut, INDEX_BITS, Listed, ListedMut, Packed, lane_bits};
use crate::divisor::Divisor;
use crate::spec::{LimitError, MAX_SUB_WINDOWS};
use crate::{Heap, MAX_COUNT, Micros, StateRef, Timestamp, Words};

/// The division of a window into sub-windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SubWindows {
    pub(super) count: u32,
    pub(super) lane_bits: u32,
    pub(super) length: Divisor,
    pub(super) lanes: Divisor,
}

impl SubWindows {
    /// Cuts `window` into `count` parts.
    pub(crate) fn try_new(window: Micros, count: u32) -> Result<Self, LimitError> {
        if !(1..=MAX_SUB_WINDOWS).contains(&count) {
            return Err(LimitError::SubWindowsOutOfRange);
        }
        if !Self::fine_enough(window, count) {
            let most = (1..count)
                .rev()
                .find(|count| Self::fine_enough(window, *count));
            let most = most.unwrap_or(0);
            return Err(LimitError::SubWindowsTooShort {
                sub_windows: count,
                most,
            });
        }
        let parts = u64::from(count);
        let length = window.get().div_ceil(parts);
        Ok(Self {
            count,
            lane_bits: lane_bits(count + 1),
            length: Divisor::new(length),
            lanes: Divisor::new(parts + 1),
        })
    }

    /// Returns true if rounding a sub-window up to whole microseconds costs at most 0.1 %, and its
    /// index since the epoch fits 48 bits.
    fn fine_enough(window: Micros, count: u32) -> bool {
        let (window, count) = (window.get(), u64::from(count));
        let length = window.div_ceil(count);
        let lost = length * count - window;
        lost.saturating_mul(1_000) <= window && MAX_COUNT / length < 1 << INDEX_BITS
    }

    pub(crate) const fn count(&self) -> u32 {
        self.count
    }

    /// The length of a sub-window.
    pub(crate) const fn length(&self) -> Micros {
        Micros::new(self.length.get())
    }

    /// Returns true if counters start in [`Words`].
    pub(crate) const fn fits_words(&self) -> bool {
        self.count <= MOST_INLINE
    }

    pub(super) const fn lanes(&self) -> usize {
        self.count as usize + 1
    }

    /// The lane of the sub-window `index`.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "a remainder below 66")]
    pub(super) const fn lane(&self, index: u64) -> usize {
        self.lanes.divide(index).1 as usize
    }

    /// The lane of the sub-window `age` (at most k) before `index`. After a clock went back near
    /// the epoch it may be before the epoch: the ring is round.
    pub(super) const fn lane_of_age(&self, index: u64, age: u64) -> usize {
        self.lane(index + self.count as u64 + 1 - age)
    }

    /// The lane of the sub-window after the one in `lane`.
    #[inline]
    pub(super) const fn next(&self, lane: usize) -> usize {
        if lane == self.count as usize {
            0
        } else {
            lane + 1
        }
    }

    /// The start of the sub-window `index`.
    pub(crate) const fn start(&self, index: u64) -> Timestamp {
        Timestamp::from_micros(index.saturating_mul(self.length.get()))
    }

    /// The sub-window of `now`.
    pub(crate) fn index_at(&self, now: Timestamp) -> u64 {
        self.length.quotient(now.as_micros())
    }

    /// Writes `counts` into `heap`: of the sub-window `index` and those before it.
    pub(crate) fn list(&self, index: u64, counts: impl Iterator<Item = u64>, heap: &mut Heap) {
        heap.clear();
        let mut ring = ListedMut::new(heap, self);
        ring.set_index(index);
        for (age, count) in (0..=u64::from(self.count)).zip(counts) {
            ring.set(self.lane_of_age(index, age), count);
        }
    }

    /// The count in `heap` of the sub-window `age` before the one last charged.
    pub(crate) fn listed(&self, heap: &[u64], age: u64) -> u64 {
        let ring = Listed(heap);
        ring.get(self.lane_of_age(ring.index(), age))
    }

    /// Returns true if the sub-window `index` begins more than the window after `now`.
    pub(super) fn is_ahead(&self, index: u64, now: Timestamp) -> bool {
        // A cheap test first, to spare the step another division.
        self.start(index) > now
            && index > self.length.quotient(now.as_micros()) + u64::from(self.count)
    }

    /// Returns true if the counter is ahead of `now` by more than the window.
    pub(crate) fn is_state_ahead(&self, state: StateRef<'_>, now: Timestamp) -> bool {
        let index = match state {
            StateRef::Words(words) => Packed::new(words, self).index(),
            StateRef::Heap(heap) => Listed(heap).index(),
        };
        self.is_ahead(index, now)
    }

    /// The sub-window in which a counter was last charged.
    pub(crate) fn index(&self, state: StateRef<'_>) -> u64 {
        match state {
            StateRef::Words(words) => Packed::new(words, self).index(),
            StateRef::Heap(heap) => Listed(heap).index(),
        }
    }

    /// Moves the counts of a ring that is ahead of `now`: each keeps its age.
    #[cold]
    pub(super) fn bring_back(&self, ring: &mut impl CountsMut, now: Timestamp) {
        let (kept, index) = (ring.index(), self.length.quotient(now.as_micros()));
        let ages = || 0..=u64::from(self.count);
        // An index that is ahead by a window has this many sub-windows before it.
        let counts: Heap = ages().map(|age| ring.get(self.lane(kept - age))).collect();
        ring.clear();
        ring.set_index(index);
        for (age, count) in ages().zip(counts) {
            ring.set(self.lane_of_age(index, age), count);
        }
    }

    /// Converts a counter's words to a heap.
    pub(crate) fn spill(&self, words: &Words) -> Heap {
        let packed = Packed::new(words, self);
        let counts = (0..self.lanes()).map(|lane| packed.get(lane));
        std::iter::once(packed.index()).chain(counts).collect()
    }

    pub(crate) fn expires_at(&self, state: StateRef<'_>) -> Timestamp {
        let index = match state {
            StateRef::Words(words) => Packed::new(words, self).index(),
            StateRef::Heap(heap) => Listed(heap).index(),
        };
        self.start(index.saturating_add(u64::from(self.count) + 1))
    }
}

/// The most sub-windows that fit inline: sixteen bits for each and for the oldest.
const MOST_INLINE: u32 = 12;
