//! Copying.

use crate::vector::{BYTES, Vector};

/// The bytes of one turn of a loop.
const TURN: usize = 4 * BYTES;

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
            16..=32 => both_ends::<1>(to, from, len),
            33..=64 => both_ends::<2>(to, from, len),
            65..=128 => both_ends::<4>(to, from, len),
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
            8.. => ends_of::<u64>(to, from, len),
            4..8 => ends_of::<u32>(to, from, len),
            2..4 => ends_of::<u16>(to, from, len),
            1 => to.write(from.read()),
            0 => {}
        }
    }
}

/// Copies the first and the last bytes, as many as a `T` has of each.
///
/// # Safety
/// As [`copy`], and `len` is from one to two `T`s.
#[inline(always)]
unsafe fn ends_of<T: Copy>(to: *mut u8, from: *const u8, len: usize) {
    let last = len - size_of::<T>();
    // SAFETY: both pieces lie within `len` bytes, and integers have any bits.
    unsafe {
        let first = from.cast::<T>().read_unaligned();
        let second = from.add(last).cast::<T>().read_unaligned();
        to.cast::<T>().write_unaligned(first);
        to.add(last).cast::<T>().write_unaligned(second);
    }
}

/// `N` vectors in a row.
///
/// # Safety
/// `N` vectors at `from` can be read.
#[inline(always)]
unsafe fn read<const N: usize>(from: *const u8) -> [Vector; N] {
    // SAFETY: the caller says so.
    core::array::from_fn(|at| unsafe { Vector::read(from.add(at * BYTES)) })
}

/// # Safety
/// `N` vectors at `to` can be written.
#[inline(always)]
unsafe fn write<const N: usize>(to: *mut u8, vectors: [Vector; N]) {
    for (at, vector) in vectors.into_iter().enumerate() {
        // SAFETY: the caller says so.
        unsafe { vector.write(to.add(at * BYTES)) };
    }
}

/// Copies the first and the last `N` vectors.
///
/// # Safety
/// As [`copy`], and `len` is from `N` to `2 * N` vectors.
#[inline(always)]
unsafe fn both_ends<const N: usize>(to: *mut u8, from: *const u8, len: usize) {
    let last = len - N * BYTES;
    // SAFETY: both lie within `len` bytes.
    unsafe {
        let first: [Vector; N] = read(from);
        let second: [Vector; N] = read(from.add(last));
        write(to, first);
        write(to.add(last), second);
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
    let last = len - TURN;
    // SAFETY: the loop goes on while a whole turn and more is left; the ends are read before anything is written.
    unsafe {
        let first = Vector::read(from);
        let end: [Vector; 4] = read(from.add(last));
        // The stores of the loop are aligned.
        let mut at = BYTES - to.addr() % BYTES;
        while at < last {
            let turn: [Vector; 4] = read(from.add(at));
            write(to.add(at), turn);
            at += TURN;
        }
        write(to.add(last), end);
        first.write(to);
    }
}

/// Copies from the last byte to the first.
///
/// # Safety
/// As [`long`], and no byte of the source is overwritten before it is read: the source does not begin within the destination.
#[inline(always)]
unsafe fn backward(to: *mut u8, from: *const u8, len: usize) {
    let last = len - BYTES;
    // SAFETY: the loop goes on while a whole turn and more is left; the ends are read before anything is written.
    unsafe {
        let end = Vector::read(from.add(last));
        let first: [Vector; 4] = read(from);
        // The stores of the loop are aligned.
        let mut left = len - to.add(len).addr() % BYTES;
        while left > TURN {
            left -= TURN;
            let turn: [Vector; 4] = read(from.add(left));
            write(to.add(left), turn);
        }
        write(to, first);
        end.write(to.add(last));
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
            let distances = (0..80).chain([len / 2, len.saturating_sub(1), len, len + 1]);
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
