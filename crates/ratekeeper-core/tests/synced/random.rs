//! Random numbers that are the same for the same seed, on every machine.

/// Sebastiano Vigna's splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// At least `from`, below `to`.
    pub(crate) fn within(&mut self, from: u64, to: u64) -> u64 {
        from + self.word() % (to - from)
    }

    /// True so many times in a thousand.
    pub(crate) fn happens(&mut self, of_1000: u64) -> bool {
        self.within(0, 1_000) < of_1000
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.within(0, of.len() as u64) as usize]
    }
}
