//! Times as people and programs write them: one parser and one form for files, flags, queries and JSON.
//!
//! A time is a date and time of RFC 3339, or a plain date, which is the start of that day in UTC. So what ends at
//! `2026-12-01` is over when December begins.

use std::fmt;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use ratekeeper_core::Timestamp;

use crate::Term;

/// A text that is no time since 1970.
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
pub fn parse(text: &str) -> Result<Timestamp, NotATime> {
    let time = match text.parse::<jiff::Timestamp>() {
        Ok(time) => time,
        Err(_) => start_of_day(text).ok_or(NotATime::Unreadable)?,
    };
    let micros = u64::try_from(time.as_microsecond()).map_err(|_| NotATime::Unreadable)?;
    match micros < Term::LAST_MICROS {
        true => Ok(Timestamp::from_micros(micros)),
        false => Err(NotATime::TooLate),
    }
}

fn start_of_day(text: &str) -> Option<jiff::Timestamp> {
    // jiff also reads a date off a time without an offset, whose zone would be a guess.
    let is_date = text.len() == "2027-01-31".len();
    let date: Date = text.parse().ok().filter(|_| is_date)?;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The text of `time`, as in `2027-01-31T00:00:00Z`.
#[must_use]
pub fn rfc3339(time: Timestamp) -> impl fmt::Display {
    let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros).unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
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
}
