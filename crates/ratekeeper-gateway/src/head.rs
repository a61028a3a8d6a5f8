//! The heads of requests and answers: what is understood in one way only passes, what is between
//! two neighbours stays between them.

mod admit;
mod forward;

pub(crate) use admit::admit;
pub(crate) use forward::{Inbound, as_http2, clean_trailers, forward, frame_http1, hop, of_answer};

use http::HeaderMap;
use http::header::{
    CONNECTION, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// What is between two neighbours, and not passed on (RFC 9110, section 7.6.1).
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

fn is_between_neighbours(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name)
}

/// Removes what is between two neighbours, and what `Connection` says is.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(CONNECTION) {
        let lines: Vec<_> = headers.get_all(CONNECTION).iter().cloned().collect();
        let names = lines
            .iter()
            .flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
        for name in names.map(<[u8]>::trim_ascii) {
            // These two say where a message belongs and where it ends, whoever calls them what.
            let is_needed =
                name.eq_ignore_ascii_case(b"host") || name.eq_ignore_ascii_case(b"content-length");
            if let (false, Ok(name)) = (is_needed, HeaderName::from_bytes(name)) {
                headers.remove(name);
            }
        }
    }
    // One is there, as a rule: to look at all names takes less than to ask for eight.
    while let Some(name) = headers.keys().find(|name| is_between_neighbours(name)) {
        let name = name.clone();
        headers.remove(name);
    }
}
