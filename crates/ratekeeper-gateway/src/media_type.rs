//! Media types that say which protocol a request speaks.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue};

/// Returns true if a request with these headers may be a streaming call, which may be silent in between.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kinds: [&[u8]; 2] = [b"application/grpc", b"application/connect+"];
    kind.is_some_and(|kind| kinds.iter().any(|it| kind.starts_with(it)))
}

/// Returns true if an answer with these headers ends when its client goes away, and seldom before.
pub(crate) fn is_endless(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kinds: [&[u8]; 2] = [b"text/event-stream", b"multipart/x-mixed-replace"];
    is_stream(headers) || kind.is_some_and(|kind| kinds.iter().any(|it| kind.starts_with(it)))
}

/// Returns true if the sender of these headers speaks gRPC.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// Returns true if the sender of these headers says that the body is JSON.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let kind = kind.and_then(|kind| kind.split(|byte| *byte == b';').next());
    let kind = kind.unwrap_or_default().trim_ascii().to_ascii_lowercase();
    kind.starts_with(b"application/") && kind.ends_with(b"json")
}

/// Returns true if the sender of these headers has compressed the body.
pub(crate) fn is_encoded(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(CONTENT_ENCODING).iter();
    let mut encodings = encodings.map(|value| value.as_bytes().trim_ascii());
    encodings.any(|encoding| !encoding.eq_ignore_ascii_case(b"identity"))
}
