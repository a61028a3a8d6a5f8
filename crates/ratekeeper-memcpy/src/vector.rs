//! Sixteen bytes at any address.

use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
use core::mem::MaybeUninit;

/// Sixteen bytes in a register, initialised or not.
#[derive(Clone, Copy)]
pub(crate) struct Vector(MaybeUninit<__m128i>);

/// The bytes of a [`Vector`].
pub(crate) const BYTES: usize = 16;

impl Vector {
    /// # Safety
    /// `BYTES` at `from` can be read.
    #[inline(always)]
    pub(crate) const unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the caller says so.
        Self(unsafe { from.cast::<MaybeUninit<__m128i>>().read_unaligned() })
    }

    /// # Safety
    /// `BYTES` at `to` can be written.
    #[inline(always)]
    pub(crate) const unsafe fn write(self, to: *mut u8) {
        // SAFETY: the caller says so.
        unsafe { to.cast::<MaybeUninit<__m128i>>().write_unaligned(self.0) }
    }
}

/// The number of bytes, from the first on, that are alike at `a` and `b`, at most `BYTES`.
///
/// # Safety
/// `BYTES` can be read at both, and are initialised.
#[inline(always)]
pub(crate) unsafe fn equal_bytes(a: *const u8, b: *const u8) -> usize {
    // SAFETY: the caller says so; every x86-64 processor has SSE2, and its loads need no alignment.
    let equal = unsafe {
        let (a, b) = (_mm_loadu_si128(a.cast()), _mm_loadu_si128(b.cast()));
        _mm_movemask_epi8(_mm_cmpeq_epi8(a, b))
    };
    equal.trailing_ones() as usize
}
