//! Windows that follow a calendar: days, weeks and months of a time zone.

#[cfg(not(feature = "yaml"))]
mod none;
#[cfg(feature = "yaml")]
mod zoned;

use std::sync::Arc;

use ratekeeper_core::{Bounds, Micros, Timestamp};

use crate::named::named;
#[cfg(not(feature = "yaml"))]
use none::Zone;
#[cfg(feature = "yaml")]
use zoned::Zone;

/// A calendar's unit of windows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CalendarUnit {
    /// Midnight to midnight: 23 to 25 hours on days when clocks change.
    Day,
    /// Monday to Monday (ISO 8601).
    Week,
    /// The first of a month to the first of the next.
    Month,
}

named!(CalendarUnit: Day "day", Week "week", Month "month");

impl CalendarUnit {
    /// The longest such a window can be, clock changes aside: a month has 31 days.
    #[must_use]
    pub const fn longest(self) -> Micros {
        const DAY_SECS: u64 = 86_400;
        Micros::from_secs(match self {
            Self::Day => DAY_SECS,
            Self::Week => 7 * DAY_SECS,
            Self::Month => 31 * DAY_SECS,
        })
    }
}

/// A [`CalendarUnit`] in a time zone. Cheap to clone. Without the feature `yaml` there is none.
#[derive(Clone)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: Arc<Zone>,
}

impl Calendar {
    /// Windows of `unit` in the zone with that IANA name (`Europe/Vienna`). [`None`] if neither the
    /// system nor the bundled database has the zone.
    #[must_use]
    pub fn new(unit: CalendarUnit, zone: &str) -> Option<Self> {
        let zone = Arc::new(Zone::get(zone)?);
        Some(Self { unit, zone })
    }

    /// The calendar unit that a window spans.
    #[must_use]
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The time zone's IANA name.
    #[must_use]
    pub fn zone(&self) -> &str {
        self.zone.name()
    }

    /// The window that holds `now`, and the end of the next one.
    ///
    /// The last answer is kept: as long as `now` stays in it, this costs an uncontended lock.
    #[must_use]
    pub fn bounds(&self, now: Timestamp) -> Bounds {
        self.zone.bounds(self.unit, now)
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.unit == other.unit && self.zone() == other.zone()
    }
}

impl Eq for Calendar {}

impl std::fmt::Debug for Calendar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.unit.name(), self.zone())
    }
}
