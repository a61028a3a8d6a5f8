//! The `Authorization` header.

use std::borrow::Cow;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::header;
use crate::Malformed;

/// The token of `Authorization: Bearer`. None for other schemes, and without the header.
///
/// # Errors
/// The header is repeated, or it looks like a bearer token in another form than RFC 6750 has:
/// `Bearer`, a space and the token. Upstreams split it at a tab, a comma or a second space, and
/// would use a token that was not checked here.
pub(crate) fn bearer_token(headers: &HeaderMap) -> Result<Option<&str>, Malformed> {
    let Some(value) = header(headers, &AUTHORIZATION)? else {
        return Ok(None);
    };
    let (scheme, rest) = split_scheme(value);
    if !scheme.eq_ignore_ascii_case("bearer") {
        return match mentions_bearer(value) {
            false => Ok(None),
            true => Err(unclear(
                "it has a bearer token that is not all there is to it",
            )),
        };
    }
    if rest.trim().is_empty() {
        return Ok(None);
    }
    let token = rest
        .strip_prefix(' ')
        .map(|token| token.trim_start_matches(' '));
    let token = token.filter(|token| token.bytes().all(is_of_token));
    let token = token.ok_or_else(|| {
        unclear("it looks like a bearer token and is none; write Bearer, a space and the token")
    })?;
    match has_other_spellings(token) {
        false => Ok(Some(token)),
        true => Err(unclear(
            "its token's signature is not base64url, or another spelling of one",
        )),
    }
}

/// The value of `Authorization` with its scheme normalized.
pub(crate) fn authorization(headers: &HeaderMap) -> Result<Option<Cow<'_, str>>, Malformed> {
    let Some(value) = header(headers, &AUTHORIZATION)? else {
        return Ok(None);
    };
    if let Some(token) = bearer_token(headers)? {
        return Ok(Some(match value.strip_prefix("Bearer ") {
            Some(rest) if rest == token => Cow::Borrowed(value),
            _ => Cow::Owned(format!("Bearer {token}")),
        }));
    }
    let (scheme, rest) = split_scheme(value);
    if !scheme.eq_ignore_ascii_case("basic") || rest.is_empty() {
        return Ok(Some(Cow::Borrowed(value)));
    }
    let pair = rest.trim_start_matches(' ');
    if pair.len() == rest.len() || !pair.bytes().all(is_of_token) {
        return Err(unclear(
            "it looks like Basic and is not; write Basic, a space and the rest",
        ));
    }
    Ok(Some(Cow::Owned(format!("Basic {pair}"))))
}

/// Splits off the scheme, which ends before the first byte that no token has (RFC 9110, section
/// 11.1).
fn split_scheme(value: &str) -> (&str, &str) {
    let end = value
        .bytes()
        .position(|byte| !ratekeeper_rules::is_token_byte(byte));
    value.split_at(end.unwrap_or(value.len()))
}

/// Returns true if the word stands anywhere in it, where a search would find it.
fn mentions_bearer(value: &str) -> bool {
    const WORD: &[u8] = b"bearer";
    let bytes = value.as_bytes();
    let is_letter = |byte: Option<&u8>| {
        byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte))
    };
    bytes.windows(WORD.len()).enumerate().any(|(at, window)| {
        window.eq_ignore_ascii_case(WORD)
            && !is_letter(at.checked_sub(1).and_then(|before| bytes.get(before)))
            && !is_letter(bytes.get(at + WORD.len()))
    })
}

/// Tokens are token68 (RFC 9110, section 11.2); some services use others, with `|` or `:`.
const fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b',' | b';' | b'"' | b'\\')
}

/// Returns true for a JWT whose signature is not in its canonical spelling: base64 decoders
/// tolerate left-over bits, padding, and some also foreign characters. The parts before it are
/// signed as they are written.
fn has_other_spellings(token: &str) -> bool {
    if !token.starts_with("eyJ") {
        return false;
    }
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(_), Some(signature), None) => {
            BASE64_URL_SAFE_NO_PAD.decode(signature).is_err()
        }
        _ => false,
    }
}

fn unclear(message: &'static str) -> Malformed {
    Malformed::header(&AUTHORIZATION, message)
}
