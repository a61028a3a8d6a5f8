//! The media type of a body.

use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

/// Returns true if the content type is `application/json`, with any parameters.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    is_of_type(headers, &["application/json"])
}

/// Returns true if the content type is one of many tenants at once: JSON lines or CSV. No form of a web page has it.
pub(crate) fn is_bulk(headers: &HeaderMap) -> bool {
    is_of_type(
        headers,
        &["application/x-ndjson", "application/jsonl", "text/csv"],
    )
}

/// Returns true if the content type is gRPC's: `application/grpc`, also with a format (`+proto`) or parameters. A page can
/// have a browser post other types without asking first.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = kind.and_then(|kind| kind.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b' ')))
}

fn is_of_type(headers: &HeaderMap, types: &[&str]) -> bool {
    let Some(content_type) = headers.get(CONTENT_TYPE) else {
        return false;
    };
    let essence = content_type
        .as_bytes()
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default();
    let essence = essence.trim_ascii();
    types
        .iter()
        .any(|known| essence.eq_ignore_ascii_case(known.as_bytes()))
}
