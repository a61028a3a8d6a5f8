//! Cookies.

use std::borrow::Cow;

use http::HeaderMap;
use http::header::COOKIE;
use serde::Deserialize;

use super::repeated;
use crate::Malformed;
use crate::spelling::{Plus, decode};
use crate::target::split;
use ratekeeper_rules::is_token_byte;

/// The treatment of a cookie whose decoded value some services read once more: Express takes `j:` and what follows for JSON, in any of
/// its spellings, and `s:` for a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AmbiguousCookies {
    /// Refuses it.
    #[default]
    Refuse,
    /// Takes the decoded value as it stands.
    Accept,
}

/// The value of the cookie `name` as services read it: without surrounding quotes, and decoded.
///
/// # Errors
/// It is repeated, or services read it in different ways: it has a quotation mark, a backslash, a
/// space or a comma (which RFC 6265, section 4.1.1, does not allow in a value), stands where
/// only some services look for cookies, or is one of the `ambiguous` cookies that are refused.
pub(crate) fn cookie<'a>(
    headers: &'a HeaderMap,
    name: &str,
    ambiguous: AmbiguousCookies,
) -> Result<Option<Cow<'a, str>>, Malformed> {
    let place = || format!("cookie {name}");
    let mut found = None;
    let mut count = 0_usize;
    let mut mentions = 0_usize;
    for line in headers.get_all(COOKIE) {
        mentions += count_mentions(line.as_bytes(), name.as_bytes());
        for pair in line.as_bytes().split(|byte| *byte == b';') {
            let (key, value) = split(pair.trim_ascii(), b'=');
            let key = key.trim_ascii();
            if key == name.as_bytes() && pair.contains(&b'=') {
                found = Some(value.trim_ascii());
                count += 1;
            } else if is_taken_for(key, name) {
                return Err(unclear(place(), "its name is written in another way"));
            }
        }
    }
    if count > 1 {
        return Err(repeated(place()));
    }
    if mentions > count {
        return Err(unclear(place(), "it stands within another cookie"));
    }
    let Some(value) = found else { return Ok(None) };
    let value = match value {
        [b'"', value @ .., b'"'] => value,
        value => value,
    };
    // Flask and Django decode `\141` within quotes; some services end a value at a space or a
    // comma.
    if !value.iter().all(|byte| is_cookie_octet(*byte)) {
        return Err(unclear(
            place(),
            "its value has a character that services read in different ways",
        ));
    }
    let text = std::str::from_utf8(value).map_err(|_| unclear(place(), "it is not UTF-8"))?;
    // Express decodes values.
    let value = match text.contains('%') {
        false => Cow::Borrowed(text),
        true => Cow::Owned(decode(value, |_| false, Plus::Itself)),
    };
    if ambiguous == AmbiguousCookies::Refuse && is_read_again(&value) {
        return Err(unclear(
            place(),
            "its decoded value begins with j: or s:, or has a quotation mark, a backslash or a space, so that services may \
             read it once more; `ambiguous_cookies: accept` takes it as it stands",
        ));
    }
    Ok(Some(value))
}

/// Returns true if some services take the decoded value for JSON, or for one with a signature.
fn is_read_again(decoded: &str) -> bool {
    decoded.starts_with("j:") || decoded.starts_with("s:") || decoded.contains(['"', '\\', ' '])
}

/// RFC 6265, section 4.1.1.
const fn is_cookie_octet(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b'"' | b',' | b';' | b'\\')
}

/// Returns true if some services take `key` for `name`: PHP decodes names, and maps a dot, a space
/// and a bracket to `_`.
fn is_taken_for(key: &[u8], name: &str) -> bool {
    if key == name.as_bytes() || (!key.contains(&b'%') && key.len() != name.len()) {
        return false;
    }
    let folded = |byte: u8| {
        if matches!(byte, b'.' | b' ' | b'[') {
            b'_'
        } else {
            byte
        }
    };
    let decoded = decode(key, |_| false, Plus::Space);
    decoded.bytes().map(folded).eq(name.bytes().map(folded))
}

/// Counts the places in a line where `name=` could be taken for the start of a cookie.
fn count_mentions(line: &[u8], name: &[u8]) -> usize {
    let begins = |at: usize| match at.checked_sub(1).and_then(|before| line.get(before)) {
        None => true,
        Some(before) => !is_token_byte(*before) && !b"/=:?@<>(){}".contains(before),
    };
    let ends = |at: usize| {
        let rest = line.get(at + name.len()..).unwrap_or_default();
        rest.trim_ascii_start().first() == Some(&b'=')
    };
    memchr::memmem::find_iter(line, name)
        .filter(|at| begins(*at) && ends(*at))
        .count()
}

fn unclear(place: String, message: &'static str) -> Malformed {
    let message = message.to_owned();
    Malformed { place, message }
}
