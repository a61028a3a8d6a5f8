//! The order in which requests are shed, and how much stands on each step of it.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{CLASSES_MAX, Class, ClassCount, Share};

/// Steps of a band: tenants are spread over them by their hash.
const STEPS: usize = 16;
/// Bands: one for each class, and two for what tenants ask for beyond their fair share.
const BANDS: usize = CLASSES_MAX + 2;

/// The place of a request in the order of shedding: the lowest goes first.
///
/// ```text
/// beyond the fair share | top class beyond it | class 0 | class 1 | ... | top class
/// ```
///
/// Within a band the tenant's hash decides, so that the same tenants are shed until the hash changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rung(u16);

impl Rung {
    /// The rung of a request of `class` by a tenant with this hash.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "a rung of few")]
    pub const fn new(class: Class, classes: ClassCount, share: Share, tenant: u64) -> Self {
        let band = match (share, classes.is_top(class)) {
            (Share::Beyond, false) => 0,
            (Share::Beyond, true) => 1,
            (Share::Within, _) => class.index() + 2,
        };
        let step = (tenant >> 60) as usize;
        Self((band * STEPS + step) as u16)
    }
}

/// The rungs below which requests are shed, and the part of the rung itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threshold(u32);

impl Threshold {
    /// Sheds nothing.
    pub const NOTHING: Self = Self(0);

    #[expect(clippy::cast_possible_truncation, reason = "a rung of few")]
    const fn new(rung: usize, part: u16) -> Self {
        Self((rung as u32) << 16 | part as u32)
    }

    /// Returns true if a request on `rung` is shed; `lot` is a random number, used on the rung of the threshold alone.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the two halves of the threshold"
    )]
    pub const fn sheds(self, rung: Rung, lot: u16) -> bool {
        let own = (self.0 >> 16) as u16;
        rung.0 < own || rung.0 == own && lot < self.0 as u16
    }

    /// The part of `class` that is shed, from 0 to 1, if its tenants are spread evenly. Of what they ask for beyond
    /// their fair share it may be more.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a rung of few, and the lower half of the threshold"
    )]
    pub fn part_of(self, class: Class) -> f64 {
        let first = (class.index() + 2) * STEPS;
        let rung = (self.0 >> 16) as usize;
        let part = f64::from(self.0 as u16) / 65_536.0;
        let steps = rung as f64 - first as f64 + part;
        (steps / STEPS as f64).clamp(0.0, 1.0)
    }

    /// The classes that are shed at least in part, as a number of classes from the lowest.
    #[must_use]
    pub const fn classes(self) -> usize {
        let band = (self.0 >> 16) as usize / STEPS;
        band.saturating_sub(1)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// Counts requests by rung, to find the threshold that sheds a given part of them.
#[derive(Debug)]
pub(crate) struct Ladder {
    arrived: Box<[AtomicU32]>,
}

impl Default for Ladder {
    fn default() -> Self {
        let arrived = (0..BANDS * STEPS).map(|_| AtomicU32::new(0)).collect();
        Self { arrived }
    }
}

impl Ladder {
    pub(crate) fn record(&self, rung: Rung) {
        self.arrived[usize::from(rung.0)].fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the counts into `memory`, which forgets half of what it held.
    pub(crate) fn take(&self, memory: &mut Memory) {
        for (held, count) in memory.0.iter_mut().zip(&self.arrived) {
            *held = *held / 2.0 + f64::from(count.swap(0, Ordering::Relaxed));
        }
    }
}

/// The recent arrivals by rung.
#[derive(Debug)]
pub(crate) struct Memory([f64; BANDS * STEPS]);

impl Default for Memory {
    fn default() -> Self {
        Self([0.0; BANDS * STEPS])
    }
}

impl Memory {
    /// The threshold that sheds the part `share` (0 to 1) of the recent arrivals.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded at the line above"
    )]
    pub(crate) fn threshold(&self, share: f64) -> Threshold {
        let total: f64 = self.0.iter().sum();
        let mut left = share * total;
        if left <= 0.0 {
            return Threshold::NOTHING;
        }
        for (rung, &count) in self.0.iter().enumerate() {
            if count > left {
                let part = (left / count * 65_536.0).min(65_535.0);
                return Threshold::new(rung, part as u16);
            }
            left -= count;
        }
        Threshold::new(self.0.len(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: ClassCount = ClassCount::new(3);

    fn rung(class: u8, is_beyond: bool, step: u64) -> Rung {
        let share = if is_beyond {
            Share::Beyond
        } else {
            Share::Within
        };
        Rung::new(Class::new(class), CLASSES, share, step << 60)
    }

    #[test]
    fn storms_go_before_classes_and_critical_requests_last() {
        let order = [
            rung(1, true, 15),
            rung(2, true, 0),
            rung(0, false, 0),
            rung(0, false, 1),
            rung(1, false, 0),
            rung(2, false, 0),
        ];
        assert!(order.is_sorted());
    }

    #[test]
    fn the_threshold_sheds_the_share_it_was_asked_for() {
        let ladder = Ladder::default();
        let mut memory = Memory::default();
        for _ in 0..10 {
            ladder.record(rung(0, false, 3));
        }
        for _ in 0..30 {
            ladder.record(rung(1, false, 7));
        }
        ladder.take(&mut memory);
        assert_eq!(memory.threshold(0.0), Threshold::NOTHING);
        let quarter = memory.threshold(0.25);
        assert!(quarter.sheds(rung(0, false, 3), u16::MAX));
        assert!(!quarter.sheds(rung(1, false, 7), 0));
        let half = memory.threshold(0.5);
        assert!(half.sheds(rung(0, false, 3), u16::MAX));
        let shed = (0..=u16::MAX).filter(|lot| half.sheds(rung(1, false, 7), *lot));
        let share = f64::from(u32::try_from(shed.count()).unwrap()) / 65_536.0;
        assert!((share - 1.0 / 3.0).abs() < 0.001, "{share}");
        assert!((half.part_of(Class::new(0)) - 1.0).abs() < 1e-9);
        // All seven steps below the one of the threshold, and a third of that.
        let expected = (7.0 + 1.0 / 3.0) / 16.0;
        assert!((half.part_of(Class::new(1)) - expected).abs() < 1e-4);
        assert!(half.part_of(Class::new(2)).abs() < 1e-9);
        assert!(memory.threshold(1.0).sheds(rung(2, false, 15), u16::MAX));
    }
}
