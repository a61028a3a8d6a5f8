//! Normalization of hosts.

use std::borrow::Cow;

/// True for each byte that a host may have.
const ALLOWED: [bool; 256] = {
    let mut allowed = [false; 256];
    let mut byte = u8::MAX;
    while byte > 0 {
        allowed[byte as usize] = !byte.is_ascii() || byte.is_ascii_alphanumeric();
        byte -= 1;
    }
    let signs = b"-._~%!$&'()*+;=[]:";
    let mut number = 0;
    while number < signs.len() {
        allowed[signs[number] as usize] = true;
        number += 1;
    }
    allowed
};

/// Normalizes `value`, a `Host` header or an authority: without its port and the final dot of a
/// full name, in lower case. None if it is not a host.
#[must_use]
pub fn host(value: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(value).ok()?;
    // By bytes, here and below: a search for a character costs more than a host is long.
    let end = match value.iter().rposition(|byte| *byte == b']') {
        // [2001:db8::1]:8443
        Some(last) => last + 1,
        None => {
            let colon = value.iter().position(|byte| *byte == b':');
            colon.unwrap_or(value.len())
        }
    };
    let host = text.get(..end)?;
    let host = host.strip_suffix('.').unwrap_or(host);
    let is_allowed = |byte: u8| ALLOWED[usize::from(byte)];
    // Resolvers strip one dot; a name that still ends in a dot is invalid.
    if host.is_empty() || host.ends_with('.') || !host.bytes().all(is_allowed) {
        return None;
    }
    Some(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}
