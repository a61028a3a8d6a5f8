//! Sixteen bytes at any address.

use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_storeu_si128};

/// Sixteen bytes in a register. Every x86-64 processor has such.
#[derive(Clone, Copy)]
pub(crate) struct Vector(core::arch::x86_64::__m128i);

/// The bytes of a [`Vector`].
pub(crate) const BYTES: usize = 16;

impl Vector {
    /// # Safety
    /// `BYTES` at `from` can be read.
    #[inline(always)]
    pub(crate) unsafe fn read(from: *const u8) -> Self {
        // SAFETY: the caller says so; an unaligned load has no other condition.
        Self(unsafe { _mm_loadu_si128(from.cast()) })
    }

    /// # Safety
    /// `BYTES` at `to` can be written.
    #[inline(always)]
    pub(crate) unsafe fn write(self, to: *mut u8) {
        // SAFETY: the caller says so; an unaligned store has no other condition.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    /// The number of bytes, from the first on, that are those of `other`.
    #[inline(always)]
    pub(crate) fn equal_bytes(self, other: Self) -> usize {
        // SAFETY: every x86-64 processor has SSE2.
        let equal = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, other.0)) };
        equal.trailing_ones() as usize
    }
}
