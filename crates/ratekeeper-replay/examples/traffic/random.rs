//! Reproducible random numbers.

/// SplitMix64: small, and good enough to make up traffic. Source: Steele, Lea, Flood,
/// "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014).
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Uniform from 0 to 1, exclusive.
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform from 0 to `end`, exclusive; the remainder's bias is below 2^-50 for small ends.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    pub(super) fn log_uniform(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.unit())
    }
}
