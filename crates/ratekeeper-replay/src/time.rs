//! Parses the time formats of access logs.
//!
//! Supported: `17/May/2015:10:05:03 +0000` (Common Log Format), RFC 3339 and its variants (`T` or a
//! space, `-` or `/`, a fraction, `Z`, `UTC`, `+02:00`, `+0200`, `+02`; UTC without an offset), and seconds,
//! milliseconds, microseconds or nanoseconds since the epoch, distinguished by magnitude. Times
//! before 1970 or after 2255 are invalid.

use ratekeeper_core::{MAX_COUNT, Timestamp};

const MICROS_PER_SEC: u64 = 1_000_000;

/// Parses times and caches the last one: most lines of a log have the same second as the line
/// before, and comparing 26 bytes is cheaper than parsing them.
#[derive(Debug)]
pub(crate) struct TimeReader {
    text: [u8; Self::LONGEST],
    len: usize,
    time: Timestamp,
}

impl TimeReader {
    /// The longest text that can be a time; longer ones are not parsed.
    pub(crate) const LONGEST: usize = 48;

    pub(crate) const fn new() -> Self {
        Self {
            text: [0; Self::LONGEST],
            len: 0,
            time: Timestamp::EPOCH,
        }
    }

    /// Parses `text`, using the cached time if it is the same.
    pub(crate) fn read(&mut self, text: &[u8]) -> Option<Timestamp> {
        if self.text.get(..self.len) == Some(text) && self.len > 0 {
            return Some(self.time);
        }
        let kept = self.text.get_mut(..text.len())?;
        let time = parse(text)?;
        kept.copy_from_slice(text);
        self.len = text.len();
        self.time = time;
        Some(time)
    }
}

/// Parses a time in any of the formats.
pub(crate) fn parse(text: &[u8]) -> Option<Timestamp> {
    let text = text.trim_ascii();
    match (text.get(2), text.get(4)) {
        (Some(b'/'), _) => parse_common(text),
        (_, Some(b'-' | b'/')) => parse_iso(text),
        _ => parse_epoch(text),
    }
}

/// Parses `17/May/2015:10:05:03 +0000`; the offset is optional.
fn parse_common(text: &[u8]) -> Option<Timestamp> {
    let mut rest = Digits(text);
    let day = rest.number(2)?;
    rest.byte(b'/')?;
    let month = rest.month()?;
    rest.byte(b'/')?;
    let year = rest.number(4)?;
    rest.byte(b':')?;
    let seconds = rest.time_of_day()?;
    let fraction = rest.fraction();
    rest.spaces();
    let offset = rest.offset()?;
    assemble(year, month, day, seconds, offset, fraction)
}

/// Parses `2015-05-17T10:05:03.123Z` and its variants.
fn parse_iso(text: &[u8]) -> Option<Timestamp> {
    let mut rest = Digits(text);
    let year = rest.number(4)?;
    let separator = rest.next()?;
    let month = rest.number(2)?;
    rest.byte(separator)?;
    let day = rest.number(2)?;
    if !matches!(rest.next()?, b'T' | b't' | b' ' | b'_') {
        return None;
    }
    let seconds = rest.time_of_day()?;
    let fraction = rest.fraction();
    rest.spaces();
    let offset = rest.offset()?;
    assemble(year, month, day, seconds, offset, fraction)
}

/// Parses digits, perhaps with a fraction; the magnitude decides the unit.
fn parse_epoch(text: &[u8]) -> Option<Timestamp> {
    let mut rest = Digits(text);
    let (mut whole, mut digits) = (0_u64, 0);
    while let Some(digit) = rest.digit() {
        whole = whole.checked_mul(10)?.checked_add(digit)?;
        digits += 1;
    }
    if digits == 0 {
        return None;
    }
    let fraction = rest.fraction();
    if !rest.0.is_empty() {
        // An exponent: too rare for code of its own.
        let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        let in_range = value.is_finite() && (0.0..1e18).contains(&value);
        return if in_range { from_float(value) } else { None };
    }
    from_epoch(whole, fraction)
}

/// The time for a number with an exponent, as exact as a double.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller has checked that 0 <= value < 1e18"
)]
fn from_float(value: f64) -> Option<Timestamp> {
    let whole = value.trunc();
    from_epoch(whole as u64, ((value - whole) * 1e6) as u64)
}

/// Picks the unit: seconds until the year 5138, milliseconds from 1973 on, and so forth. No two
/// units overlap in the years that logs come from.
fn from_epoch(whole: u64, fraction: u64) -> Option<Timestamp> {
    let micros = match whole {
        0..100_000_000_000 => whole * MICROS_PER_SEC + fraction,
        100_000_000_000..100_000_000_000_000 => whole * 1_000 + fraction / 1_000,
        100_000_000_000_000..100_000_000_000_000_000 => whole,
        _ => whole / 1_000,
    };
    (micros <= MAX_COUNT).then(|| Timestamp::from_micros(micros))
}

fn assemble(
    year: u64,
    month: u64,
    day: u64,
    seconds: u64,
    offset: i64,
    fraction: u64,
) -> Option<Timestamp> {
    let days = days_since_epoch(year, month, day)?;
    let seconds = (days * 86_400 + seconds).checked_add_signed(-offset)?;
    let micros = seconds.checked_mul(MICROS_PER_SEC)?.checked_add(fraction)?;
    (micros <= MAX_COUNT).then(|| Timestamp::from_micros(micros))
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
///
/// Counts in years that begin in March, so that the leap day is the last of its year, and
/// in eras of 400 years, which all have 146,097 days. Source: Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days_since_epoch(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last_day = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1970 || day == 0 || day > last_day {
        return None;
    }
    let march_year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    Some(era * 146_097 + day_of_era - 719_468)
}

/// The rest of a text, consumed from the front.
struct Digits<'a>(&'a [u8]);

impl Digits<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn byte(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then_some(())
    }

    fn digit(&mut self) -> Option<u64> {
        let digit = self.0.first()?.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        self.0 = self.0.split_first()?.1;
        Some(u64::from(digit))
    }

    fn number(&mut self, digits: u32) -> Option<u64> {
        let mut number = 0;
        for _ in 0..digits {
            number = number * 10 + self.digit()?;
        }
        Some(number)
    }

    fn spaces(&mut self) {
        self.0 = self.0.trim_ascii_start();
    }

    fn month(&mut self) -> Option<u64> {
        let (name, rest) = self.0.split_first_chunk::<3>()?;
        let month = match &name.map(|byte| byte.to_ascii_lowercase()) {
            b"jan" => 1,
            b"feb" => 2,
            b"mar" => 3,
            b"apr" => 4,
            b"may" => 5,
            b"jun" => 6,
            b"jul" => 7,
            b"aug" => 8,
            b"sep" => 9,
            b"oct" => 10,
            b"nov" => 11,
            b"dec" => 12,
            _ => return None,
        };
        self.0 = rest;
        Some(month)
    }

    /// Parses `10:05:03` into seconds since midnight. A leap second is the first of the next
    /// minute.
    fn time_of_day(&mut self) -> Option<u64> {
        let hour = self.number(2)?;
        self.byte(b':')?;
        let minute = self.number(2)?;
        self.byte(b':')?;
        let second = self.number(2)?;
        (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3_600 + minute * 60 + second)
    }

    /// Parses `.123` or `,123` into microseconds, dropping finer digits; 0 if there is none.
    fn fraction(&mut self) -> u64 {
        if !matches!(self.0.first(), Some(b'.' | b',')) {
            return 0;
        }
        self.next();
        let (mut micros, mut unit) = (0, MICROS_PER_SEC);
        while let Some(digit) = self.digit() {
            unit /= 10;
            micros += digit * unit;
        }
        micros
    }

    /// Parses `Z`, `UTC`, `GMT`, `+02:00`, `-0400`, `+02` or nothing into seconds east of Greenwich; nothing may follow.
    fn offset(&mut self) -> Option<i64> {
        let east = match self.next() {
            None => return Some(0),
            Some(b'Z' | b'z') => return self.0.is_empty().then_some(0),
            Some(b'U') => return (self.0 == b"TC").then_some(0),
            Some(b'G') => return (self.0 == b"MT").then_some(0),
            Some(b'+') => 1,
            Some(b'-') => -1,
            Some(_) => return None,
        };
        let hours = self.number(2)?;
        if self.0.first() == Some(&b':') {
            self.next();
        }
        let minutes = if self.0.is_empty() {
            0
        } else {
            self.number(2)?
        };
        let seconds = i64::try_from(hours * 3_600 + minutes * 60).ok()?;
        (self.0.is_empty() && hours < 24 && minutes < 60).then_some(east * seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn micros(text: &str) -> Option<u64> {
        parse(text.as_bytes()).map(Timestamp::as_micros)
    }

    #[test]
    fn the_common_log_format_with_its_offset() {
        assert_eq!(
            micros("17/May/2015:10:05:03 +0000"),
            Some(1_431_857_103_000_000)
        );
        assert_eq!(
            micros("17/May/2015:06:05:03 -0400"),
            Some(1_431_857_103_000_000)
        );
        assert_eq!(
            micros("17/May/2015:15:35:03 +0530"),
            Some(1_431_857_103_000_000)
        );
        assert_eq!(micros("01/Jan/1970:00:00:00 +0000"), Some(0));
    }

    #[test]
    fn rfc_3339_and_its_relatives() {
        for text in [
            "2015-05-17T10:05:03Z",
            "2015-05-17t10:05:03z",
            "2015-05-17 10:05:03",
            "2015-05-17T12:05:03+02:00",
            "2015-05-17T12:05:03+0200",
            "2015/05/17 10:05:03",
            "2015-05-17 10:05:03 +0000",
            "2015-05-17 12:05:03+02",
            "2015-05-17 10:05:03 UTC",
            "2015-05-17T10:05:03 GMT",
        ] {
            assert_eq!(micros(text), Some(1_431_857_103_000_000), "{text}");
        }
        assert_eq!(
            micros("2015-05-17T10:05:03.0625Z"),
            Some(1_431_857_103_062_500)
        );
        assert_eq!(
            micros("2015-05-17T10:05:03,123456789Z"),
            Some(1_431_857_103_123_456)
        );
    }

    #[test]
    fn the_epoch_in_any_unit() {
        for text in [
            "1431857103",
            "1431857103000",
            "1431857103000000",
            "1431857103000000000",
        ] {
            assert_eq!(micros(text), Some(1_431_857_103_000_000), "{text}");
        }
        assert_eq!(micros("1431857103.25"), Some(1_431_857_103_250_000));
        assert_eq!(micros("1431857103250.5"), Some(1_431_857_103_250_500));
        assert_eq!(micros("1.431857103e9"), Some(1_431_857_103_000_000));
    }

    #[test]
    fn invalid_times() {
        for text in [
            "",
            "-",
            "yesterday",
            "30/Feb/2015:10:05:03 +0000",
            "29/Feb/1900:00:00:00 +0000",
            "17/Mai/2015:10:05:03 +0000",
            "17/May/2015:24:05:03 +0000",
            "17/May/2015:10:05:03 +0000x",
            "31/Dec/1969:23:59:59 +0000",
            "01/Jan/1970:00:00:00 +0100",
            "2015-13-01T00:00:00Z",
            "2015-05-17",
            "2015-05-17 10:05:03 UT",
            "2015-05-17 10:05:03 UTC2",
            "2015-05-17 10:05:03+2",
            "9999-01-01T00:00:00Z",
            "99999999999999999999",
            "-5",
            "1e400",
            "NaN",
        ] {
            assert_eq!(micros(text), None, "{text}");
        }
        assert!(micros("29/Feb/2000:00:00:00 +0000").is_some());
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = 0;
        for year in 1970..2256 {
            for month in 1..=12 {
                for day in 1..=31 {
                    if let Some(days) = days_since_epoch(year, month, day) {
                        assert_eq!(days, expected, "{year}-{month}-{day}");
                        expected += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn the_reader_remembers_only_what_was_a_time() {
        let mut reader = TimeReader::new();
        assert_eq!(reader.read(b""), None);
        assert_eq!(
            reader.read(b"17/May/2015:10:05:03 +0000"),
            reader.read(b"1431857103")
        );
        assert_eq!(reader.read(b"nonsense"), None);
        assert_eq!(
            reader.read(b"1431857104"),
            Some(Timestamp::from_secs(1_431_857_104))
        );
        assert_eq!(reader.read(&[b'1'; 100]), None);
    }
}
