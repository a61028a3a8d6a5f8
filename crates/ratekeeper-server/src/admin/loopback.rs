//! Keeps web pages away. A page's own name, rebound to 127.0.0.1, reaches loopback listeners
//! through the browser of whoever looks at it: the Host header gives it away. And any page can
//! have a browser post forms there: the Origin header gives it away, and no form is JSON.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::http::{ApiError, is_json};

/// Refuses requests that do not name this host by a loopback name.
pub(super) async fn only(request: Request, next: Next) -> Response {
    // HTTP/1.1 demands a Host; an absolute request target takes its place.
    let named = request.uri().host().or_else(|| {
        request
            .headers()
            .get(HOST)
            .and_then(|host| host.to_str().ok())
            .map(without_port)
    });
    if !named.is_some_and(is_loopback) {
        let message =
            "the Host header must name this host by a loopback name: localhost, 127.0.0.1 or [::1]";
        return ApiError::other(StatusCode::MISDIRECTED_REQUEST, "WRONG_HOST", message)
            .into_response();
    }
    if !is_of_same_origin(request.headers()) {
        let message = "pages of other origins may not ask here";
        return ApiError::other(StatusCode::FORBIDDEN, "WRONG_ORIGIN", message).into_response();
    }
    let method = request.method();
    let is_write = method == Method::POST || method == Method::PUT || method == Method::PATCH;
    if is_write && !is_json(request.headers()) {
        return ApiError::not_json().into_response();
    }
    next.run(request).await
}

/// Whether no page asks, or one that was served here: browsers name its origin.
fn is_of_same_origin(headers: &HeaderMap) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return true;
    };
    let host = headers.get(HOST).map(HeaderValue::as_bytes);
    let from = origin.as_bytes().strip_prefix(b"http://");
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
