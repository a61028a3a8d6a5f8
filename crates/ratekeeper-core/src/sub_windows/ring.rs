//! The counts of k + 1 sub-windows, packed into words or listed on the heap.

use super::cut::SubWindows;
use crate::{Heap, MAX_COUNT, Words};

/// Bits of word 0 that hold the index of the current sub-window.
pub(crate) const INDEX_BITS: u32 = 48;

const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// Bits left for the lanes.
const LANES_BITS: u32 = 256 - INDEX_BITS;

/// Bits of a lane when there are thirteen of them.
pub(crate) const SHORT: u32 = 16;

/// Bits of each of `lanes` lanes: as wide as possible, up to the largest count.
pub(crate) const fn lane_bits(lanes: u32) -> u32 {
    let bits = LANES_BITS / lanes;
    if bits > 53 { 53 } else { bits }
}

/// A ring of counts, packed or listed.
pub(crate) trait Counts {
    /// The sub-window of the last charge.
    fn index(&self) -> u64;
    /// The count in `lane`.
    fn get(&self, lane: usize) -> u64;
    /// The sum of all counts.
    fn total(&self) -> u64;
}

/// A ring that can be charged.
pub(crate) trait CountsMut: Counts {
    /// The largest count of a lane.
    fn most(&self) -> u64;
    fn set_index(&mut self, index: u64);
    fn set(&mut self, lane: usize, count: u64);
    fn clear(&mut self);
}

/// Counts packed into words.
#[derive(Clone, Copy)]
pub(crate) struct Packed<W> {
    words: W,
    bits: u32,
    lanes: usize,
}

impl<W> Packed<W> {
    pub(crate) fn new(words: W, sub: &SubWindows) -> Self {
        Self {
            words,
            bits: sub.lane_bits,
            lanes: sub.lanes(),
        }
    }

    /// The thirteen lanes of twelve sub-windows. Knowing at compile time that no lane spans two
    /// words halves the instructions of a step.
    #[inline]
    pub(crate) const fn shorts(words: W) -> Self {
        Self {
            words,
            bits: SHORT,
            lanes: 13,
        }
    }
}

impl<W: std::ops::Deref<Target = Words>> Counts for Packed<W> {
    #[inline]
    fn index(&self) -> u64 {
        self.words[0] & INDEX_MASK
    }

    #[inline]
    fn get(&self, lane: usize) -> u64 {
        get(&self.words, self.bits, lane)
    }

    #[inline]
    fn total(&self) -> u64 {
        if self.bits == SHORT {
            return sum_of_shorts(&self.words);
        }
        (0..self.lanes).map(|lane| self.get(lane)).sum()
    }
}

impl CountsMut for Packed<&mut Words> {
    #[inline]
    fn most(&self) -> u64 {
        (1 << self.bits) - 1
    }

    #[inline]
    fn set_index(&mut self, index: u64) {
        self.words[0] = (self.words[0] & !INDEX_MASK) | index;
    }

    #[inline]
    fn set(&mut self, lane: usize, count: u64) {
        set(self.words, self.bits, lane, count);
    }

    fn clear(&mut self) {
        *self.words = [0; 4];
    }
}

/// The index, then the counts; empty if nothing was counted.
#[derive(Clone, Copy)]
pub(crate) struct Listed<'a>(pub(crate) &'a [u64]);

impl Counts for Listed<'_> {
    #[inline]
    fn index(&self) -> u64 {
        self.0.first().copied().unwrap_or(0) & INDEX_MASK
    }

    #[inline]
    fn get(&self, lane: usize) -> u64 {
        self.0.get(lane + 1).copied().unwrap_or(0)
    }

    /// At most 65 counts below 2^53: the sum can wrap only for a corrupt state.
    fn total(&self) -> u64 {
        let counts = self.0.get(1..).unwrap_or(&[]).iter();
        counts.fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

/// A [`Listed`] ring to charge.
pub(crate) struct ListedMut<'a>(&'a mut Heap);

impl<'a> ListedMut<'a> {
    pub(crate) fn new(heap: &'a mut Heap, sub: &SubWindows) -> Self {
        heap.resize(sub.lanes() + 1, 0);
        Self(heap)
    }
}

impl Counts for ListedMut<'_> {
    fn index(&self) -> u64 {
        Listed(self.0).index()
    }

    fn get(&self, lane: usize) -> u64 {
        Listed(self.0).get(lane)
    }

    fn total(&self) -> u64 {
        Listed(self.0).total()
    }
}

impl CountsMut for ListedMut<'_> {
    fn most(&self) -> u64 {
        MAX_COUNT
    }

    fn set_index(&mut self, index: u64) {
        self.0[0] = index;
    }

    fn set(&mut self, lane: usize, count: u64) {
        self.0[lane + 1] = count;
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// The lane with index `lane`, `bits` wide.
#[inline]
pub(crate) fn get(words: &Words, bits: u32, lane: usize) -> u64 {
    let (word, shift) = place(bits, lane);
    let low = words[word] >> shift;
    let high = if shift + bits > 64 {
        words[(word + 1) % 4] << (64 - shift)
    } else {
        0
    };
    (low | high) & ((1 << bits) - 1)
}

/// Sets the lane with index `lane`; `value` is below 2^`bits`.
#[inline]
pub(crate) fn set(words: &mut Words, bits: u32, lane: usize, value: u64) {
    let (word, shift) = place(bits, lane);
    let mask = (1_u64 << bits) - 1;
    words[word] = (words[word] & !(mask << shift)) | (value << shift);
    if shift + bits > 64 {
        let used = 64 - shift;
        let next = &mut words[(word + 1) % 4];
        *next = (*next & !(mask >> used)) | (value >> used);
    }
}

/// The word and the bit at which a lane begins. The remainders never change the values; they spare
/// bounds checks.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "at most 256 bits")]
const fn place(bits: u32, lane: usize) -> (usize, u32) {
    let bit = INDEX_BITS as usize + lane * bits as usize;
    ((bit / 64) % 4, (bit % 64) as u32)
}

/// Thirteen 16-bit lanes behind the 48-bit index, added four at a time.
#[inline]
fn sum_of_shorts(words: &Words) -> u64 {
    const EVEN: u64 = 0x0000_ffff_0000_ffff;
    let pairs = |word: u64| (word & EVEN) + ((word >> 16) & EVEN);
    let sum = pairs(words[1]) + pairs(words[2]) + pairs(words[3]);
    (words[0] >> INDEX_BITS) + (sum & 0xffff_ffff) + (sum >> 32)
}
