//! Hosts.

use std::borrow::Cow;

/// The host that `value`, a `Host` header or an authority, names: without its port and the dot that ends a full name, in
/// lower case. None if it names none.
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
    // Who resolves names strips one dot; what is left of two names nobody.
    if host.is_empty() || host.ends_with('.') || !host.bytes().all(allowed) {
        return None;
    }
    Some(if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}
