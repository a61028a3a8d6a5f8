//! The grouping of a limit's hits, and the packing of group boundaries.

use crate::divisor::Divisor;
use crate::spec::LimitError;
use crate::{MAX_COUNT, Micros, Timestamp};

use super::log::Log;

/// The largest limit that is exact, with a group for each hit.
pub const EXACT_UP_TO: u64 = 23;

/// The shortest window: a tick of 32 microseconds is 1/250 of it.
pub const SHORTEST_WINDOW: Micros = Micros::from_millis(8);

/// The shortest tick in microseconds with which every time fits 48 bits.
const SHORTEST_TICK: u64 = 32;

/// Microseconds of a second.
const SECOND: u64 = 1_000_000;

/// Bits of all distances together.
pub(super) const DISTANCE_BITS: u32 = 176;

/// The width of the distances between boundaries. The fewer there are, the finer they can be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Width {
    /// 8 distances of 22 bits: 9 groups.
    Bits22 = 0,
    /// 11 distances of 16 bits: 12 groups.
    Bits16 = 1,
    /// 16 distances of 11 bits: 17 groups.
    Bits11 = 2,
    /// 22 distances of 8 bits: 23 groups.
    Bits8 = 3,
}

impl Width {
    pub(super) const ALL: [Self; 4] = [Self::Bits22, Self::Bits16, Self::Bits11, Self::Bits8];

    /// Bits of a distance.
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::Bits22 => 22,
            Self::Bits16 => 16,
            Self::Bits11 => 11,
            Self::Bits8 => 8,
        }
    }

    /// The number of distances, one fewer than groups.
    pub(super) const fn distances(self) -> usize {
        (DISTANCE_BITS / self.bits()) as usize
    }

    /// The most groups that can be distinguished.
    pub(super) const fn groups(self) -> u64 {
        self.distances() as u64 + 1
    }

    /// The distance that marks a boundary outside the window: none inside is so far away.
    pub(super) const fn gone(self) -> u64 {
        (1 << self.bits()) - 1
    }

    /// The length of a tick for a window: two boundaries inside are closer than `gone`, although
    /// both are rounded up. It divides a second unless it has to be longer, so that times in whole
    /// seconds, as in logs, are exact.
    const fn tick(self, window: u64) -> u64 {
        let least = window.div_ceil(self.gone() - 2);
        divisor_of_a_second(if least < SHORTEST_TICK {
            SHORTEST_TICK
        } else {
            least
        })
    }
}

/// The smallest divisor of a second, in microseconds, that is at least `least`; `least` itself if
/// that is longer than a second.
const fn divisor_of_a_second(least: u64) -> u64 {
    if least > SECOND {
        return least;
    }
    // A second is 2^6 * 5^6 microseconds.
    let (mut best, mut fives) = (SECOND, 1);
    while fives <= SECOND / 64 {
        let mut tick = fives;
        while tick <= 64 * fives {
            if tick >= least && tick < best {
                best = tick;
            }
            tick *= 2;
        }
        fives *= 5;
    }
    best
}

/// The representation of a counter: the width of its distances, and the hits of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Form {
    pub(super) width: Width,
    pub(super) group: u64,
}

impl Form {
    /// The finest form that holds `most` hits.
    const fn of(most: u64) -> Self {
        let (width, group) = match most {
            0..=9 => (Width::Bits22, 1),
            10..=12 => (Width::Bits16, 1),
            13..=17 => (Width::Bits11, 1),
            18..=EXACT_UP_TO => (Width::Bits8, 1),
            _ => {
                let width = Width::Bits11;
                (width, (most - 1).div_ceil(width.groups() - 1))
            }
        };
        Self { width, group }
    }

    /// The most hits that are certain to be counted while all are in the window; counting more
    /// drops the oldest group.
    const fn holds(self) -> u64 {
        self.group
            .saturating_mul(self.width.groups() - 1)
            .saturating_add(1)
    }

    /// The packed form; 0 is reserved for a counter without hits.
    pub(super) const fn to_bits(self) -> u64 {
        match self.group {
            1 => self.width as u64 + 1,
            group => group + 3,
        }
    }

    /// Unpacks the form; None for 0.
    #[expect(clippy::cast_possible_truncation, reason = "1 to 4")]
    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits {
            0 => return None,
            1..=4 => Self {
                width: Width::ALL[bits as usize - 1],
                group: 1,
            },
            _ => Self {
                width: Width::Bits11,
                group: (bits - 3).min(MAX_COUNT),
            },
        })
    }
}

/// The grouping of a sliding window's hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Groups {
    /// The most hits that can count at once: the quota, or less for a strict limit.
    pub most: u64,
    /// Hits per group.
    pub size: u64,
    /// Bits of the distance between two group boundaries: 22, 16, 11 or 8.
    pub bits: u32,
    /// The time unit of boundaries with that many bits.
    pub tick: Micros,
}

/// A limit with the precomputed values of its steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EqualCount {
    most: u64,
    form: Form,
    tick: Divisor,
    window: u64,
    is_strict: bool,
}

impl EqualCount {
    /// A limit of `quota` hits in any `window`, or a few more unless it `is_strict`.
    pub(crate) const fn try_new(
        quota: u64,
        window: Micros,
        is_strict: bool,
    ) -> Result<Self, LimitError> {
        if window.get() < SHORTEST_WINDOW.get() {
            return Err(LimitError::WindowTooShort);
        }
        // The largest limit with which limit + group - 1 stays within the quota: m - 1 + ceil((m -
        // 1) / 16) <= quota.
        let within = quota / 17 * 16 + quota % 17 * 16 / 17 + 1;
        let most = match (is_strict, quota) {
            (false, _) | (true, 0..=EXACT_UP_TO) => quota,
            (true, _) if within > EXACT_UP_TO => within,
            (true, _) => EXACT_UP_TO,
        };
        let form = Form::of(most);
        Ok(Self {
            most,
            form,
            tick: Divisor::new(form.width.tick(window.get())),
            window: window.get(),
            is_strict,
        })
    }

    /// The most hits that can be counted and still let another pass, and so the capacity.
    pub(crate) const fn most(&self) -> u64 {
        self.most
    }

    /// The most hits that can pass in any window.
    pub(crate) const fn most_in_any_window(&self) -> u64 {
        self.most + self.form.group - 1
    }

    pub(crate) const fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The parameters of its steps.
    pub(crate) const fn groups(&self) -> Groups {
        Groups {
            most: self.most,
            size: self.form.group,
            bits: self.form.width.bits(),
            tick: Micros::new(self.tick.get()),
        }
    }

    /// Returns true if counters start in [`Words`](crate::Words).
    pub(crate) const fn fits_words(&self) -> bool {
        self.form.group <= Log::INLINE_GROUP
    }

    pub(super) const fn form(&self) -> Form {
        self.form
    }

    pub(super) const fn window(&self) -> u64 {
        self.window
    }

    /// The tick of a counter in `form`.
    #[inline(always)]
    pub(super) fn tick_of(&self, form: Form) -> Divisor {
        if form.width == self.form.width {
            self.tick
        } else {
            Divisor::new(form.width.tick(self.window))
        }
    }

    /// Returns true if the next charge regroups a counter in `form`: its groups are too few for
    /// this limit, or much too coarse.
    #[inline(always)]
    pub(super) fn regroups(&self, form: Form) -> bool {
        form != self.form && (form.holds() < self.most || form.group > 2 * self.form.group)
    }

    /// The time at which the newest group of a counter leaves the window.
    pub(super) fn leaves(&self, log: &Log) -> Timestamp {
        let tick = self.tick_of(log.form_or(self.form)).get();
        Timestamp::from_micros(log.base.saturating_mul(tick).saturating_add(self.window))
    }
}
