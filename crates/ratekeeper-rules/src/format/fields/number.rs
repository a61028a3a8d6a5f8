//! Numbers as people write them, and YAML does not read them: `1,000`, `10k`, `100/minute`.

use ratekeeper_core::MAX_COUNT;

use crate::yaml::{Kind, Pair, Resolved, Scalar};

/// Characters that people put between groups of three digits.
const SEPARATORS: [char; 8] = [
    ',', '.', ' ', '\'', '\u{2019}', '\u{a0}', '\u{2009}', '\u{202f}',
];

/// The whole numbers that a text may stand for, the likeliest first; none if it is no such text.
pub(crate) fn meant(text: &str) -> Vec<u64> {
    let text = text.trim();
    let all = [grouped(text), thousands(text), without_fraction(text)];
    let mut meant: Vec<u64> = Vec::new();
    for number in all.into_iter().flatten() {
        if number <= MAX_COUNT && !meant.contains(&number) {
            meant.push(number);
        }
    }
    meant
}

/// The decimal number that a text with zeros before its other digits seems to be, such as `010`.
pub(crate) fn zeros_before(text: &str) -> Option<u64> {
    let rest = text.strip_prefix('0')?;
    let is_digits = !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
    is_digits.then(|| rest.parse().ok()).flatten()
}

/// The same of one that is not octal either, such as `08`.
pub(crate) fn not_octal(scalar: &Scalar) -> Option<u64> {
    let is_other = matches!(scalar.resolved, Resolved::Float(_));
    zeros_before(&scalar.text).filter(|_| is_other)
}

/// `1,000,000`: groups of three digits, all with the same separator.
fn grouped(text: &str) -> Option<u64> {
    let separator = text.chars().find(|char| SEPARATORS.contains(char))?;
    let mut groups = text.split(separator);
    let first = groups.next()?;
    let is_digits = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let mut digits = first.to_owned();
    for group in groups {
        if group.len() != 3 || !is_digits(group) {
            return None;
        }
        digits += group;
    }
    let is_good = (1..=3).contains(&first.len()) && is_digits(first);
    is_good.then(|| digits.parse().ok()).flatten()
}

/// `10k`, `1.5M`.
fn thousands(text: &str) -> Option<u64> {
    let (number, times) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1_000),
        None => (text.strip_suffix(['m', 'M'])?, 1_000_000),
    };
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let decimals = u32::try_from(fraction.len())
        .ok()
        .filter(|count| *count <= 3)?;
    let part = match fraction {
        "" => 0,
        _ => fraction.parse::<u64>().ok()? * times / 10_u64.pow(decimals),
    };
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(times)?
        .checked_add(part)
}

/// `1e3`, `5.0`.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a whole number of 0 to 2^53"
)]
fn without_fraction(text: &str) -> Option<u64> {
    let starts_well = text.starts_with(|char: char| char.is_ascii_digit());
    let number = text.parse::<f64>().ok().filter(|_| starts_well)?;
    let is_whole = number.fract() == 0.0 && (0.0..9e15).contains(&number);
    is_whole.then_some(number as u64)
}

/// The window and the limit of a rate as people say it: `10/s`, `100 per minute`.
pub(crate) fn rate(text: &str) -> Option<(&'static str, u64)> {
    let (limit, unit) = text.split_once('/').or_else(|| text.split_once(" per "))?;
    let limit = limit.trim().parse().ok()?;
    let window = match unit.trim() {
        "s" | "sec" | "second" => "1s",
        "m" | "min" | "minute" => "1m",
        "h" | "hour" => "1h",
        "d" | "day" => "1d",
        _ => return None,
    };
    Some((window, limit))
}

/// A part of a number that its comma has cut, because commas end values within braces: `limit: 1,000`
/// is a limit of 1 and the key `000`.
pub(super) enum Cut<'t> {
    /// The first group after the comma: the pair that the number is the value of, and all its digits.
    First(&'t Pair, String),
    /// A later group.
    Later,
}

impl<'t> Cut<'t> {
    /// The part that `pairs[at]` is, if it is one.
    pub(super) fn of(pairs: &'t [Pair], at: usize) -> Option<Self> {
        group(pairs.get(at)?)?;
        let before = pairs.get(..at)?;
        let first = before.iter().rposition(|pair| group(pair).is_none())?;
        let Kind::Scalar(Scalar {
            text,
            resolved: Resolved::Int(_),
            ..
        }) = &before[first].value.kind
        else {
            return None;
        };
        if text.len() > 3 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        if first + 1 < at {
            return Some(Self::Later);
        }
        let groups = pairs.get(at..)?.iter().map_while(group);
        let digits = std::iter::once(&**text).chain(groups).collect();
        Some(Self::First(&before[first], digits))
    }
}

/// The three digits that a pair has for its key, if it has no value.
fn group(pair: &Pair) -> Option<&str> {
    let Kind::Scalar(Scalar {
        text, plain: true, ..
    }) = &pair.key.kind
    else {
        return None;
    };
    let is_group = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_group && pair.value.is_null()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::meant;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, wanted) in [
            ("1,000", &[1_000][..]),
            ("1 000 000", &[1_000_000]),
            ("12'500", &[12_500]),
            ("1.000", &[1_000, 1]),
            ("1.500", &[1_500]),
            ("10k", &[10_000]),
            ("1.5M", &[1_500_000]),
            ("1.25 k", &[1_250]),
            ("1e3", &[1_000]),
            ("5.0", &[5]),
            ("10,00", &[]),
            ("1,000.000", &[]),
            ("1000,000", &[]),
            (",000", &[]),
            ("1.5", &[]),
            ("k", &[]),
            ("1.k", &[1_000]),
            ("-1,000", &[]),
            ("sk_live_4k", &[]),
            ("inf", &[]),
            ("", &[]),
        ] {
            assert_eq!(meant(text), wanted, "{text}");
        }
    }
}
