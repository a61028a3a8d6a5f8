//! The distances between the beginnings of a counter's groups, packed into 176 bits.

use super::form::{DISTANCE_BITS, Width};

/// Bits of the last word that hold distances.
pub(super) const LAST_BITS: u32 = DISTANCE_BITS - 128;

pub(super) const LAST_MASK: u64 = (1 << LAST_BITS) - 1;

/// All distances, the newest lowest.
pub(super) type Distances = [u64; 3];

/// No boundary but the newest.
pub(super) const ALL_GONE: Distances = [u64::MAX, u64::MAX, LAST_MASK];

/// Moves all distances up by one of so many bits; the oldest is dropped.
#[inline]
pub(super) const fn shift_up(distances: &mut Distances, bits: u32) {
    let [low, middle, last] = *distances;
    *distances = [
        low << bits,
        middle << bits | low >> (64 - bits),
        (last << bits | middle >> (64 - bits)) & LAST_MASK,
    ];
}

/// Moves all distances down by one; nothing older is known.
pub(super) const fn shift_down(distances: &mut Distances, width: Width) {
    let bits = width.bits();
    let [low, middle, last] = *distances;
    *distances = [
        low >> bits | middle << (64 - bits),
        middle >> bits | last << (64 - bits),
        last >> bits | width.gone() << (LAST_BITS - bits),
    ];
}

/// Counts the groups that began less than `reach` ticks before the newest, that one among them, and how
/// many ticks before it the oldest of them did. `reach` is at least 1. Most of a step's time goes
/// here: the distances are taken a word at a time, and a word of them that are all in reach is
/// added up at once.
#[expect(clippy::cast_possible_truncation, reason = "at most 22")]
#[inline(always)]
pub(super) fn alive<const BITS: u32, const DISTANCES: usize>(
    all: &Distances,
    reach: u64,
) -> (usize, u64) {
    let a_word = (64 / BITS) as usize;
    let (mut groups, mut age) = (1, 0);
    for first in (0..DISTANCES).step_by(a_word) {
        let mut word = bits_from(all, first as u32 * BITS);
        let all_of_it = age + sum_of_word::<BITS>(word);
        if all_of_it < reach {
            (age, groups) = (all_of_it, groups + a_word);
            continue;
        }
        loop {
            let next = age + (word & ((1 << BITS) - 1));
            if next >= reach {
                return (groups, age);
            }
            (age, word, groups) = (next, word >> BITS, groups + 1);
        }
    }
    (groups, age)
}

/// The sum of as many distances as fit a word: neighbours are added into fields twice as wide, and a
/// multiplication adds those up in the highest.
#[inline(always)]
const fn sum_of_word<const BITS: u32>(word: u64) -> u64 {
    let (lane, field) = ((1_u64 << BITS) - 1, 2 * BITS);
    let fields = (64 / BITS).div_ceil(2);
    let (mut lanes, mut ones, mut at) = (0, 0, 0);
    while at < fields {
        lanes |= lane << (at * field);
        ones |= 1 << (at * field);
        at += 1;
    }
    // An odd number of lanes leaves bits above them, which are no distance.
    let odd = lanes >> (field * (fields - (64 / BITS) / 2));
    let pairs = (word & lanes) + (word >> BITS & odd);
    pairs.wrapping_mul(ones) >> (field * (fields - 1))
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
pub(super) const fn distance(all: &Distances, bits: u32, index: usize) -> u64 {
    bits_from(all, index as u32 * bits) & ((1 << bits) - 1)
}
