//! Percentages as text: `10%`, `12.5%`. Rules, settings and flags have the same.

/// A percentage of 100.
const ALL: u16 = 10_000;

/// A text that is no percentage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAPercentage {
    /// It is one of so many hundredths of a percent, but for its sign.
    #[error("the percent sign is missing")]
    NoSign(u16),
    /// It is no number from 0 to 100 with up to two decimals.
    #[error("it is 0% to 100%, with up to two decimals")]
    NoNumber,
}

/// Reads a percentage; returns hundredths of a percent, 0 to 10,000.
///
/// # Errors
/// It has no percent sign, is above 100 %, or is no number with up to two decimals.
pub fn parse_percentage(text: &str) -> Result<u16, NotAPercentage> {
    let number = text.strip_suffix('%');
    let hundredths = hundredths(number.unwrap_or(text)).ok_or(NotAPercentage::NoNumber)?;
    match number {
        Some(_) => Ok(hundredths),
        None => Err(NotAPercentage::NoSign(hundredths)),
    }
}

fn hundredths(text: &str) -> Option<u16> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(decimals) || decimals.len() > 2 {
        return None;
    }
    let tenfold = if decimals.len() == 1 { 10 } else { 1 };
    let hundredths = decimals.parse::<u16>().ok()? * tenfold;
    let total = whole.parse::<u16>().ok()?.checked_mul(100)?;
    let total = total.checked_add(hundredths)?;
    (total <= ALL).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_have_a_sign_and_up_to_two_decimals() {
        for (text, hundredths) in [
            ("10%", 1_000),
            ("0%", 0),
            ("100%", 10_000),
            ("100.00%", 10_000),
            ("12.5%", 1_250),
            ("0.01%", 1),
        ] {
            assert_eq!(parse_percentage(text), Ok(hundredths), "{text}");
            let bare = text.trim_end_matches('%');
            let missing = NotAPercentage::NoSign(hundredths);
            assert_eq!(parse_percentage(bare), Err(missing), "{bare}");
        }
        for text in [
            "", "%", "100.01%", "101%", "-1%", "+1%", "1.234%", ".5%", "5.%", "1e1%", "700000%",
            "10 %", "10%%", "\u{664}%",
        ] {
            assert_eq!(
                parse_percentage(text),
                Err(NotAPercentage::NoNumber),
                "{text}"
            );
        }
    }
}
