//! Normalization of hosts.

use std::borrow::Cow;

/// Normalizes `value`, a `Host` header or an authority: without its port and the final dot of a
/// full name, in lower case. None if it is not a host.
#[must_use]
pub fn host(value: &[u8]) -> Option<Cow<'_, str>> {
    let text = std::str::from_utf8(value).ok()?;
    let host = match text.rfind(']') {
        // [2001:db8::1]:8443
        Some(end) => text.get(..=end).unwrap_or_default(),
        None => text.split(':').next().unwrap_or_default(),
    };
    let host = host.strip_suffix('.').unwrap_or(host);
    let allowed = |byte: u8| {
        byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+;=[]:".contains(&byte) || !byte.is_ascii()
    };
    // Resolvers strip one dot; a name that still ends in a dot is invalid.
    if host.is_empty() || host.ends_with('.') || !host.bytes().all(allowed) {
        return None;
    }
    Some(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}
