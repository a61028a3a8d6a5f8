use std::net::SocketAddr;
use std::sync::Arc;

use super::*;
use crate::upstream::{Address, KeptUpstream};
use http::Request;
use http::uri::Authority;
use ratekeeper_http::TrustedProxies;

fn upstream() -> Upstream {
    let addresses = vec![Address::new(Authority::from_static("10.0.0.9:80"))];
    Upstream::new("u", addresses, Speech::Http1, &KeptUpstream::default())
}

/// The head that the upstream gets, as lines.
fn forwarded(peer: &str, client_header: &str, headers: &[(&str, &str)]) -> Vec<String> {
    let peer: SocketAddr = peer.parse().expect("an address");
    let peer = Peer {
        address: PeerAddress::Tcp(peer),
        names: Arc::new([]),
        by_local_listener: false,
    };
    forwarded_from(Some(&peer), client_header, headers)
}

fn forwarded_from(
    peer: Option<&Peer>,
    client_header: &str,
    headers: &[(&str, &str)],
) -> Vec<String> {
    let forwarding = Forwarding {
        trusted: "10.0.0.0/8".parse::<TrustedProxies>().expect("a network"),
        client_header: client_header.parse().expect("a header"),
    };
    let mut request = Request::builder().uri("/x?y=1");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut request = request.body(()).expect("a request");
    let inbound = Inbound {
        peer,
        scheme: "http",
        forwarding: &forwarding,
    };
    forward(&mut request, &upstream(), inbound);
    let line = |(name, value): (&HeaderName, &HeaderValue)| {
        format!("{name}: {}", value.to_str().expect("text"))
    };
    let mut lines: Vec<_> = request.headers().iter().map(line).collect();
    lines.sort();
    lines
}

#[test]
fn what_strangers_claim_is_replaced() {
    let claims = [
        ("host", "api.example.com"),
        ("x-forwarded-for", "1.2.3.4"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "evil.example"),
        ("forwarded", "for=1.2.3.4"),
    ];
    assert_eq!(
        forwarded("192.0.2.1:5", "x-forwarded-for", &claims),
        [
            "host: api.example.com",
            "x-forwarded-for: 192.0.2.1",
            "x-forwarded-host: api.example.com",
            "x-forwarded-proto: http",
        ]
    );
}

/// Covers the usual names, and those that CGI, WSGI and PHP take for the same.
#[test]
fn no_claim_of_a_stranger_reaches_the_upstream() {
    let claims = [
        "x-forwarded-port",
        "x-forwarded-prefix",
        "x-forwarded-server",
        "x-forwarded-uri",
        "x-original-uri",
        "x-original-method",
        "x-original-url",
        "x-real-ip",
        "x_forwarded_for",
        "x-forwarded_host",
        "x_real_ip",
        "x_original-uri",
        "x-client-ip",
        "x-cluster-client-ip",
        "true-client-ip",
        "true_client_ip",
        "cf-connecting-ip",
        "fastly-client-ip",
        "x-rewrite-url",
        "x-http-method",
        "x-http-method-override",
        "x_http_method_override",
        "x-method-override",
        "client-ip",
        "client_ip",
        "x-proxyuser-ip",
        "x-envoy-external-address",
        "x_envoy_external_address",
        "x-azure-clientip",
        "x-azure-socketip",
        "x-appengine-user-ip",
        "x-appengine-remote-addr",
        "fly-client-ip",
        "x-remote-addr",
        "x-forwarded",
        "forwarded-for",
        "cf-connecting-ipv6",
        "do-connecting-ip",
        "wl-proxy-client-ip",
        "http_x_forwarded_for",
        "cloudfront-viewer-address",
    ];
    let kept = [
        "host",
        "snake_case",
        "x-forward",
        "x-originality",
        "x-real-ip-or-so",
    ];
    let said: Vec<_> = claims
        .iter()
        .chain(&kept)
        .map(|name| (*name, "a"))
        .collect();
    let names = |peer: &str| -> Vec<String> {
        let lines = forwarded(peer, "x-forwarded-for", &said);
        let names = lines.iter().filter_map(|line| line.split(": ").next());
        let mut names: Vec<_> = names.map(str::to_owned).collect();
        names.sort();
        names
    };
    let ours = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
    let mut expected: Vec<_> = kept.iter().chain(&ours).copied().collect();
    expected.sort_unstable();
    assert_eq!(names("192.0.2.1:5"), expected);
    // A trusted proxy writes no name with an underscore: those come from somebody behind it.
    let dashed = claims.iter().filter(|name| !name.contains('_'));
    expected.extend(dashed);
    expected.sort_unstable();
    assert_eq!(names("10.0.0.1:5"), expected);
}

#[test]
fn no_header_is_believed_where_no_peer_is_known() {
    let claims = [
        ("host", "a"),
        ("x-forwarded-for", "1.2.3.4"),
        ("keep-alive", "1"),
    ];
    let lines = forwarded_from(None, "x-forwarded-for", &claims);
    let expected = ["host: a", "x-forwarded-host: a", "x-forwarded-proto: http"];
    assert_eq!(lines, expected);
    let single = forwarded_from(
        None,
        "x-real-ip",
        &[("host", "a"), ("x-real-ip", "1.2.3.4")],
    );
    assert_eq!(single, expected);
}

#[test]
fn what_trusted_proxies_say_is_added_to() {
    let said = [
        ("host", "inner"),
        ("x-forwarded-for", "198.51.100.7"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-host", "api.example.com"),
        ("forwarded", "for=198.51.100.7"),
    ];
    assert_eq!(
        forwarded("10.0.0.1:5", "x-forwarded-for", &said),
        [
            "forwarded: for=10.0.0.1;proto=http;host=\"inner\"",
            "forwarded: for=198.51.100.7",
            "host: inner",
            "x-forwarded-for: 198.51.100.7, 10.0.0.1",
            "x-forwarded-host: api.example.com",
            "x-forwarded-proto: https",
        ]
    );
}

#[test]
fn a_single_header_is_only_ever_ours_or_a_trusted_proxys() {
    let claim = [("host", "a"), ("x-real-ip", "1.2.3.4")];
    let stranger = forwarded("[2001:db8::1]:5", "x-real-ip", &claim);
    assert!(
        stranger.contains(&"x-real-ip: 2001:db8::1".to_owned()),
        "{stranger:?}"
    );
    let trusted = forwarded("10.0.0.1:5", "x-real-ip", &claim);
    assert!(
        trusted.contains(&"x-real-ip: 1.2.3.4".to_owned()),
        "{trusted:?}"
    );
    let standard = forwarded("[2001:db8::1]:5", "forwarded", &[("host", "a")]);
    let element = "forwarded: for=\"[2001:db8::1]\";proto=http;host=\"a\"";
    assert!(standard.contains(&element.to_owned()), "{standard:?}");
}

#[test]
fn what_is_between_neighbours_stays_there() {
    let lines = forwarded(
        "192.0.2.1:5",
        "x-forwarded-for",
        &[
            ("host", "a"),
            ("connection", "keep-alive, X-Secret, host, content-length"),
            ("x-secret", "1"),
            ("content-length", "0"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("proxy-authorization", "Basic x"),
            ("te", "gzip, trailers"),
            ("upgrade", "h2c"),
            ("expect", "100-continue"),
            ("accept", "*/*"),
        ],
    );
    let names: Vec<_> = lines
        .iter()
        .filter_map(|line| line.split(": ").next())
        .collect();
    let expected = [
        "accept",
        "content-length",
        "host",
        "te",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
    ];
    assert_eq!(names, expected);
    assert!(lines.contains(&"te: trailers".to_owned()));
}

#[test]
fn cookies_in_pieces_are_joined() {
    let mut headers = HeaderMap::new();
    for piece in ["a=1", "b=2"] {
        headers.append(COOKIE, HeaderValue::from_static(piece));
    }
    join_cookies(&mut headers);
    let cookies: Vec<_> = headers.get_all(COOKIE).iter().collect();
    assert_eq!(cookies, ["a=1; b=2"]);
}

#[test]
fn trailers_say_nothing_that_a_head_says() {
    let mut trailers = HeaderMap::new();
    for name in [
        "x-forwarded-for",
        "true-client-ip",
        "authorization",
        "x-client",
        "x_client",
        "content-length",
        "content_length",
        "transfer-encoding",
        "transfer_encoding",
        "grpc-status",
        "x-checksum",
    ] {
        trailers.insert(name, HeaderValue::from_static("1"));
    }
    let client_header = ClientHeader::Single(HeaderName::from_static("x-client"));
    clean_trailers(&mut trailers, &client_header);
    let mut left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["grpc-status", "x-checksum"]);
}

#[test]
fn a_length_has_no_zeros_before_it() {
    for (sent, passed_on) in [("05", "5"), ("00", "0"), ("0", "0"), ("50", "50")] {
        let lines = forwarded(
            "192.0.2.1:5",
            "x-forwarded-for",
            &[("content-length", sent)],
        );
        let wanted = format!("content-length: {passed_on}");
        assert!(lines.contains(&wanted), "{sent}: {lines:?}");
    }
}

#[test]
fn claims_stand_by_their_length() {
    for length in 0..64 {
        for claim in super::claims_of(length) {
            assert_eq!(claim.len(), length, "{claim}");
        }
    }
}
