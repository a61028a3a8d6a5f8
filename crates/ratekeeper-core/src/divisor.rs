//! Division by a number that is known when the limit is made.

/// A divisor with its inverse: dividing by it costs two multiplications instead of a division,
/// which is several times as slow and is what a step would mostly spend its time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Divisor {
    by: u64,
    /// 2^64 / by, rounded down.
    inverse: u64,
}

impl Divisor {
    /// `by` is at least 1.
    pub(crate) const fn new(by: u64) -> Self {
        Self {
            by,
            inverse: u64::MAX / by,
        }
    }

    /// What it divides by.
    pub(crate) const fn get(self) -> u64 {
        self.by
    }

    /// The quotient and the remainder of `number`.
    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "the upper half of a product of two u64"
    )]
    pub(crate) const fn divide(self, number: u64) -> (u64, u64) {
        // The inverse is too small by less than 1, so that the estimate is by at most
        // number / 2^64 before rounding down: at most one too small.
        let estimate = ((number as u128 * self.inverse as u128) >> 64) as u64;
        let rest = number - estimate * self.by;
        if rest < self.by {
            (estimate, rest)
        } else {
            (estimate + 1, rest - self.by)
        }
    }

    /// The quotient, rounded up.
    #[inline]
    pub(crate) const fn divide_up(self, number: u64) -> u64 {
        let (quotient, rest) = self.divide(number);
        quotient + (rest > 0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            0..1_000_u64,
            (0..64_u32, 0..3_u64)
                .prop_map(|(bit, more)| (1_u64 << bit).wrapping_sub(1).wrapping_add(more)),
        ]
    }

    proptest! {
        #[test]
        fn divides_every_number(number in numbers(), by in numbers(), factor in numbers()) {
            let by = by.max(1);
            let divisor = Divisor::new(by);
            let multiple = by.wrapping_mul(factor);
            for number in [number, multiple, multiple.wrapping_sub(1)] {
                prop_assert_eq!(divisor.divide(number), (number / by, number % by));
                prop_assert_eq!(divisor.divide_up(number), number.div_ceil(by));
            }
        }
    }
}
