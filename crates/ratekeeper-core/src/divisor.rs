//! Division by a number that is fixed when the limit is made.

/// A divisor with its inverse. Division costs a multiplication, several times less than a hardware
/// division, which would dominate the time of a step.
///
/// With l the smallest number for which by <= 2^l, the inverse is 2^(63 + l) / by, rounded up.
/// Rounding adds less than n / 2^(63 + l) < 1 / 2^l <= 1 / by to n / by, which is too little
/// to reach the next whole number: the quotient is exact for every n below 2^63.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    by: u64,
    inverse: u64,
    shift: u32,
}

impl Divisor {
    /// `by` is 1 to 2^62.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "by is above half of 2^l, so the inverse is at most 2^64 - 1"
    )]
    pub(crate) const fn new(by: u64) -> Self {
        let shift = by.next_power_of_two().trailing_zeros();
        let inverse = (1_u128 << (63 + shift)).div_ceil(by as u128) as u64;
        Self { by, inverse, shift }
    }

    /// The divisor.
    #[inline]
    pub(crate) const fn get(self) -> u64 {
        self.by
    }

    /// The quotient of `number`, which is below 2^63.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half of a product of two u64"
    )]
    pub(crate) const fn quotient(self, number: u64) -> u64 {
        let product = (number << 1) as u128 * self.inverse as u128;
        ((product >> 64) as u64) >> self.shift
    }

    /// The quotient and the remainder of `number`, which is below 2^63.
    #[inline]
    pub(crate) const fn divide(self, number: u64) -> (u64, u64) {
        let quotient = self.quotient(number);
        (quotient, number - quotient * self.by)
    }

    /// The quotient rounded up, of a `number` below 2^62.
    #[inline]
    pub(crate) const fn quotient_up(self, number: u64) -> u64 {
        self.quotient(number + (self.by - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;
    use proptest::prelude::*;

    const LIMIT: u64 = 1 << 62;

    fn numbers() -> impl Strategy<Value = u64> {
        let near_powers = (0..62_u32, 0..3_u64).prop_map(|(bit, more)| (1 << bit) + more - 1);
        prop_oneof![0..LIMIT, 0..1_000_u64, near_powers]
    }

    proptest! {
        #[test]
        fn divides_every_number(number in numbers(), by in numbers(), factor in numbers()) {
            let by = by.max(1);
            let divisor = Divisor::new(by);
            let multiple = by.saturating_mul(factor).min(LIMIT) / by * by;
            for number in [number, multiple, multiple.saturating_sub(1), multiple + 1, LIMIT - 1] {
                prop_assert_eq!(divisor.divide(number), (number / by, number % by));
                prop_assert_eq!(divisor.quotient_up(number), number.div_ceil(by));
            }
        }
    }
}
