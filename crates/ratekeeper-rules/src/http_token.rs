//! Tokens of HTTP: the names of methods and of headers.

/// Returns true for a token (RFC 9110, section 5.6.2).
#[must_use]
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_token_byte)
}

/// Returns true for a character of a token.
#[must_use]
pub fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
