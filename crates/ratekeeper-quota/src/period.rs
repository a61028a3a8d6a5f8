//! Days and months that calls are added up by.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan, tz};

/// The span of time that calls are added up over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UsagePeriod {
    /// A day in UTC.
    Day,
    /// A month in UTC.
    Month,
}

/// A text that names no period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("must be day or month")]
pub struct UnknownPeriod;

impl FromStr for UsagePeriod {
    type Err = UnknownPeriod;

    fn from_str(text: &str) -> Result<Self, UnknownPeriod> {
        match text {
            "day" => Ok(Self::Day),
            "month" => Ok(Self::Month),
            _ => Err(UnknownPeriod),
        }
    }
}

impl fmt::Display for UsagePeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Day => "day",
            Self::Month => "month",
        })
    }
}

/// The last hour that is told by its date; no node counts later ones.
const HOUR_MAX: u64 = 70_000_000;

impl UsagePeriod {
    /// The first day of the period that `hour`, counted from 1970, is in.
    fn first_day(self, hour: u64) -> Date {
        let seconds = hour.min(HOUR_MAX).cast_signed() * 3_600;
        let time = Timestamp::from_second(seconds).unwrap_or_default();
        let day = tz::Offset::UTC.to_datetime(time).date();
        match self {
            Self::Day => day,
            Self::Month => day.first_of_month(),
        }
    }

    /// The first hour of the period that `hour` is in.
    pub(crate) fn begin(self, hour: u64) -> u64 {
        first_hour(self.first_day(hour))
    }

    /// The hour after the period that `hour` is in.
    pub(crate) fn end(self, hour: u64) -> u64 {
        let next = self.first_day(hour).checked_add(match self {
            Self::Day => 1.day(),
            Self::Month => 1.month(),
        });
        next.map_or(u64::MAX, first_hour)
    }

    /// The period that `hour` is in: `2027-01-15`, `2027-01`.
    pub(crate) fn name(self, hour: u64) -> String {
        let first = self.first_day(hour);
        match self {
            Self::Day => first.to_string(),
            Self::Month => format!("{:04}-{:02}", first.year(), first.month()),
        }
    }
}

/// The first hour of a day.
fn first_hour(day: Date) -> u64 {
    let midnight = day.to_zoned(tz::TimeZone::UTC);
    let second = midnight.map_or(0, |midnight| midnight.timestamp().as_second());
    u64::try_from(second / 3_600).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hour(text: &str) -> u64 {
        let time: Timestamp = text.parse().expect("a time");
        u64::try_from(time.as_second() / 3_600).expect("after 1970")
    }

    #[test]
    fn periods_begin_and_end_at_midnight_in_utc() {
        for (within, day, next_day, month, next_month) in [
            (
                "2027-01-31T23:00:00Z",
                "2027-01-31",
                "2027-02-01",
                "2027-01",
                "2027-02-01",
            ),
            (
                "2028-02-29T00:00:00Z",
                "2028-02-29",
                "2028-03-01",
                "2028-02",
                "2028-03-01",
            ),
            (
                "2027-12-01T00:00:00Z",
                "2027-12-01",
                "2027-12-02",
                "2027-12",
                "2028-01-01",
            ),
        ] {
            let within = hour(within);
            let midnight = |day: &str| hour(&format!("{day}T00:00:00Z"));
            assert_eq!(UsagePeriod::Day.name(within), day);
            assert_eq!(UsagePeriod::Day.end(within), midnight(next_day));
            assert_eq!(UsagePeriod::Month.name(within), month);
            assert_eq!(UsagePeriod::Month.end(within), midnight(next_month));
            assert_eq!(UsagePeriod::Day.begin(within), midnight(day));
            assert_eq!(
                UsagePeriod::Month.begin(within),
                midnight(&format!("{month}-01"))
            );
        }
        assert!(
            UsagePeriod::Month.end(u64::MAX) > HOUR_MAX,
            "no end is before its beginning"
        );
    }
}
