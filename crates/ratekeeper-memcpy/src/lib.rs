//! Copies and compares memory in place of musl's functions.
//!
//! The static binary is linked with musl, whose `memcpy` for x86-64 is one `rep movsq`. Processors need some thirty cycles to begin
//! one, and most copies of a server are of a few hundred bytes: requests, futures, heads. In a check over gRPC that was 31 % of the
//! processor's time. Its `memcmp` compares byte by byte. Here are functions of these names which the linker finds before it looks into
//! musl's; a program gets them by linking this crate. Other targets have good ones of their own, and get nothing.
//!
//! As most of today's do, a copy reads its first and its last bytes in as few pieces as possible, which may overlap, and writes
//! them after all has been read ("Memory copy", in Agner Fog, "Optimizing subroutines in assembly language", 17.9, 2023). So up to
//! 128 bytes need no loop, and source and destination may overlap.
//!
//! # Unsafe code
//! This crate alone has any of ours: pointers and a length are all that C's functions get. Bytes are copied as such, since some may not
//! be initialised and others be parts of pointers. Tests compare with safe code, for musl too before a static binary is built.

#![no_std]
// Loops that copy must not become calls of what they are the body of. Values of more than 32 bytes are moved by such calls all the
// same where nothing is optimised, so there are none.
#![no_builtins]
#![cfg(all(target_arch = "x86_64", any(test, target_env = "musl")))]

mod compare;
mod copy;
mod vector;

/// The functions that the linker finds.
#[cfg(target_env = "musl")]
mod names {
    use core::ffi::c_int;

    /// Copies `len` bytes; C's `memcpy`.
    ///
    /// # Safety
    /// Both are valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        // SAFETY: the caller says so.
        unsafe { super::copy::copy(to, from, len) };
        to
    }

    /// Copies `len` bytes, which may overlap; C's `memmove`.
    ///
    /// # Safety
    /// Both are valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        // SAFETY: the caller says so.
        unsafe { super::copy::copy(to, from, len) };
        to
    }

    /// Compares `len` bytes; C's `memcmp`.
    ///
    /// # Safety
    /// Both are valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, len: usize) -> c_int {
        // SAFETY: the caller says so.
        unsafe { super::compare::compare(a, b, len) }
    }

    /// Tells whether `len` bytes differ; `bcmp` of POSIX, which compilers call where the order does not matter.
    ///
    /// # Safety
    /// Both are valid for `len` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, len: usize) -> c_int {
        // SAFETY: the caller says so.
        unsafe { super::compare::compare(a, b, len) }
    }
}
