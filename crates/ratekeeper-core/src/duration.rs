//! Durations in the notation of rules and settings.

use crate::{MAX_COUNT, Micros};

/// Units of a duration in microseconds, the longest first.
const UNITS: [(&str, u64); 7] = [
    ("w", 604_800_000_000),
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
    ("us", 1),
];

/// The fault of a duration. Its text is the end of a sentence.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// A part of it is not a whole number with a unit.
    #[error("'{0}' is not a whole number with a unit")]
    NotANumber(Box<str>),
    /// The last number has no unit.
    #[error("'{0}' has no unit")]
    NoUnit(Box<str>),
    /// There is no such unit.
    #[error("there is no unit '{0}'")]
    UnknownUnit(Box<str>),
    /// The unit is not shorter than the one before.
    #[error("'{0}' cannot follow a unit that is not longer")]
    NotShorter(Box<str>),
    /// It is longer than counters can count.
    #[error("'{0}' is more than 285 years")]
    TooLong(Box<str>),
}

/// Parses `10s`, `250ms`, `1h30m`: whole numbers, each with its unit (us, ms, s, m, h, d, w),
/// larger units first. A day is 24 hours.
///
/// # Errors
/// [`DurationError`]
pub fn parse_duration(text: &str) -> Result<Micros, DurationError> {
    if text.is_empty() {
        return Err(DurationError::Empty);
    }
    let mut rest = text;
    let mut total: u64 = 0;
    let mut longest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        if number.is_empty() || (unit.is_empty() && !after.is_empty()) {
            return Err(DurationError::NotANumber(text.into()));
        }
        if unit.is_empty() {
            return Err(DurationError::NoUnit(text.into()));
        }
        let Some(&(_, micros)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            return Err(DurationError::UnknownUnit(unit.into()));
        };
        if micros >= longest {
            return Err(DurationError::NotShorter(unit.into()));
        }
        longest = micros;
        let span = number
            .parse()
            .ok()
            .and_then(|number: u64| number.checked_mul(micros));
        total = span
            .and_then(|span| total.checked_add(span))
            .filter(|&total| total <= MAX_COUNT)
            .ok_or_else(|| DurationError::TooLong(text.into()))?;
        rest = after;
    }
    Ok(Micros::new(total))
}

/// The shortest spelling of `span`, always with one unit: `1m`, `90s`, `1500ms`.
#[must_use]
pub fn format_duration(span: Micros) -> String {
    let micros = span.get();
    if micros == 0 {
        return "0s".to_owned();
    }
    // The units divide each other down to the microsecond, so one always suffices: 90 s is `90s`, not `1m30s`.
    let whole = UNITS.iter().find(|(_, unit)| micros.is_multiple_of(*unit));
    let (name, unit) = whole.copied().unwrap_or(("us", 1));
    format!("{}{name}", micros / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_numbers_with_units() {
        let cases = [
            ("10s", 10_000_000),
            ("250ms", 250_000),
            ("1us", 1),
            ("1m", 60_000_000),
            ("1h30m", 5_400_000_000),
            ("1d", 86_400_000_000),
            ("2w", 1_209_600_000_000),
            ("0s", 0),
        ];
        for (text, micros) in cases {
            assert_eq!(parse_duration(text), Ok(Micros::new(micros)), "{text}");
        }
    }

    #[test]
    fn a_refusal_names_the_fault_of_a_duration() {
        for (text, fault) in [
            ("", "it is empty"),
            ("10", "'10' has no unit"),
            ("1s5", "'1s5' has no unit"),
            ("s", "'s' is not a whole number with a unit"),
            ("1.5s", "'1.5s' is not a whole number with a unit"),
            ("-1s", "'-1s' is not a whole number with a unit"),
            ("10 s", "'10 s' is not a whole number with a unit"),
            ("1y", "there is no unit 'y'"),
            ("1m1h", "'h' cannot follow a unit that is not longer"),
            ("1s1s", "'s' cannot follow a unit that is not longer"),
            ("9999999w", "'9999999w' is more than 285 years"),
            (
                "99999999999999999999s",
                "'99999999999999999999s' is more than 285 years",
            ),
        ] {
            let error = parse_duration(text).expect_err(text);
            assert_eq!(error.to_string(), fault);
        }
    }

    #[test]
    fn the_shortest_spelling_reads_the_same() {
        for (micros, text) in [
            (60_000_000, "1m"),
            (90_000_000, "90s"),
            (1_500_000, "1500ms"),
            (7, "7us"),
            (86_400_000_000, "1d"),
            (30 * 86_400_000_000, "30d"),
            (604_800_000_000, "1w"),
            (0, "0s"),
        ] {
            let span = Micros::new(micros);
            assert_eq!(format_duration(span), text);
            assert_eq!(parse_duration(text), Ok(span));
        }
    }
}
