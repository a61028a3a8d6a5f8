//! Parameters of a query.

use std::borrow::Cow;

use crate::Malformed;
use crate::malformed::excerpt;
use crate::spelling::{Plus, decode};
use crate::target::split;

/// The value of the parameter `name`, decoded as forms are.
///
/// # Errors
/// It has two different values, or services read it in different ways: its name is written so that some take it for `name`
/// (`[key]`, `key[]`, `KEY`, `ke.y`), it stands beside a semicolon, which some take for the end of a parameter, or its value has
/// white space at an end, control characters, bytes that are no UTF-8, or an escape that decodes twice.
pub(crate) fn parameter(query: &[u8], name: &str) -> Result<Option<String>, Malformed> {
    let unclear = |message: String| Malformed {
        place: format!("query parameter {name}"),
        message,
    };
    let mut found: Option<String> = None;
    for pair in query.split(|byte| *byte == b'&') {
        let mut pieces = pair.split(|byte| *byte == b';').enumerate();
        let about = pieces.find_map(|(number, piece)| {
            let (key, value) = split(piece, b'=');
            let reading = reading(key, name)?;
            Some((number, reading, key, value))
        });
        let Some((number, reading, key, value)) = about else {
            continue;
        };
        if reading == Reading::Taken {
            let written = excerpt(key);
            return Err(unclear(format!(
                "some services take {written} for it; write {name}"
            )));
        }
        if number > 0 || pair.contains(&b';') {
            let message =
                "some services end a parameter at a semicolon; write %3B, or & between parameters";
            return Err(unclear(message.to_owned()));
        }
        let value = decode(value, |_| false, Plus::Space);
        if value.trim() != value || has_escape(&value) {
            let message = "its value has white space at an end, an encoded control character or percent sign, or bytes \
                           that are no UTF-8, which services read in different ways";
            return Err(unclear(message.to_owned()));
        }
        match &found {
            Some(before) if *before != value => {
                return Err(Malformed::twice(format!("query parameter {name}")));
            }
            _ => found = Some(value),
        }
    }
    Ok(found)
}

/// The way in which services read the name of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reading {
    /// All take it for the one that is looked for.
    Same,
    /// Some do.
    Taken,
}

/// None if no service takes `key` for `name`.
fn reading(key: &[u8], name: &str) -> Option<Reading> {
    let is_plain = !key.iter().any(|byte| matches!(byte, b'%' | b'+'));
    let decoded = match std::str::from_utf8(key) {
        Ok(key) if is_plain => Cow::Borrowed(key),
        _ => Cow::Owned(decode(key, |_| false, Plus::Space)),
    };
    if decoded == name {
        return Some(Reading::Same);
    }
    let is_taken = |key: &str| is_taken_for(key, name);
    let twice = |key: &str| {
        let again = decode(key.as_bytes(), |_| false, Plus::Space);
        is_taken(&again)
    };
    let is_taken = is_taken(&decoded) || decoded.contains('%') && twice(&decoded);
    is_taken.then_some(Reading::Taken)
}

/// Returns true if some service takes the decoded `key` for `name`. Express and Rack read `[key]` as `key`, and brackets behind a
/// name as those of a list. PHP ends a name at NUL, leaves spaces before it out, and maps a dot, a space and a bracket to `_`.
/// ASP.NET ignores case.
fn is_taken_for(key: &str, name: &str) -> bool {
    let key = key.split("%00").next().unwrap_or_default().trim();
    let without = key.trim_start_matches(['[', ']']);
    let base = without.split(['[', ']']).next().unwrap_or_default();
    is_same_to_php(base, name) || is_same_to_php(key, name)
}

fn is_same_to_php(key: &str, name: &str) -> bool {
    let folded = |byte: u8| match byte {
        b'.' | b' ' | b'[' => b'_',
        byte => byte.to_ascii_lowercase(),
    };
    key.len() == name.len() && key.bytes().map(folded).eq(name.bytes().map(folded))
}

/// Returns true if an escape is left in a decoded text: of a control character, of a byte that is no UTF-8, or one that was encoded
/// itself.
fn has_escape(decoded: &str) -> bool {
    let mut pieces = decoded.as_bytes().split(|byte| *byte == b'%').skip(1);
    pieces.any(|piece| {
        let digits = piece.get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}
