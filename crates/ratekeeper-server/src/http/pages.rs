//! Keeps web pages out. A page whose own name is rebound to 127.0.0.1 reaches loopback listeners
//! through its visitor's browser: the Host header gives it away. And any page can have a browser
//! post forms: the Origin header gives it away, and no form is JSON.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use super::media_type::{is_bulk, is_json};
use crate::http::error::ApiError;
use crate::listen::{Peer, PeerAddress};

/// The scheme of the listener. With HTTPS, no page can be rebound to it: the browser would find a
/// certificate for another name. But a page's form sends the user's certificate along, so origins
/// are checked all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// Of a listener that has a certificate, or has not.
    pub(crate) const fn of(is_encrypted: bool) -> Self {
        match is_encrypted {
            true => Self::Https,
            false => Self::Http,
        }
    }

    const fn prefix(self) -> &'static [u8] {
        match self {
            Self::Http => b"http://",
            Self::Https => b"https://",
        }
    }
}

/// Refuses what a web page may have sent: requests in the clear that do not name this host by
/// a loopback name, and those of other origins. No browser connects to a Unix socket, but what
/// names another host there is as wrong.
pub(crate) async fn none(State(scheme): State<Scheme>, request: Request, next: Next) -> Response {
    let named = asked_host(request.uri(), request.headers());
    // A listener that other hosts reach has their names for it, and demands credentials that no page has.
    let peer = request.extensions().get::<Peer>();
    let is_open = peer.is_some_and(|peer| !peer.by_local_listener);
    let named = match is_open {
        true => Some("localhost"),
        false => named,
    };
    if let Err(refusal) = refuse_page(request.headers(), named, scheme) {
        return refusal.into_response();
    }
    let method = request.method();
    let is_write = method == Method::POST || method == Method::PUT || method == Method::PATCH;
    let headers = request.headers();
    if is_write && !is_json(headers) && !is_bulk(headers) {
        return ApiError::not_json().into_response();
    }
    next.run(request).await
}

/// Refuses pages in the same way for a request that may do more than others only because of where
/// it comes from; whatever its method, it has to be JSON.
pub(crate) fn refuse(headers: &HeaderMap, peer: &Peer, scheme: Scheme) -> Result<(), ApiError> {
    refuse_page(headers, named_by(headers, peer), scheme)?;
    match is_json(headers) {
        true => Ok(()),
        false => Err(ApiError::not_json()),
    }
}

/// The host that a request names: HTTP/1.1 demands a Host, and an absolute request target takes its place.
fn asked_host<'a>(uri: &'a Uri, headers: &'a HeaderMap) -> Option<&'a str> {
    let named = || headers.get(HOST).and_then(|host| host.to_str().ok());
    uri.host().or_else(|| named().map(without_port))
}

/// Returns true if a request names this host by a loopback name.
pub(crate) fn asks_loopback(parts: &Parts) -> bool {
    asked_host(&parts.uri, &parts.headers).is_some_and(is_loopback)
}

/// Returns true if a request names this host by a loopback name, which a browser never does for a
/// page of another name.
pub(crate) fn names_loopback(headers: &HeaderMap, peer: &Peer) -> bool {
    named_by(headers, peer).is_some_and(is_loopback)
}

/// The host that a request names, without its port.
fn named_by<'a>(headers: &'a HeaderMap, peer: &Peer) -> Option<&'a str> {
    let named = match peer.address {
        PeerAddress::Tcp(_) => headers.get(HOST).and_then(|host| host.to_str().ok()),
        // No browser connects there, and clients make up names for what has none.
        PeerAddress::Unix => Some("localhost"),
    };
    named.map(without_port)
}

/// Refuses what does not name this host, `named`, by a loopback name, and other origins.
fn refuse_page(headers: &HeaderMap, named: Option<&str>, scheme: Scheme) -> Result<(), ApiError> {
    if scheme == Scheme::Http && !named.is_some_and(is_loopback) {
        let message =
            "the Host header must name this host by a loopback name: localhost, 127.0.0.1 or [::1]";
        let status = StatusCode::MISDIRECTED_REQUEST;
        return Err(ApiError::other(status, "WRONG_HOST", message));
    }
    if !is_of_same_origin(headers, scheme) {
        let message = "pages of other origins may not ask here";
        return Err(ApiError::other(
            StatusCode::FORBIDDEN,
            "WRONG_ORIGIN",
            message,
        ));
    }
    Ok(())
}

/// Returns true if no page sent the request, or a page served from here: browsers name its origin.
fn is_of_same_origin(headers: &HeaderMap, scheme: Scheme) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return true;
    };
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let from = origin.as_bytes().strip_prefix(scheme.prefix());
    from.zip(host)
        .is_some_and(|(from, host)| from.eq_ignore_ascii_case(host))
        && origins.next().is_none()
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        // The colons within brackets are the address's.
        Some(colon) if !host.ends_with(']') => &host[..colon],
        _ => host,
    }
}

fn is_loopback(name: &str) -> bool {
    let address = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    match address.parse::<IpAddr>() {
        Ok(address) => address.is_loopback(),
        Err(_) => {
            let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
            name == "localhost" || name.ends_with(".localhost")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_pass() {
        for host in [
            "localhost",
            "LOCALHOST:6070",
            "127.0.0.1:80",
            "127.8.9.1",
            "[::1]:6070",
            "[::1]",
            "a.localhost",
        ] {
            assert!(is_loopback(without_port(host)), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:6070",
            "10.0.0.1",
            "localhost.evil.example",
            "[::2]:1",
            "127.0.0.1.evil.example",
            ":6070",
        ] {
            assert!(!is_loopback(without_port(host)), "{host}");
        }
    }
}
