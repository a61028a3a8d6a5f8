//! HTTP requests as people type them.

use http::{HeaderName, HeaderValue, Method, Uri};

/// The fault of a typed request.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum RequestLineError {
    #[error("`{0}` is not a method and path")]
    NotTwoWords(Box<str>),
    #[error("`{0}` is not an HTTP method")]
    Method(Box<str>),
    #[error("`{0}` is not a path")]
    Path(Box<str>),
}

/// `GET /product/7`.
///
/// # Errors
/// The text is not a request.
pub(crate) fn request_line(text: &str) -> Result<(Method, Uri), RequestLineError> {
    let mut words = text.split_ascii_whitespace();
    let (Some(method), Some(target), None) = (words.next(), words.next(), words.next()) else {
        return Err(RequestLineError::NotTwoWords(text.into()));
    };
    let parsed = method.parse();
    let parsed = parsed.map_err(|_| RequestLineError::Method(method.into()))?;
    let uri = target.parse::<Uri>().ok();
    // A name without a slash is read as a host.
    let uri = uri.filter(|uri| !uri.path().is_empty());
    let uri = uri.ok_or_else(|| RequestLineError::Path(target.into()))?;
    Ok((parsed, uri))
}

/// A header; [`None`] if it cannot be one.
pub(crate) fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    let name = name.trim().parse().ok()?;
    Some((name, HeaderValue::from_str(value.trim()).ok()?))
}
