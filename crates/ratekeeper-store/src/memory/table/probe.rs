//! A key with the values that the table derives from it.

use super::SLOTS;
use crate::CounterKey;

/// A key with its hash, whose bits are divided so that no two uses share any.
///
/// ```text
///  63 ... from above        | 29-14 | 13-6 | 5-0
///  segment, then its bucket | slot  | tag  | shard
/// ```
#[derive(Clone, Copy, Debug)]
pub(in crate::memory) struct Probe {
    pub(in crate::memory) key: CounterKey,
    hash: u64,
}

impl Probe {
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    #[inline]
    pub(in crate::memory) fn new(key: CounterKey) -> Self {
        // Keys are keyed hashes already; one multiplication makes the table robust against callers
        // that number their counters.
        let wide = u128::from(key.identity ^ key.subject.rotate_left(32)) * u128::from(ODD);
        let [low, high] = [wide as u64, (wide >> 64) as u64];
        Self {
            key,
            hash: low ^ high,
        }
    }

    /// Six bits that the table does not use.
    #[inline]
    pub(in crate::memory) const fn shard_bits(self) -> usize {
        (self.hash & 63) as usize
    }

    #[expect(clippy::cast_possible_truncation, reason = "a byte of the hash")]
    #[inline]
    pub(super) const fn tag(self) -> u8 {
        let tag = (self.hash >> 6) as u8;
        if tag == 0 { 1 } else { tag }
    }

    /// The preferred slot in the home bucket.
    #[inline]
    pub(super) const fn slot(self) -> usize {
        ((((self.hash >> 14) & 0xffff) * SLOTS as u64) >> 16) as usize
    }

    /// The first `bits` bits, fewer than 64.
    #[inline]
    pub(super) const fn prefix(self, bits: u32) -> usize {
        (self.hash >> 1 >> (63 - bits)) as usize
    }

    /// The index of its home bucket among `buckets`, from the bits after that prefix.
    #[inline]
    pub(super) const fn home(self, prefix_bits: u32, buckets: usize) -> usize {
        scale(self.hash << prefix_bits, buckets)
    }

    /// The indexes of the buckets to search after that, without end. Occasionally one is repeated,
    /// at the cost of a look.
    pub(super) fn others(self, buckets: usize) -> impl Iterator<Item = usize> {
        let mut hash = self.hash;
        std::iter::repeat_with(move || {
            hash = hash.wrapping_mul(MULTIPLIER);
            scale(hash, buckets)
        })
    }
}

/// Two to the power of 64, divided by the golden ratio.
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The multiplier of a generator with good spectra (L'Ecuyer, "Tables of linear congruential
/// generators of different sizes and good lattice structure", Mathematics of Computation 68, 1999).
const MULTIPLIER: u64 = 2_862_933_555_777_941_757;

/// A number below `count`, from the first bits of `hash`.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "below `count`")]
const fn scale(hash: u64, count: usize) -> usize {
    // Multiply and shift in place of a division (Lemire, "Fast random integer generation in an
    // interval", 2019).
    ((hash as u128 * count as u128) >> 64) as usize
}
