//! The time zones of the system, or of those in the program.

use std::sync::{Mutex, PoisonError};

use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use ratekeeper_core::{Bounds, Micros, Timestamp};

use super::CalendarUnit;

/// A time zone.
pub(super) struct Zone {
    name: Box<str>,
    rules: TimeZone,
    /// The most recent window: nearly every request asks for the same one.
    last: Mutex<Option<Bounds>>,
}

impl Zone {
    /// The zone with that name; [`None`] if neither the system nor the bundled database has it.
    pub(super) fn get(name: &str) -> Option<Self> {
        let rules = TimeZone::get(name).ok()?;
        Some(Self {
            name: rules.iana_name().unwrap_or(name).into(),
            rules,
            last: Mutex::new(None),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The window of `unit` that holds `now`, and the end of the next one.
    pub(super) fn bounds(&self, unit: CalendarUnit, now: Timestamp) -> Bounds {
        // A caller that finds the lock taken computes the answer itself instead of waiting.
        if let Ok(last) = self.last.try_lock()
            && let Some(bounds) = *last
            && bounds.start <= now
            && now < bounds.end
        {
            return bounds;
        }
        let bounds = self.compute(unit, now);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(bounds);
        bounds
    }

    fn compute(&self, unit: CalendarUnit, now: Timestamp) -> Bounds {
        let days = unit.longest().get() / 86_400_000_000;
        // A timestamp of core ends in 2255, which jiff's range includes.
        let micros = i64::try_from(now.as_micros()).unwrap_or(i64::MAX);
        let instant = jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX);
        let start = self.start_of(unit, &instant.to_zoned(self.rules.clone()));
        let end = self.next(unit, &start);
        let next_end = self.next(unit, &end);
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

    fn start_of(&self, unit: CalendarUnit, now: &Zoned) -> Zoned {
        let date = match unit {
            CalendarUnit::Day => now.date(),
            CalendarUnit::Week => {
                let since_monday = i64::from(now.weekday().to_monday_zero_offset());
                now.date().saturating_sub(since_monday.days())
            }
            CalendarUnit::Month => now.date().first_of_month(),
        };
        // Where clocks skip midnight, the day starts at the first moment that exists.
        date.to_zoned(self.rules.clone())
            .unwrap_or_else(|_| now.clone())
    }

    fn next(&self, unit: CalendarUnit, start: &Zoned) -> Zoned {
        let date = match unit {
            CalendarUnit::Day => start.date().saturating_add(1.day()),
            CalendarUnit::Week => start.date().saturating_add(7.days()),
            CalendarUnit::Month => start.date().saturating_add(1.month()),
        };
        date.to_zoned(self.rules.clone())
            .unwrap_or_else(|_| start.clone())
    }
}

/// Converts to core's time. A point before the epoch becomes the epoch: our clocks never show one.
fn point(zoned: &Zoned) -> Timestamp {
    let micros = zoned.timestamp().as_microsecond();
    Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
}
