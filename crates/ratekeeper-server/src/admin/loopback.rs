//! Keeps web pages away: a page's own name, rebound to 127.0.0.1, reaches loopback listeners
//! through the browser of whoever looks at it. The Host header gives it away.

use std::net::IpAddr;

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::HOST;

use crate::http::ApiError;

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
    if named.is_some_and(is_loopback) {
        return next.run(request).await;
    }
    let message =
        "the Host header must name this host by a loopback name: localhost, 127.0.0.1 or [::1]";
    ApiError::other(StatusCode::MISDIRECTED_REQUEST, "WRONG_HOST", message).into_response()
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
