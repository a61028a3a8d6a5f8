//! A request of this server's, as rules see it.

use std::net::{IpAddr, Ipv4Addr};

use http::Request;
use ratekeeper_http::{Forwarding, Hop, Malformed, Original};

/// Where nobody is: whoever is not known is not trusted, and has no address.
const NOBODY: Hop = Hop::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// The request as it came in from `peer`, who may be a proxy; what proxies say counts only from those that are trusted.
pub(crate) fn original<'a, B>(
    request: &'a Request<B>,
    peer: Option<Hop>,
    forwarding: &Forwarding,
) -> Result<Original<'a>, Malformed> {
    let uri = request.uri();
    let scheme = match uri.scheme_str() {
        Some("https") => "https",
        _ => "http",
    };
    let hop = peer.unwrap_or(NOBODY);
    let mut original = Original::received(
        hop,
        scheme,
        request.method(),
        uri,
        request.headers(),
        forwarding,
    )?;
    original.client = original.client.filter(|_| peer.is_some());
    Ok(original)
}
