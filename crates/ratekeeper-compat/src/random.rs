//! Reproducible random choices.

use fastrand::Rng;

/// True in `percent` of 100 cases.
pub(crate) fn chance(rng: &mut Rng, percent: u32) -> bool {
    rng.u32(0..100) < percent
}

/// One of `all`, which holds at least one.
pub(crate) fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.usize(0..all.len())]
}

/// The random numbers of one part of a run: the same seed and path give the same numbers.
pub(crate) fn fork(seed: u64, path: &[u64]) -> Rng {
    let mut mixed = seed;
    for part in path {
        // fastrand's first draw correlates for neighbouring seeds; an extra draw in between
        // decorrelates them.
        mixed =
            Rng::with_seed(mixed.wrapping_add(part.wrapping_mul(0x9E37_79B9_7F4A_7C15))).u64(..);
    }
    Rng::with_seed(mixed)
}
