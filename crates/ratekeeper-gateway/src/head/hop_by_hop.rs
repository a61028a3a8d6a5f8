//! Fields that are for the next hop alone.

use http::HeaderMap;
use http::header::{
    CONNECTION, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The hop-by-hop header fields, which are not forwarded (RFC 9110, section 7.6.1).
static HOP_BY_HOP: [&HeaderName; 8] = [
    &CONNECTION,
    &KEEP_ALIVE,
    &PROXY_CONNECTION,
    &TE,
    &TRANSFER_ENCODING,
    &UPGRADE,
    &PROXY_AUTHENTICATE,
    &PROXY_AUTHORIZATION,
];

pub(super) fn is_between_neighbours(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// Removes the hop-by-hop fields, and those that `Connection` lists as such.
pub(super) fn remove_hop_by_hop(headers: &mut HeaderMap) {
    for name in listed(headers) {
        headers.remove(name);
    }
    // Usually there is one: scanning all names is cheaper than eight lookups.
    while let Some(name) = headers.keys().find(|name| is_between_neighbours(name)) {
        let name = name.clone();
        headers.remove(name);
    }
}

/// The fields that `Connection` lists, without those that are removed anyway or must stay.
fn listed(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut listed = Vec::new();
    for line in headers.get_all(CONNECTION) {
        let names = line.as_bytes().split(|byte| *byte == b',');
        for name in names.map(<[u8]>::trim_ascii) {
            let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
            // Nearly every line says one of these two, which are no fields or removed in any case.
            if is("keep-alive") || is("close") {
                continue;
            }
            // These two say where a message belongs and where it ends, even if `Connection` lists them.
            let is_needed = is("host") || is("content-length");
            if let (false, Ok(name)) = (is_needed, HeaderName::from_bytes(name)) {
                listed.push(name);
            }
        }
    }
    listed
}
