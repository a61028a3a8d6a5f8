//! Copying.

use core::mem::MaybeUninit;

use crate::vector::{BYTES, Vector};

/// The bytes of one turn of a loop.
const TURN: usize = 4 * BYTES;

/// Reads the vectors at these distances from `$from`, does `$between`, and writes them at the same distances from `$to`.
///
/// Each is a variable of its own: an array of them would be moved by `memcpy` where nothing is optimised.
macro_rules! copy_vectors {
    ($to:ident, $from:ident, [$($vector:ident at $at:expr),*] $(, $between:block)?) => {
        $(let $vector = Vector::read($from.add($at));)*
        $($between)?
        $($vector.write($to.add($at));)*
    };
}

/// Copies `len` bytes, which may overlap.
///
/// # Safety
/// `from` can be read, and `to` be written, for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: each part reads and writes within `len` bytes, as the bounds of its length say.
    unsafe {
        match len {
            0..16 => short(to, from, len),
            16..=32 => {
                copy_vectors!(to, from, [a at 0, z at len - BYTES]);
            }
            33..=64 => {
                let end = len - 2 * BYTES;
                copy_vectors!(to, from, [a at 0, b at BYTES, y at end, z at end + BYTES]);
            }
            65..=128 => up_to_128(to, from, len),
            _ => long(to, from, len),
        }
    }
}

/// # Safety
/// As [`copy`], and `len` is below 16.
#[inline(always)]
unsafe fn short(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: two pieces of at most `len` bytes begin at the first byte and end at the last.
    unsafe {
        match len {
            8.. => both_ends::<u64>(to, from, len),
            4..8 => both_ends::<u32>(to, from, len),
            2..4 => both_ends::<u16>(to, from, len),
            1 => both_ends::<u8>(to, from, len),
            0 => {}
        }
    }
}

/// Copies the first and the last bytes, as many as a `T` has of each.
///
/// # Safety
/// As [`copy`], and `len` is from one to two `T`s.
#[inline(always)]
unsafe fn both_ends<T: Copy>(to: *mut u8, from: *const u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both pieces lie within `len` bytes.
    unsafe {
        let first = from.cast::<MaybeUninit<T>>().read_unaligned();
        let second = from.add(last).cast::<MaybeUninit<T>>().read_unaligned();
        to.cast::<MaybeUninit<T>>().write_unaligned(first);
        to.add(last)
            .cast::<MaybeUninit<T>>()
            .write_unaligned(second);
    }
}

/// # Safety
/// As [`copy`], and `len` is from 64 to 128.
#[inline(always)]
unsafe fn up_to_128(to: *mut u8, from: *const u8, len: usize) {
    let end = len - TURN;
    // SAFETY: both turns lie within `len` bytes.
    unsafe {
        copy_vectors!(to, from, [
            a at 0, b at BYTES, c at 2 * BYTES, d at 3 * BYTES,
            w at end, x at end + BYTES, y at end + 2 * BYTES, z at end + 3 * BYTES
        ]);
    }
}

/// Copies one turn.
///
/// # Safety
/// `TURN` bytes can be read at `from`, and written at `to`.
#[inline(always)]
unsafe fn turn(to: *mut u8, from: *const u8) {
    // SAFETY: the caller says so.
    unsafe {
        copy_vectors!(to, from, [a at 0, b at BYTES, c at 2 * BYTES, d at 3 * BYTES]);
    }
}

/// # Safety
/// As [`copy`], and `len` is above two turns.
unsafe fn long(to: *mut u8, from: *const u8, len: usize) {
    // What lies ahead in the source is overwritten only if the destination begins within it.
    let is_ahead = to.addr().wrapping_sub(from.addr()) < len;
    // SAFETY: as of the caller.
    unsafe {
        match is_ahead {
            false => forward(to, from, len),
            true => backward(to, from, len),
        }
    }
}

/// Copies from the first byte to the last.
///
/// # Safety
/// As [`long`], and no byte of the source is overwritten before it is read: the destination does not begin within it.
#[inline(always)]
unsafe fn forward(to: *mut u8, from: *const u8, len: usize) {
    let end = len - TURN;
    // SAFETY: the loop goes on while more than a turn is left; the ends are read before anything is written.
    unsafe {
        copy_vectors!(to, from, [
            w at end, x at end + BYTES, y at end + 2 * BYTES, z at end + 3 * BYTES, first at 0
        ], {
            // The stores of the loop are aligned.
            let mut at = BYTES - to.addr() % BYTES;
            while at < end {
                turn(to.add(at), from.add(at));
                at += TURN;
            }
        });
    }
}

/// Copies from the last byte to the first.
///
/// # Safety
/// As [`long`], and no byte of the source is overwritten before it is read: the source does not begin within the destination.
#[inline(always)]
unsafe fn backward(to: *mut u8, from: *const u8, len: usize) {
    // SAFETY: the loop goes on while more than a turn is left; the ends are read before anything is written.
    unsafe {
        copy_vectors!(to, from, [
            a at 0, b at BYTES, c at 2 * BYTES, d at 3 * BYTES, last at len - BYTES
        ], {
            // The stores of the loop are aligned.
            let mut left = len - to.add(len).addr() % BYTES;
            while left > TURN {
                left -= TURN;
                turn(to.add(left), from.add(left));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;

    /// Lengths of every way, and of several turns.
    fn lengths() -> impl Iterator<Item = usize> {
        (0..400).chain([511, 512, 513, 4_000, 4_096, 65_537])
    }

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
    }

    #[test]
    fn bytes_are_copied_and_none_beside_them() {
        for len in lengths() {
            for (from, to) in (0..17).flat_map(|from| (0..17).map(move |to| (from, to))) {
                let source = bytes(len + 32);
                let mut target = std::vec![0xaa; len + 64];
                // SAFETY: 32 and 64 are beyond the offsets.
                unsafe {
                    copy(
                        target.as_mut_ptr().add(16 + to),
                        source.as_ptr().add(from),
                        len,
                    )
                };
                let (before, rest) = target.split_at(16 + to);
                let (copied, after) = rest.split_at(len);
                assert_eq!(
                    copied,
                    &source[from..from + len],
                    "{len} from {from} to {to}"
                );
                let beside = before.iter().chain(after).all(|byte| *byte == 0xaa);
                assert!(beside, "{len} from {from} to {to}");
            }
        }
    }

    #[test]
    fn what_overlaps_is_moved() {
        for len in lengths() {
            // All of them for lengths of several turns, some for the longest.
            let near = if len <= 260 { len } else { 80 };
            let distances = (0..=near).chain([len / 2, len.saturating_sub(1), len, len + 1]);
            for distance in distances {
                for (from, to) in [
                    (0, distance),
                    (distance, 0),
                    (3, 3 + distance),
                    (5 + distance, 5),
                ] {
                    let mut moved = bytes(len + distance + 16);
                    let mut expected = moved.clone();
                    expected.copy_within(from..from + len, to);
                    let at = moved.as_mut_ptr();
                    // SAFETY: both lie within the vector.
                    unsafe { copy(at.add(to), at.add(from).cast_const(), len) };
                    assert!(moved == expected, "{len} from {from} to {to}");
                }
            }
        }
    }
}
