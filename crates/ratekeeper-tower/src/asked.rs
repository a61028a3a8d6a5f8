//! A request of this server's, as rules see it.

use std::borrow::Cow;

use http::header::HOST;
use http::request::Request;
use ratekeeper_http::{Forwarding, Hop, Malformed, Original, Target};

/// The request as it came in from `peer`, who may be a proxy; what proxies say counts only from those that are trusted.
pub(crate) fn original<'a, B>(
    request: &'a Request<B>,
    peer: Option<Hop>,
    forwarding: &Forwarding,
) -> Result<Original<'a>, Malformed> {
    let headers = request.headers();
    let client = match peer {
        Some(peer) => forwarding.client(peer, headers)?,
        None => None,
    };
    let uri = request.uri();
    let target = uri.path_and_query().map(|target| target.as_str());
    let target = target.map(|target| Target::parse(&HOST, target.as_bytes()));
    Ok(Original {
        client,
        method: Some(request.method().as_str()),
        scheme: match uri.scheme_str() {
            Some("https") => Some("https"),
            Some("http") => Some("http"),
            _ => None,
        },
        host: host(request),
        target: target.transpose()?,
        headers,
    })
}

/// The host without its port, in lower case: HTTP/2 has it in the target, HTTP/1 in a header.
fn host<B>(request: &Request<B>) -> Option<Cow<'_, str>> {
    let host = match request.uri().host() {
        Some(host) => host,
        None => {
            let value = request.headers().get(HOST)?.to_str().ok()?;
            let port = value.rfind(':').filter(|at| !value[*at..].contains(']'));
            &value[..port.unwrap_or(value.len())]
        }
    };
    Some(match host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        true => Cow::Owned(host.to_ascii_lowercase()),
        false => Cow::Borrowed(host),
    })
}
