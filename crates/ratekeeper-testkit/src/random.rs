//! Random numbers that depend only on the seed, not on the version of a library.

/// SplitMix64. Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.bits()) * u128::from(end);
        u64::try_from(product >> 64).unwrap_or(0)
    }

    /// A number from `least` to `most`, both included.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most.saturating_sub(least).saturating_add(1))
    }

    /// A number that is at least `from`, and below `to`.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from)
    }

    /// True so many times in a thousand.
    pub fn happens(&mut self, of_1000: u64) -> bool {
        self.below(1_000) < of_1000
    }

    /// One of `all`, which is not empty.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        let index = usize::try_from(self.below(all.len() as u64)).unwrap_or(0);
        all[index]
    }

    /// A number from 0 to 1, 1 excluded.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The gap to the next of independent events with a mean gap of `mean`.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// The same in whole numbers, at least 1.
    pub fn gap(&mut self, mean: u64) -> u64 {
        (self.exponential(mean as f64) as u64).max(1)
    }
}
