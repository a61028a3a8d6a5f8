//! Comparing.

use core::ffi::c_int;

use crate::vector::{BYTES, equal_bytes};

/// Compares the bytes as C's `memcmp` does: below 0, 0 or above 0, as the first byte that differs is smaller in `a`, there is
/// none, or it is larger.
///
/// # Safety
/// Both can be read for `len` bytes.
#[inline(always)]
pub(crate) unsafe fn compare(a: *const u8, b: *const u8, len: usize) -> c_int {
    // SAFETY: each part reads within `len` bytes.
    unsafe {
        match len {
            0 => 0,
            1 => byte(a, b, 0),
            2..4 => both_ends(a, b, len, |at| {
                u16::from_be_bytes(at.cast::<[u8; 2]>().read())
            }),
            4..8 => both_ends(a, b, len, |at| {
                u32::from_be_bytes(at.cast::<[u8; 4]>().read())
            }),
            8..16 => both_ends(a, b, len, |at| {
                u64::from_be_bytes(at.cast::<[u8; 8]>().read())
            }),
            _ => long(a, b, len),
        }
    }
}

/// # Safety
/// Byte `at` of both can be read.
#[inline(always)]
unsafe fn byte(a: *const u8, b: *const u8, at: usize) -> c_int {
    // SAFETY: the caller says so.
    unsafe { c_int::from(a.add(at).read()) - c_int::from(b.add(at).read()) }
}

/// Compares the first bytes and the last, as many as `read` makes a number of.
///
/// # Safety
/// As [`compare`], and `len` is from one to two numbers.
#[inline(always)]
unsafe fn both_ends<T: Ord>(
    a: *const u8,
    b: *const u8,
    len: usize,
    read: impl Fn(*const u8) -> T,
) -> c_int {
    let last = len - size_of::<T>();
    // SAFETY: both lie within `len` bytes.
    let order = unsafe {
        let first = read(a).cmp(&read(b));
        first.then_with(|| read(a.add(last)).cmp(&read(b.add(last))))
    };
    order as c_int
}

/// # Safety
/// As [`compare`], and `len` is at least a vector.
#[inline(always)]
unsafe fn long(a: *const u8, b: *const u8, len: usize) -> c_int {
    let last = len - BYTES;
    let mut at = 0;
    loop {
        // SAFETY: `at` is at most `last`, and a vector fits there.
        unsafe {
            let equal = equal_bytes(a.add(at), b.add(at));
            if equal < BYTES {
                return byte(a, b, at + equal);
            }
        }
        if at == last {
            return 0;
        }
        at = (at + BYTES).min(last);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn bytes_are_in_the_order_of_the_first_that_differs() {
        for len in (0..200).chain([1_000, 4_097]) {
            let same = std::vec![0x80_u8; len + 1];
            for start in 0..2.min(len + 1) {
                let (a, len) = (&same[start..], len - start.min(len));
                // SAFETY: both have `len` bytes.
                let order = |a: &[u8], b: &[u8]| unsafe { compare(a.as_ptr(), b.as_ptr(), len) };
                assert_eq!(order(a, a), 0);
                for at in 0..len {
                    let mut other = a.to_vec();
                    other[at] = 0x7f;
                    // Those behind it do not matter.
                    other[at + 1..len].fill(0xff);
                    assert!(order(a, &other) > 0, "{at} of {len}");
                    assert!(order(&other, a) < 0, "{at} of {len}");
                }
            }
        }
    }
}
