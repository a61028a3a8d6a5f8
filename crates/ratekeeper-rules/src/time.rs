//! Times as people and programs write them: one parser and one form for files, flags, queries and JSON.
//!
//! A time is a date and time of RFC 3339, or a plain date, which is the start of that day in UTC. So what ends at
//! `2026-12-01` is over when December begins.

use std::fmt;
#[cfg(feature = "yaml")]
use std::str::FromStr;

#[cfg(feature = "yaml")]
use jiff::{civil::Date, tz::TimeZone};
use ratekeeper_core::Timestamp;

/// The first microsecond that nothing can begin or end at: 2255-06-05T00:00:00Z. Clocks end on that day.
pub(crate) const LAST_MICROS: u64 = 9_007_113_600_000_000;

/// A text that is no time since 1970.
#[cfg(feature = "yaml")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotATime {
    /// It is no time, or one before 1970.
    #[error(
        "expected a time since 1970 with its offset, such as 2027-01-31T00:00:00Z, or a date, such as 2027-01-31, which \
         is its start in UTC"
    )]
    Unreadable,
    /// It is later than a clock here can tell.
    #[error("expected a time before 2255-06-05; leave it out if it never comes")]
    TooLate,
}

/// Reads a date and time with its offset, or a plain date.
///
/// # Errors
/// It is neither, or a time that no clock here can tell.
#[cfg(feature = "yaml")]
pub fn parse(text: &str) -> Result<Timestamp, NotATime> {
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => time,
        Err(_) => start_of_day(text).ok_or(NotATime::Unreadable)?,
    };
    let micros = u64::try_from(time.as_microsecond()).map_err(|_| NotATime::Unreadable)?;
    match micros < LAST_MICROS {
        true => Ok(Timestamp::from_micros(micros)),
        false => Err(NotATime::TooLate),
    }
}

#[cfg(feature = "yaml")]
fn start_of_day(text: &str) -> Option<jiff::Timestamp> {
    // jiff also reads a date off a time without an offset, whose zone would be a guess.
    let is_date = text.len() == "2027-01-31".len();
    let date: Date = text.parse().ok().filter(|_| is_date)?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The text of `time`, as in `2027-01-31T00:00:00Z`. A fraction of a second has as many digits as it needs.
#[must_use]
pub const fn rfc3339(time: Timestamp) -> Rfc3339 {
    Rfc3339(time)
}

/// A time as in `2027-01-31T00:00:00Z`; also read from a plain date.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rfc3339(pub Timestamp);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = self.0.as_micros();
        let (secs, fraction) = (micros / 1_000_000, micros % 1_000_000);
        let (year, month, day) = date_of(secs / 86_400);
        let (hour, minute, second) = (secs / 3_600 % 24, secs / 60 % 60, secs % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if fraction > 0 {
            let digits = format!("{fraction:06}");
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
        f.write_str("Z")
    }
}

#[cfg(feature = "yaml")]
impl FromStr for Rfc3339 {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self)
    }
}

#[cfg(feature = "yaml")]
impl serde::Serialize for Rfc3339 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "yaml")]
impl<'de> serde::Deserialize<'de> for Rfc3339 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for Rfc3339 {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(format))
            .into()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for Rfc3339 {
    fn name() -> std::borrow::Cow<'static, str> {
        "Time".into()
    }
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
///
/// Years are counted from March, so that the day that some have more is their last: 153 days are five months, and 146,097
/// days are 400 years.
const fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = era * 400 + year_of_era + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(all(test, feature = "yaml"))]
mod tests {
    use super::*;

    fn seconds(text: &str) -> Result<u64, NotATime> {
        parse(text).map(|time| time.as_micros() / 1_000_000)
    }

    #[test]
    fn a_time_has_an_offset_and_a_date_is_its_start_in_utc() {
        let start = seconds("2026-12-01T00:00:00Z");
        assert_eq!(start, Ok(1_796_083_200));
        for same in [
            "2026-12-01",
            "2026-12-01T01:00:00+01:00",
            "2026-12-01 00:00:00Z",
            "2026-11-30T19:00:00.000-05:00",
        ] {
            assert_eq!(seconds(same), start, "{same}");
        }
        assert_eq!(seconds("1970-01-01"), Ok(0));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "tomorrow",
            "2026-12-32",
            "2026-02-29",
            "2026-12",
            "20261201",
            "2026-12-01T00:00:00",
            "2026-12-01T00:00",
            "1969-12-31",
            "1796083200",
        ] {
            assert_eq!(seconds(text), Err(NotATime::Unreadable), "{text}");
        }
        assert_eq!(seconds("2255-06-05"), Err(NotATime::TooLate));
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        for text in ["2026-12-01T00:00:00Z", "2026-12-01T00:00:00.000001Z"] {
            let time = parse(text).expect(text);
            assert_eq!(rfc3339(time).to_string(), text);
        }
    }

    #[test]
    fn it_is_written_as_jiff_writes_it() {
        // Every day up to the end of time, at another time of the day each.
        for day in 0..104_248 {
            let micros = day * 86_400_000_000 + day * 800_011;
            let jiff = jiff::Timestamp::from_microsecond(i64::try_from(micros).expect("it fits"));
            let jiff = jiff.expect("a time that jiff knows").to_string();
            assert_eq!(rfc3339(Timestamp::from_micros(micros)).to_string(), jiff);
        }
    }
}
