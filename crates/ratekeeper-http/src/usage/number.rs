//! Numbers of JSON, exactly.

use ratekeeper_core::MAX_COUNT;

/// Billionths in one.
const BILLION: u128 = 1_000_000_000;

/// The most digits of a number that fit into 128 bits, whatever they are.
const DIGITS_MAX: usize = 38;

/// The billionths of the number `text`, rounded up; None if it is no number from 0 to 2^53 - 1, or is written with more
/// than 38 digits.
pub(super) fn billionths(text: &[u8]) -> Option<u128> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let end = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (digits, exponent) = match end {
        Some(end) => (&text[..end], exponent(&text[end + 1..])?),
        None => (text, 0),
    };
    let mut mantissa = 0_u128;
    let mut decimals = None;
    let mut count = 0;
    for &byte in digits {
        match byte {
            b'0'..=b'9' => {
                count += 1;
                if count > DIGITS_MAX {
                    return None;
                }
                mantissa = mantissa * 10 + u128::from(byte - b'0');
                decimals = decimals.map(|decimals| decimals + 1);
            }
            b'.' if decimals.is_none() && count > 0 => decimals = Some(0_i32),
            _ => return None,
        }
    }
    if count == 0 || decimals == Some(0) {
        return None;
    }
    if mantissa == 0 {
        return Some(0);
    }
    if is_negative {
        return None;
    }
    let shift = exponent - decimals.unwrap_or(0) + 9;
    let value = match u32::try_from(shift) {
        Ok(shift) => mantissa.checked_mul(10_u128.checked_pow(shift)?)?,
        Err(_) => match 10_u128.checked_pow(shift.unsigned_abs()) {
            Some(parts) => mantissa.div_ceil(parts),
            // Less than a billionth, and more than nothing.
            None => 1,
        },
    };
    (value <= u128::from(MAX_COUNT) * BILLION).then_some(value)
}

/// The exponent, as far as it makes a difference.
fn exponent(text: &[u8]) -> Option<i32> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut value = 0_i32;
    for byte in digits {
        if !byte.is_ascii_digit() {
            return None;
        }
        value = (value * 10 + i32::from(byte - b'0')).min(10_000);
    }
    Some(sign * value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_and_bounded() {
        let read = |text: &str| billionths(text.as_bytes());
        let ones = |count: u128| Some(count * BILLION);
        assert_eq!(read("17"), ones(17));
        assert_eq!(read("0"), ones(0));
        assert_eq!(read("-0"), ones(0));
        assert_eq!(read("1.5"), Some(1_500_000_000));
        assert_eq!(read("1.50e1"), ones(15));
        assert_eq!(read("12E+2"), ones(1_200));
        assert_eq!(read("5e-1"), Some(500_000_000));
        assert_eq!(read("0.00123"), Some(1_230_000));
        assert_eq!(read("1e-300"), Some(1), "a little more than nothing");
        assert_eq!(read("1e-10"), Some(1));
        assert_eq!(read("9007199254740991"), ones(u128::from(MAX_COUNT)));
        assert_eq!(read("0e99999999999999"), ones(0));
        for bad in [
            "",
            "-",
            "-1",
            "+1",
            "9007199254740992",
            "1e300",
            "1e99999999999",
            "1.",
            ".5",
            "1e",
            "1e+",
            "0x10",
            "1,000",
            "1.2.3",
            "1e1e1",
            "NaN",
            " 1",
            "123456789012345678901234567890123456789",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
