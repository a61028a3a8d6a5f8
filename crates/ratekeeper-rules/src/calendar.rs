//! Windows that follow a calendar: days, weeks and months of a time zone.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use ratekeeper_core::{Bounds, Micros, Timestamp};

use crate::named::named;

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

/// A [`CalendarUnit`] in a time zone. Cheap to clone.
#[derive(Clone)]
pub struct Calendar {
    unit: CalendarUnit,
    zone: Arc<Zone>,
}

struct Zone {
    name: Box<str>,
    rules: TimeZone,
    /// The most recent window: nearly every request asks for the same one.
    last: Mutex<Option<Bounds>>,
}

impl Calendar {
    /// Windows of `unit` in the zone with that IANA name (`Europe/Vienna`). [`None`] if neither the
    /// system nor the bundled database has the zone.
    #[must_use]
    pub fn new(unit: CalendarUnit, zone: &str) -> Option<Self> {
        let rules = TimeZone::get(zone).ok()?;
        let name = rules.iana_name().unwrap_or(zone).into();
        Some(Self {
            unit,
            zone: Arc::new(Zone {
                name,
                rules,
                last: Mutex::new(None),
            }),
        })
    }

    /// The calendar unit that a window spans.
    #[must_use]
    pub const fn unit(&self) -> CalendarUnit {
        self.unit
    }

    /// The time zone's IANA name.
    #[must_use]
    pub fn zone(&self) -> &str {
        &self.zone.name
    }

    /// The window that holds `now`, and the end of the next one.
    ///
    /// The last answer is kept: as long as `now` stays in it, this costs an uncontended lock.
    #[must_use]
    pub fn bounds(&self, now: Timestamp) -> Bounds {
        // A caller that finds the lock taken computes the answer itself instead of waiting.
        if let Ok(last) = self.zone.last.try_lock()
            && let Some(bounds) = *last
            && bounds.start <= now
            && now < bounds.end
        {
            return bounds;
        }
        let bounds = self.compute(now);
        *self
            .zone
            .last
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(bounds);
        bounds
    }

    fn compute(&self, now: Timestamp) -> Bounds {
        let days = self.unit.longest().get() / 86_400_000_000;
        // A timestamp of core ends in 2255, which jiff's range includes.
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
        let start = self.start_of(&instant.to_zoned(self.zone.rules.clone()));
        let end = self.next(&start);
        let next_end = self.next(&end);
        let (start, end, next_end) = (point(&start), point(&end), point(&next_end));
        // Core's time ends in 2255, where a window could come out empty: callers divide by its length.
        if start <= now && now < end && end < next_end {
            return Bounds {
                start,
                end,
                next_end,
            };
        }
        let length = Micros::from_secs(days * 86_400);
        Bounds {
            start: now,
            end: now.after(length),
            next_end: now.after(length).after(length),
        }
    }

    fn start_of(&self, now: &Zoned) -> Zoned {
        let date = match self.unit {
            CalendarUnit::Day => now.date(),
            CalendarUnit::Week => {
                let since_monday = i64::from(now.weekday().to_monday_zero_offset());
                now.date().saturating_sub(since_monday.days())
            }
            CalendarUnit::Month => now.date().first_of_month(),
        };
        // Where clocks skip midnight, the day starts at the first moment that exists.
        date.to_zoned(self.zone.rules.clone())
            .unwrap_or_else(|_| now.clone())
    }

    fn next(&self, start: &Zoned) -> Zoned {
        let date = match self.unit {
            CalendarUnit::Day => start.date().saturating_add(1.day()),
            CalendarUnit::Week => start.date().saturating_add(7.days()),
            CalendarUnit::Month => start.date().saturating_add(1.month()),
        };
        date.to_zoned(self.zone.rules.clone())
            .unwrap_or_else(|_| start.clone())
    }
}

/// Converts to core's time. A point before the epoch becomes the epoch: our clocks never show one.
fn point(zoned: &Zoned) -> Timestamp {
    let micros = zoned.timestamp().as_microsecond();
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.unit == other.unit && self.zone.name == other.zone.name
    }
}

impl Eq for Calendar {}

impl std::fmt::Debug for Calendar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}@{}", self.unit.name(), self.zone.name)
    }
}
