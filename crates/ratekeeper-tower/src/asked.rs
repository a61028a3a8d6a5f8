//! A received request in the form that rules see.

use std::net::{IpAddr, Ipv4Addr};

use http::Request;
use ratekeeper_http::{BodyValues, Forwarding, Hop, Malformed, Original};

/// The peer of a request without a known one: not trusted, and without an address.
const UNKNOWN_PEER: Hop = Hop::Address(IpAddr::V4(Ipv4Addr::UNSPECIFIED));

/// The request as received from `peer`, which may be a proxy, over `scheme`; only trusted proxies' headers are
/// used. The scheme of its URI is what the client wrote there, over HTTP/2, and missing over HTTP/1.
pub(crate) fn original<'a, B>(
    request: &'a Request<B>,
    peer: Option<Hop>,
    scheme: &'static str,
    forwarding: &Forwarding,
) -> Result<Original<'a>, Malformed> {
    let hop = peer.unwrap_or(UNKNOWN_PEER);
    let mut original = Original::received(
        hop,
        scheme,
        request.method(),
        request.uri(),
        request.headers(),
        forwarding,
    )?;
    original.body = request.extensions().get::<BodyValues>();
    original.client = original.client.filter(|_| peer.is_some());
    Ok(original)
}
