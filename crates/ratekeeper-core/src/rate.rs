//! The arithmetic that the three buckets share: hits as time spans.

use crate::divisor::Divisor;
use crate::spec::LimitError;
use crate::{MAX_COUNT, Micros, Timestamp};

/// Fractional bits of a stored instant, below the microsecond.
pub(crate) const FRACTION_BITS: u32 = 32;

/// The longest span that is told apart from longer ones: far above the fill time of any bucket.
const FARTHEST: u64 = 1 << 60;

/// A refill rate: one hit every `emission`, up to `burst` hits at once.
///
/// T = window / quota is rounded up to whole units of 2^-`bits` microseconds. `bits` is the
/// smallest number for which rounding costs at most 0.1 % of the rate: 0 for up to a thousand hits
/// a second, 7 for 300,000. Rounding up never admits more than the definition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rate {
    burst: u64,
    emission: Divisor,
    bits: u32,
}

impl Rate {
    /// The rate of `quota` hits per `window`. With a quota of 0 the bucket holds nothing, whatever
    /// its burst; what another limit took of it comes back by one hit a window.
    pub(crate) fn try_new(
        quota: u64,
        window: Micros,
        burst: Option<u64>,
    ) -> Result<Self, LimitError> {
        if quota == 0 {
            return Ok(Self {
                burst: 0,
                emission: Divisor::new(window.get()),
                bits: 0,
            });
        }
        let burst = burst.unwrap_or(quota);
        let (emission, bits) = (0..=FRACTION_BITS)
            .find_map(|bits| {
                let scaled = u128::from(window.get()) << bits;
                let emission = scaled.div_ceil(u128::from(quota));
                let lost = emission * u128::from(quota) - scaled;
                (lost * 1_000 <= scaled).then_some((emission, bits))
            })
            .ok_or(LimitError::RateOutOfRange)?;
        let full = emission.saturating_mul(u128::from(burst));
        if full > u128::from(MAX_COUNT) {
            return Err(LimitError::RateOutOfRange);
        }
        let emission = u64::try_from(emission).map_err(|_| LimitError::RateOutOfRange)?;
        Ok(Self {
            burst,
            emission: Divisor::new(emission),
            bits,
        })
    }

    /// The bucket's capacity in hits.
    pub(crate) const fn burst(self) -> u64 {
        self.burst
    }

    /// Fractional bits of its units, below the microsecond.
    pub(crate) const fn bits(self) -> u32 {
        self.bits
    }

    /// The time in which the whole bucket refills, in units of this rate.
    pub(crate) const fn full(self) -> u64 {
        self.burst * self.emission.get()
    }

    /// The time in which `hits` (at most [`Self::most`]) refill, in units of this rate.
    pub(crate) const fn span(self, hits: u64) -> u64 {
        hits * self.emission.get()
    }

    /// The most whole microseconds that are certain to be less than one hit takes.
    pub(crate) const fn below(self) -> u64 {
        (self.emission.get() - 1) >> self.bits
    }

    /// The span from the stored instant to `at`, in units of this rate; None if there is no such.
    pub(crate) fn between(self, instant: Instant, at: u64) -> Option<u64> {
        let micros = at.checked_sub(instant.micros)?;
        let span = u64::try_from(u128::from(micros) << self.bits).ok()?;
        span.checked_sub(shifted_up(instant.fraction, self.unit()))
    }

    /// The most hits that this rate can tell the refill of: 285 years of them up to a thousand a
    /// second, and no fewer than the burst. Another limit's burst may be larger.
    pub(crate) const fn most(self) -> u64 {
        MAX_COUNT / self.emission.get()
    }

    /// Hits in a span of `span` units, counting a partial hit as one.
    pub(crate) const fn hits_begun(self, span: u64) -> u64 {
        self.emission.quotient_up(span)
    }

    /// A span of `span` units in microseconds, rounded up.
    pub(crate) const fn micros(self, span: u64) -> Micros {
        Micros::new(shifted_up(span, self.bits))
    }

    /// A time in units of this rate.
    pub(crate) const fn units(self, time: Micros) -> u64 {
        time.get().saturating_mul(1 << self.bits)
    }

    /// The span from `now` to the stored instant, in units of this rate, at most 2^60 of them. Zero if
    /// the instant has passed.
    #[inline]
    pub(crate) const fn until(self, instant: Instant, now: Timestamp) -> u64 {
        if instant.micros < now.as_micros() {
            return 0;
        }
        let micros = instant.micros - now.as_micros();
        if micros > FARTHEST >> self.bits {
            return FARTHEST;
        }
        let fraction = shifted_up(instant.fraction, self.unit());
        let span = (micros << self.bits).saturating_add(fraction);
        if span > FARTHEST { FARTHEST } else { span }
    }

    /// The bits by which this rate's units are coarser than those of a stored fraction.
    const fn unit(self) -> u32 {
        FRACTION_BITS - self.bits
    }

    /// The instant `span` units before the microsecond `at`.
    pub(crate) const fn earlier(self, at: u64, span: u64) -> Instant {
        let rest = span & ((1 << self.bits) - 1);
        let Some(micros) = at.checked_sub(shifted_up(span, self.bits)) else {
            return Instant {
                micros: 0,
                fraction: 0,
            };
        };
        let fraction = if rest > 0 { (1 << self.bits) - rest } else { 0 };
        Instant {
            micros,
            fraction: fraction << self.unit(),
        }
    }

    /// The instant `span` units after `now`.
    pub(crate) const fn instant(self, now: Timestamp, span: u64) -> Instant {
        Instant {
            micros: now.as_micros(),
            fraction: 0,
        }
        .moved(self, span)
    }
}

/// `number` / 2^`bits`, rounded up, without a division.
const fn shifted_up(number: u64, bits: u32) -> u64 {
    let rest = number & ((1 << bits) - 1);
    (number >> bits) + (rest > 0) as u64
}

/// An instant with a resolution finer than a microsecond, as the buckets store it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Instant {
    pub(crate) micros: u64,
    /// In units of 2^-32 microseconds.
    pub(crate) fraction: u64,
}

impl Instant {
    /// The instant `span` units of `rate` later. A fraction finer than the rate's units, left by an
    /// earlier rate, is rounded up.
    #[inline]
    pub(crate) const fn moved(self, rate: Rate, span: u64) -> Self {
        if rate.bits == 0 && self.fraction == 0 {
            return Self {
                micros: self.micros.saturating_add(span),
                fraction: 0,
            };
        }
        let unit = rate.unit();
        let total = shifted_up(self.fraction, unit).saturating_add(span);
        Self {
            micros: self.micros.saturating_add(total >> rate.bits),
            fraction: (total & ((1 << rate.bits) - 1)) << unit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{FARTHEST, Instant, Rate};
    use crate::spec::LimitError;
    use crate::{MAX_COUNT, Micros, Timestamp};

    fn rate(quota: u64, window: Micros) -> Rate {
        Rate::try_new(quota, window, Some(1)).expect("a rate that can be kept")
    }

    #[test]
    fn takes_no_more_bits_than_a_thousandth_needs() {
        let second = Micros::from_secs(1);
        assert_eq!(rate(1_000, second).bits(), 0);
        // 333,334 for 333,333.3 microseconds.
        assert_eq!(
            (rate(3, second).bits, rate(3, second).span(1)),
            (0, 333_334)
        );
        assert_eq!(rate(1_000_000, second).bits, 0);
        assert_eq!(rate(300_000, second).bits(), 7);
    }

    #[test]
    fn what_is_below_one_hit_is_shorter_than_it() {
        let second = Micros::from_secs(1);
        assert_eq!(rate(1_000, second).below(), 999);
        // A hit takes 427 units of 2^-7 microseconds.
        assert_eq!(rate(300_000, second).below(), 3);
    }

    #[test]
    fn refuses_what_it_cannot_keep() {
        let refused = Err(LimitError::RateOutOfRange);
        assert_eq!(
            Rate::try_new(MAX_COUNT, Micros::from_millis(1), Some(1)),
            refused
        );
        assert_eq!(
            Rate::try_new(1, Micros::from_secs(1), Some(MAX_COUNT)),
            refused
        );
        let slowest = Rate::try_new(1, Micros::MAX, None).expect("one hit in 285 years");
        assert_eq!(slowest.full(), MAX_COUNT);
    }

    #[test]
    fn an_instant_that_a_finer_rate_left_is_rounded_up() {
        let (fine, coarse) = (
            rate(300_000, Micros::from_secs(1)),
            rate(1, Micros::from_secs(1)),
        );
        let now = Timestamp::from_secs(1_000);
        // 10/3 of a microsecond, and a little more as T is rounded up.
        let instant = fine.instant(now, fine.span(1));
        assert_eq!(fine.until(instant, now), fine.span(1));
        assert_eq!(coarse.until(instant, now), 4);
        assert_eq!(instant.moved(coarse, 0), coarse.instant(now, 4));
    }

    #[test]
    fn spans_before_and_after_an_instant_are_told_to_the_unit() {
        let fine = rate(300_000, Micros::from_secs(1));
        // A hit takes 427 units of 2^-7 microseconds: 3 microseconds and 43 units.
        let before = Instant {
            micros: 996,
            fraction: 85 << 25,
        };
        assert_eq!(fine.earlier(1_000, fine.span(1)), before);
        assert_eq!(fine.between(before, 1_000), Some(427));
        assert_eq!(fine.between(before, 996), None);
        let whole = Instant {
            micros: 998,
            fraction: 0,
        };
        assert_eq!(fine.earlier(1_000, 256), whole);
        assert_eq!(fine.units(Micros::new(3)), 384);
    }

    #[test]
    fn a_fraction_of_this_microsecond_is_still_to_come() {
        let fine = rate(300_000, Micros::from_secs(1));
        let half = Instant {
            micros: 1_000,
            fraction: 1 << 31,
        };
        assert_eq!(fine.until(half, Timestamp::from_micros(1_000)), 64);
        assert_eq!(fine.until(half, Timestamp::from_micros(1_001)), 0);
    }

    #[test]
    fn what_is_far_away_is_no_farther_than_the_farthest() {
        let fine = rate(300_000, Micros::from_secs(1));
        let at = |micros: u64| Instant {
            micros,
            fraction: 85 << 25,
        };
        let until = |micros: u64| fine.until(at(micros), Timestamp::EPOCH);
        assert_eq!(until((FARTHEST >> 7) - 1), FARTHEST - 128 + 85);
        assert_eq!(until(FARTHEST >> 7), FARTHEST);
        // Beyond that, its units would not fit.
        assert_eq!(until(1 << 57), FARTHEST);
    }
}
