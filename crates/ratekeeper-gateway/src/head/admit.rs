//! The admission of requests. One that two readers could take for two different requests is
//! refused; hyper has already refused most of those.

use http::header::{HOST, HeaderName, TRANSFER_ENCODING};
use http::{Method, Request, Version};

use ratekeeper_http::spelling::has_dot_segments;
use ratekeeper_server::FramedTwice;

use crate::fault::Fault;

/// Refuses requests that are not for an upstream, or are ambiguous.
pub(crate) fn admit<B>(request: &Request<B>) -> Result<(), Fault> {
    if request.method() == Method::CONNECT {
        return Err(Fault::NoTunnel);
    }
    let headers = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(Fault::BadRequest("it has more than one Host"));
    }
    let authority = request.uri().authority().map(|it| it.as_str().as_bytes());
    match (host.map(|host| host.as_bytes()), authority) {
        (Some(host), Some(authority)) if !host.eq_ignore_ascii_case(authority) => {
            return Err(Fault::BadRequest("its Host is not the host it asks for"));
        }
        (None, None) if request.version() != Version::HTTP_10 => {
            return Err(Fault::BadRequest("it has no Host"));
        }
        (Some(host), _) | (None, Some(host)) if !is_host(host) => {
            return Err(Fault::BadRequest("its Host is none"));
        }
        _ => {}
    }
    if request.extensions().get::<FramedTwice>().is_some() {
        let why = "it has a Content-Length and a Transfer-Encoding; send one of them";
        return Err(Fault::BadRequest(why));
    }
    if headers.keys().any(is_framing_twin) {
        let why = "it has a header that some take for Content-Length or Transfer-Encoding; write `-` for `_`";
        return Err(Fault::BadRequest(why));
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let coding = codings.next();
    let is_chunked = coding.is_none_or(|it| it.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if !is_chunked || codings.next().is_some() {
        // Any other transfer coding would be lost, since the field is hop-by-hop.
        return Err(Fault::BadRequest("its Transfer-Encoding is not chunked"));
    }
    let path = request.uri().path();
    let is_asterisk = path == "*" && request.method() == Method::OPTIONS;
    if !path.starts_with('/') && !is_asterisk {
        return Err(Fault::BadRequest("its target is not a path"));
    }
    // Upstreams resolve dot segments, so rules and routes would see another path than the upstream does. Clients
    // resolve them before they send a request.
    if has_dot_segments(path.as_bytes()) {
        let why = "its path has a segment . or ..; resolve it before asking";
        return Err(Fault::BadRequest(why));
    }
    Ok(())
}

/// Returns true if CGI and WSGI, which write `-` as `_`, cannot tell it from a field that says where a body ends.
pub(super) fn is_framing_twin(name: &HeaderName) -> bool {
    matches!(name.as_str(), "content_length" | "transfer_encoding")
}

/// Returns true for a name or an address, with an optional port.
fn is_host(host: &[u8]) -> bool {
    let is_address = host.starts_with(b"[");
    let end = if is_address { b']' } else { b':' };
    let length = match host.iter().position(|byte| *byte == end) {
        Some(at) if is_address => at + 1,
        Some(at) => at,
        None if is_address => return false,
        None => host.len(),
    };
    let (name, rest) = host.split_at(length);
    let is_plain = |byte: &u8| match byte {
        b'[' | b']' | b':' => is_address,
        byte => byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(byte),
    };
    let port = match rest {
        [] => rest,
        [b':', port @ ..] => port,
        _ => return false,
    };
    !name.is_empty() && name.iter().all(is_plain) && port.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let asked = |uri: &str, headers: &[(&str, &str)]| {
            let mut request = Request::builder().uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            admit(&request.body(()).expect("a request"))
        };
        assert_eq!(asked("/", &[("host", "a")]), Ok(()));
        assert_eq!(asked("http://a/", &[("host", "A")]), Ok(()));
        for host in ["a:80", "a.b-c", "[::1]", "[::1]:80", "127.0.0.1:"] {
            assert_eq!(asked("/", &[("host", host)]), Ok(()), "{host}");
        }
        for host in [":80", "a:b", "a:80:90", "a:-1", "[::1", "[::1]80", "a]"] {
            let refused = asked("/", &[("host", host)]);
            assert!(refused.is_err(), "{host}");
        }
        for (uri, headers) in [
            ("/", &[][..]),
            ("/", &[("host", "a"), ("host", "a")]),
            ("/", &[("host", "")]),
            ("/", &[("host", "a/b")]),
            ("/", &[("host", "user@a")]),
            ("http://b/", &[("host", "a")]),
            ("*", &[("host", "a")]),
            (
                "/",
                &[("host", "a"), ("transfer-encoding", "gzip, chunked")],
            ),
            ("/../x", &[("host", "a")]),
            ("/", &[("host", "a"), ("content_length", "5")]),
            ("/", &[("host", "a"), ("Transfer_Encoding", "chunked")]),
        ] {
            let refused = asked(uri, headers);
            assert!(
                matches!(refused, Err(Fault::BadRequest(_))),
                "{uri} {headers:?}"
            );
        }
    }
}
