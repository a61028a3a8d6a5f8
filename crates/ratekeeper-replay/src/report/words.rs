//! Numbers, times and texts of a log, as reports write them.

use ratekeeper_core::Timestamp;

/// `1 line`, `2,000 lines`
pub(crate) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// `1,234,567`
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Makes text from the log safe for a terminal: escapes control characters, and cuts very long
/// values.
pub(crate) fn printable(text: &str) -> String {
    const MOST: usize = 120;
    let mut shown = String::with_capacity(text.len().min(MOST));
    for (index, character) in text.chars().enumerate() {
        if index == MOST {
            shown.push('…');
            break;
        }
        // Bidirectional marks can rewrite a line just as control characters can.
        if character.is_control()
            || matches!(character, '\u{200e}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A time in UTC, to the second.
pub(crate) fn time_text(time: Timestamp) -> String {
    let seconds = i64::try_from(time.as_micros() / 1_000_000).unwrap_or(0);
    jiff::Timestamp::from_second(seconds)
        .unwrap_or_default()
        .to_string()
}
