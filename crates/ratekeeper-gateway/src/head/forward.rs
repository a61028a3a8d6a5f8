//! The rewriting of heads: what an upstream gets in place of the head that the client sent.

use std::fmt::Write as _;
use std::net::IpAddr;

use http::header::{
    AUTHORIZATION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, FORWARDED, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::uri::{PathAndQuery, Scheme, Uri};
use http::{Method, Request, Version};
use ratekeeper_http::{ClientHeader, Forwarding, Hop, push_address};
use ratekeeper_server::{Peer, PeerAddress};

use super::admit::is_framing_twin;
use super::hop_by_hop::{is_between_neighbours, remove_hop_by_hop};
use crate::upstream::{Speech, Upstream};

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The connection that a request came in on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbound<'a> {
    /// The peer; None if the listener does not tell, in which case no forwarded header is trusted.
    pub(crate) peer: Option<&'a Peer>,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    pub(crate) forwarding: &'a Forwarding,
}

impl Inbound<'_> {
    /// The address that the request counts for in an upstream's shares. None for a trusted proxy that does not tell its client:
    /// all its clients would share one.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = hop(self.peer?);
        // A claim that the limits before did not refuse, because they are off, names no caller.
        let client = self.forwarding.client(peer, headers).ok().flatten()?;
        let is_proxy = self.forwarding.trusted.contains(Hop::Address(client));
        (!is_proxy).then_some(client)
    }
}

/// Turns a client's head into the one that the upstream gets: without hop-by-hop fields, and with the
/// client's address, the host and the scheme. Claims about these from strangers are removed; those
/// of trusted proxies stay, and the proxy's address is added.
pub(crate) fn forward<B>(request: &mut Request<B>, upstream: &Upstream, inbound: Inbound<'_>) {
    let headers = request.headers_mut();
    let mut wants_trailers = false;
    // Most requests have none of these fields, and `TE` is one.
    if headers.keys().any(is_between_neighbours) {
        wants_trailers = headers.get_all(TE).iter().any(names_trailers);
        remove_hop_by_hop(headers);
    }
    // hyper answers 100 once the body is read, so the upstream does not have to.
    headers.remove(EXPECT);
    plain_length(headers);
    let written = headers.get(HOST).cloned();
    let is_written = written.is_some();
    let host = written.or_else(|| {
        let authority = request.uri().authority()?;
        HeaderValue::from_str(authority.as_str()).ok()
    });
    let splits_cookies = request.version() >= Version::HTTP_2;
    let headers = request.headers_mut();
    tell_of_client(headers, host.as_ref(), inbound);
    let is_http2 = matches!(upstream.speech, Speech::Http2);
    if splits_cookies && !is_http2 {
        join_cookies(headers);
    }
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // An HTTP/1.0 client may leave out `Host`, which the upstream needs.
    let whom = || HeaderValue::from_str(upstream.addresses[0].authority.as_str()).ok();
    let host = match &upstream.host {
        Some(own) => Some(own.clone()),
        None if is_written => None,
        None => host.or_else(whom),
    };
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    *request.version_mut() = Version::HTTP_11;
    if request.uri().authority().is_some() {
        *request.uri_mut() = target_of(request.uri());
    }
}

fn names_trailers(line: &HeaderValue) -> bool {
    let mut names = line.as_bytes().split(|byte| *byte == b',');
    names.any(|name| name.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

/// The path and query of the target, without the rest.
fn target_of(uri: &Uri) -> Uri {
    let root = || PathAndQuery::from_static("/");
    let target = uri.path_and_query().cloned().unwrap_or_else(root);
    Uri::from(target)
}

/// Rewrites the target for HTTP/2: with a scheme, and the host in place of the header.
pub(crate) fn as_http2(parts: &mut Parts, upstream: &Upstream, address: usize) {
    let host = parts.headers.remove(HOST);
    let authority = host.and_then(|host| http::uri::Authority::from_maybe_shared(host).ok());
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(match upstream.speech {
        Speech::Tls(_) => Scheme::HTTPS,
        Speech::Http1 | Speech::Http2 => Scheme::HTTP,
    });
    uri.authority =
        Some(authority.unwrap_or_else(|| upstream.addresses[address].authority.clone()));
    uri.path_and_query = match parts.method {
        Method::OPTIONS if parts.uri.path() == "*" => Some(PathAndQuery::from_static("*")),
        _ => parts.uri.path_and_query().cloned(),
    };
    // Cannot fail: all three parts are there, and were parsed.
    if let Ok(uri) = Uri::from_parts(uri) {
        parts.uri = uri;
    }
    parts.version = Version::HTTP_2;
}

/// Frames a body that has no length as chunks. hyper does so by itself, except for GET and other
/// methods that usually have no body: the upstream would get none.
pub(crate) fn frame_http1(headers: &mut HeaderMap) {
    if !headers.contains_key(CONTENT_LENGTH) {
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Joins cookies: HTTP/2 may send them in pieces, which HTTP/1 may not (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let pieces: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(whole) = HeaderValue::from_bytes(&pieces.join(&b"; "[..])) {
        headers.insert(COOKIE, whole);
    }
}

/// Returns true for a header that upstreams believe about a request's origin or target, no matter who
/// wrote it. Many take `_` for `-` (CGI, WSGI and PHP have one name for both), which no proxy writes.
fn is_claim(name: &str, is_trusted: bool, client_header: &ClientHeader) -> bool {
    if is_trusted && !name.contains('_') {
        return false;
    }
    let begins_like = |with: &str| {
        let start = name.as_bytes().get(..with.len());
        let as_written = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
        start.is_some_and(|start| start.iter().map(as_written).eq(with.bytes()))
    };
    let is_like = |other: &str| name.len() == other.len() && begins_like(other);
    let is_clients = match client_header {
        ClientHeader::Single(single) => is_like(single.as_str()),
        _ => false,
    };
    is_clients
        || begins_like("x-forwarded-")
        || begins_like("x-original-")
        || claims_of(name.len()).iter().any(|claim| is_like(claim))
}

/// The headers of a length by which CDNs, proxies and frameworks tell a request's client, method and target. By their length,
/// because each header of each request is looked for.
const fn claims_of(length: usize) -> &'static [&'static str] {
    match length {
        6 => &["x-host"],
        9 => &["client-ip", "forwarded", "x-real-ip"],
        10 => &["cdn-src-ip"],
        11 => &["remote-addr", "x-client-ip", "x-forwarded", "x-remote-ip"],
        13 => &[
            "fly-client-ip",
            "forwarded-for",
            "x-http-method",
            "x-remote-addr",
            "x-rewrite-url",
        ],
        14 => &[
            "cf-pseudo-ipv4",
            "http-client-ip",
            "http-forwarded",
            "true-client-ip",
            "x-proxyuser-ip",
        ],
        15 => &["ali-cdn-real-ip", "incap-client-ip", "proxy-client-ip"],
        16 => &[
            "cf-connecting-ip",
            "do-connecting-ip",
            "fastly-client-ip",
            "x-azure-clientip",
            "x-azure-socketip",
            "x-originating-ip",
            "x-real-client-ip",
        ],
        17 => &["x-method-override", "x-sucuri-clientip"],
        18 => &[
            "cf-connecting-ipv6",
            "http-forwarded-for",
            "wl-proxy-client-ip",
        ],
        19 => &["x-appengine-user-ip", "x-cluster-client-ip"],
        20 => &["http-x-forwarded-for", "x-http-host-override"],
        22 => &["x-http-method-override", "x-vercel-forwarded-for"],
        23 => &["x-appengine-remote-addr"],
        24 => &["x-envoy-external-address"],
        25 => &["cloudfront-viewer-address", "x-nf-client-connection-ip"],
        _ => &[],
    }
}

/// Removes from a request's trailers the fields about its origin, its sender and its framing: some servers merge
/// trailers into headers, where those who checked the headers have not seen them.
pub(crate) fn clean_trailers(trailers: &mut HeaderMap, client_header: &ClientHeader) {
    let is_of_head = |name: &HeaderName| {
        is_between_neighbours(name)
            || is_framing_twin(name)
            || is_claim(name.as_str(), false, client_header)
            || [AUTHORIZATION, COOKIE, HOST, CONTENT_LENGTH].contains(name)
    };
    let of_head: Vec<HeaderName> = trailers
        .keys()
        .filter(|it| is_of_head(it))
        .cloned()
        .collect();
    for name in of_head {
        trailers.remove(name);
    }
}

/// Rewrites a length in the form that everybody reads alike: some take `010` for octal.
fn plain_length(headers: &mut HeaderMap) {
    let has_zeros = |length: &&HeaderValue| matches!(length.as_bytes(), [b'0', _, ..]);
    let length = headers.get(CONTENT_LENGTH).filter(has_zeros);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

fn tell_of_client(headers: &mut HeaderMap, host: Option<&HeaderValue>, inbound: Inbound<'_>) {
    let hop = inbound.peer.map(hop);
    let forwarding = inbound.forwarding;
    let is_trusted = hop.is_some_and(|hop| forwarding.trusted.contains(hop));
    let names = headers.keys();
    let claims =
        names.filter(|name| is_claim(name.as_str(), is_trusted, &forwarding.client_header));
    let claims: Vec<HeaderName> = claims.cloned().collect();
    for name in claims {
        headers.remove(name);
    }
    if let Some(Hop::Address(address)) = hop {
        let mut text = String::with_capacity(64);
        for line in headers.get_all(&X_FORWARDED_FOR) {
            if let Ok(line) = line.to_str() {
                text.push_str(line);
                text.push_str(", ");
            }
        }
        push_address(&mut text, address.to_canonical());
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(&X_FORWARDED_FOR, value);
        }
    }
    if let Ok(Entry::Vacant(proto)) = headers.try_entry(&X_FORWARDED_PROTO) {
        // It fails if there are too many headers, here and below: no head has as many.
        let _ = proto.try_insert(HeaderValue::from_static(inbound.scheme));
    }
    if let Some(host) = host
        && let Ok(Entry::Vacant(entry)) = headers.try_entry(&X_FORWARDED_HOST)
    {
        let _ = entry.try_insert(host.clone());
    }
    let speaks_forwarded = forwarding.client_header == ClientHeader::Forwarded;
    if speaks_forwarded || headers.contains_key(FORWARDED) {
        let said = element(hop, host, inbound.scheme);
        headers.append(FORWARDED, said);
    }
    // The one header with the client's address: only the gateway and trusted proxies write it.
    if let (ClientHeader::Single(name), Some(Hop::Address(address))) =
        (&forwarding.client_header, hop)
        && !headers.contains_key(name)
        && let Ok(value) = HeaderValue::try_from(address.to_canonical().to_string())
    {
        headers.insert(name, value);
    }
}

/// The element of `Forwarded` (RFC 7239) for this hop.
fn element(hop: Option<Hop>, host: Option<&HeaderValue>, scheme: &str) -> HeaderValue {
    let mut text = String::from("for=");
    match hop {
        None | Some(Hop::Unix) => text.push_str("unknown"),
        Some(Hop::Address(address)) => {
            let _ = match address.to_canonical() {
                IpAddr::V4(address) => write!(text, "{address}"),
                IpAddr::V6(address) => write!(text, "\"[{address}]\""),
            };
        }
    }
    let _ = write!(text, ";proto={scheme}");
    // A host that was let in has neither quotes nor backslashes.
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        let _ = write!(text, ";host=\"{host}\"");
    }
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("for=unknown"))
}

pub(crate) fn hop(peer: &Peer) -> Hop {
    match peer.address {
        PeerAddress::Tcp(address) => Hop::Address(address.ip()),
        PeerAddress::Unix => Hop::Unix,
    }
}

/// Turns an upstream's head into the one that the client gets.
pub(crate) fn of_answer(headers: &mut HeaderMap) {
    if headers.keys().any(is_between_neighbours) {
        // It was read as chunks, no matter what its `Content-Length` says (RFC 9112, section 6.3).
        if headers.contains_key(TRANSFER_ENCODING) {
            headers.remove(CONTENT_LENGTH);
        }
        remove_hop_by_hop(headers);
    }
}

#[cfg(test)]
mod tests;
