//! The request line: method and path, or garbage from a scanner.

use ratekeeper_rules::is_token;

/// The target of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestTarget<'a> {
    /// Without its query and fragment.
    pub(super) path: &'a [u8],
    /// Without the question mark; empty without one.
    pub(super) query: &'a [u8],
}

/// Splits `GET /path?query HTTP/1.1` into method and target, each if present.
///
/// The absolute form yields the path after the host. Text that is not a request line yields
/// neither.
pub(super) fn split(request: &[u8]) -> (Option<&[u8]>, Option<RequestTarget<'_>>) {
    let Some(space) = memchr::memchr(b' ', request) else {
        return (None, None);
    };
    let (method, rest) = (&request[..space], &request[space + 1..]);
    if method.len() > METHOD_BYTES_MAX || !is_token(method) {
        return (None, None);
    }
    (Some(method), parse_target(without_protocol(rest)))
}

/// Longer than any real method.
const METHOD_BYTES_MAX: usize = 32;

/// Parses the target, if it names a path.
pub(super) fn parse_target(target: &[u8]) -> Option<RequestTarget<'_>> {
    let target = target.trim_ascii();
    let target = match target.first()? {
        b'/' | b'*' => target,
        _ => behind_host(target)?,
    };
    let end = memchr::memchr(b'#', target).unwrap_or(target.len());
    let target = &target[..end];
    Some(match memchr::memchr(b'?', target) {
        None => RequestTarget {
            path: target,
            query: b"",
        },
        Some(mark) => RequestTarget {
            path: &target[..mark],
            query: &target[mark + 1..],
        },
    })
}

/// The path in `http://host/path`, the form sent to proxies; `/` if it ends with the host.
fn behind_host(target: &[u8]) -> Option<&[u8]> {
    let scheme = memchr::memmem::find(target, b"://")?;
    if scheme > 8 || !target[..scheme].iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    let rest = &target[scheme + 3..];
    match rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
    {
        Some(end) if rest[end] == b'/' => Some(&rest[end..]),
        // A query without a path is dropped.
        _ => Some(b"/"),
    }
}

/// Cuts the protocol off. Some servers log paths with raw spaces, so only a last word that is a
/// protocol is not part of the path.
fn without_protocol(rest: &[u8]) -> &[u8] {
    match memchr::memrchr(b' ', rest) {
        Some(space) if rest[space + 1..].starts_with(b"HTTP/") => &rest[..space],
        _ => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines() {
        for (request, method, target) in [
            ("GET / HTTP/1.1", Some("GET"), Some("/")),
            ("GET /a/b?c=d HTTP/2.0", Some("GET"), Some("/a/b")),
            ("POST /a#b HTTP/1.1", Some("POST"), Some("/a")),
            ("GET /old", Some("GET"), Some("/old")),
            ("GET /with space HTTP/1.0", Some("GET"), Some("/with space")),
            ("GET /two  HTTP/1.0", Some("GET"), Some("/two")),
            ("OPTIONS * HTTP/1.1", Some("OPTIONS"), Some("*")),
            (
                "GET http://host.example/a?b HTTP/1.1",
                Some("GET"),
                Some("/a"),
            ),
            ("GET http://host.example?b HTTP/1.1", Some("GET"), Some("/")),
            ("CONNECT host.example:443 HTTP/1.1", Some("CONNECT"), None),
            ("t3 12.1.2", Some("t3"), None),
            ("", None, None),
            ("-", None, None),
            ("quit", None, None),
            ("\x16\x03\x01\x02 /x HTTP/1.1", None, None),
            (r"\x16\x03\x01 /x", None, None),
            (" GET /", None, None),
        ] {
            let expected = (method.map(str::as_bytes), target.map(str::as_bytes));
            let (found, target) = split(request.as_bytes());
            assert_eq!(
                (found, target.map(|target| target.path)),
                expected,
                "{request:?}"
            );
        }
    }

    #[test]
    fn queries() {
        for (target, query) in [
            ("/a?b=c#d", "b=c"),
            ("/a#b?c", ""),
            ("/a", ""),
            ("/a?b?c", "b?c"),
        ] {
            let found = parse_target(target.as_bytes()).expect(target);
            assert_eq!((found.path, found.query), (&b"/a"[..], query.as_bytes()));
        }
    }
}
