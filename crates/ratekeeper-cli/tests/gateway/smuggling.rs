//! Requests over HTTP/1 that two readers could take for two different ones. Whatever a client tries, the upstream sees no
//! request that it was not meant to, in a form that has one meaning.

use crate::support::{Answer, Gateway, Upstream, ok};
use ratekeeper_testkit::assert_contains;

/// A request hidden in the body of the request before it, or behind that one.
const SMUGGLED: &str = "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends requests, `SMUGGLED` behind each, and expects one answer: 400, with the connection closed after it.
fn refused(requests: impl IntoIterator<Item = String>) {
    let upstream = Upstream::start(|_| ok("public"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    for request in requests {
        // Ends where the connection does: that it is closed is part of what is expected.
        let said = gateway.say(&format!("{request}{SMUGGLED}"));
        assert!(said.starts_with("HTTP/1.1 400 "), "{request:?}: {said}");
        assert_eq!(said.matches("HTTP/1.").count(), 1, "{request:?}: {said}");
    }
    assert!(upstream.asked().is_empty(), "{:?}", upstream.asked());
}

/// A request with these lines in its head, and the end of a body in chunks if it has one.
fn with(lines: &str) -> String {
    let end = if lines.contains("Transfer") {
        "0\r\n\r\n"
    } else {
        ""
    };
    format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{end}")
}

#[test]
fn a_length_is_one_number() {
    let lengths = [
        // Two different ones.
        "Content-Length: 0\r\nContent-Length: 35",
        // A list.
        "Content-Length: 0, 35",
        // A list of the same.
        "Content-Length: 35, 35",
        // Plus.
        "Content-Length: +35",
        // Minus.
        "Content-Length: -35",
        // Hexadecimal.
        "Content-Length: 0x23",
        // Nothing.
        "Content-Length:",
        // More than 64 bits.
        "Content-Length: 99999999999999999999",
    ];
    refused(lengths.map(with));
}

#[test]
fn a_body_ends_in_one_way() {
    let lines = [
        // CL.TE.
        "Content-Length: 40\r\nTransfer-Encoding: chunked",
        // The same length twice, and chunks.
        "Content-Length: 5\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
        // Another coding.
        "Transfer-Encoding: xchunked",
        // Chunked is not the last.
        "Transfer-Encoding: chunked, identity",
        // Chunked is not the last of two lines.
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        // A coding that only a neighbour could undo.
        "Transfer-Encoding: gzip, chunked",
        // Chunked twice.
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        // Quoted.
        "Transfer-Encoding: \"chunked\"",
        // A vertical tab before it.
        "Transfer-Encoding: \x0bchunked",
        // A space before the colon.
        "Transfer-Encoding : chunked",
    ];
    let others = [
        // TE.CL.
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n23\r\n",
        // A length of nothing, and chunks.
        "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        // HTTP/1.0, which has no chunks.
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ];
    refused(lines.map(with));
    refused(others.map(str::to_owned));
}

/// The length is refused where it stands behind requests of the same connection, too, and not for what a body says.
#[test]
fn what_is_refused_is_found_behind_other_requests() {
    let upstream = Upstream::start(|asked| ok(&asked.body.len().to_string()));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let both = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    let length = both.len();
    let said = gateway.say(&format!(
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n\
         POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{length:x};x=y\r\n{both}\r\n0\r\nX: 1\r\n\r\n\
         PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{both}{both}{SMUGGLED}"
    ));
    let statuses: Vec<_> = said
        .split("HTTP/1.1 ")
        .skip(1)
        .map(|answer| &answer[..3])
        .collect();
    assert_eq!(statuses, ["200", "200", "200", "400"], "{said}");
    assert_contains(&said, "BAD_REQUEST");
    assert_eq!(upstream.asked().len(), 3);
    let counted = r#"ratelimit_gateway_requests_total{upstream="",status="4xx"} 1"#;
    gateway.tells("/metrics", counted);
}

#[test]
fn a_line_is_one_line() {
    let requests = [
        // A folded line.
        "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
        // A folded line with a tab.
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n",
        // A space before the first name.
        "GET / HTTP/1.1\r\n Host: a\r\nX: 1\r\n\r\n",
        // A null byte.
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        // A CR alone in a value.
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
        // A CR alone at the end.
        "GET / HTTP/1.1\r\nHost: a\rX: 1\r\n\r\n",
        // No colon.
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\r\n\r\n",
        // No name.
        "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
        // A name with a null byte.
        "GET / HTTP/1.1\r\nHost: a\r\nX\0Y: 1\r\n\r\n",
        // A space in the target.
        "GET / HTTP/1.1\r\nX: / HTTP/1.1\r\nHost : a\r\n\r\n",
        // Two spaces.
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        // Another version.
        "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
        // No version.
        "GET /\r\nHost: a\r\n\r\n",
    ];
    refused(requests.map(str::to_owned));
}

#[test]
fn broken_chunks_end_the_request_on_both_sides() {
    let upstream = Upstream::start(|_| ok("whole"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000));
    for body in [
        "zz\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        &long,
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let said = gateway.say(&format!("{head}{body}{SMUGGLED}"));
        assert!(said.starts_with("HTTP/1.1 400 "), "{body:?}: {said}");
        assert_eq!(said.matches("HTTP/1.").count(), 1, "{body:?}: {said}");
    }
    assert_eq!(upstream.asked().len(), 0, "none of them was whole");
}

/// Unusual spellings that are accepted reach the upstream in one unambiguous form.
#[test]
fn what_passes_is_rewritten() {
    let upstream = Upstream::start(|asked| ok(&String::from_utf8_lossy(&asked.body)));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let end = "Connection: close\r\n\r\n";
    for (request, body, framing) in [
        (
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 2\r\n{end}hi"
            ),
            "hi",
            ("2", ""),
        ),
        (
            format!("POST / HTTP/1.1\nHost: a\nContent-Length: 2\n{end}hi"),
            "hi",
            ("2", ""),
        ),
        (
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n{end}002;a=\"b\"\r\nhi\r\n0\r\n\r\n"
            ),
            "hi",
            ("", "chunked"),
        ),
        (
            format!("POST http://a/ HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n{end}hi"),
            "hi",
            ("2", ""),
        ),
        (
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nConnection: Content-Length, Host\r\nContent-Length: 2\r\n{end}hi"
            ),
            "hi",
            ("2", ""),
        ),
    ] {
        let answer = Answer::read(&gateway.say(&request));
        assert_eq!((answer.status, &*answer.body), (200, body), "{request}");
        let asked = upstream.asked().pop().expect("it was asked");
        assert!(
            asked.head.starts_with("POST / HTTP/1.1\r\n"),
            "{}",
            asked.head
        );
        let named = |name: &str| {
            let mut found = asked.head.lines().filter_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then_some(value.trim())
            });
            let first = found.next().unwrap_or_default();
            assert_eq!(found.next(), None, "{}", asked.head);
            first.to_owned()
        };
        let got = (named("content-length"), named("transfer-encoding"));
        assert_eq!((&*got.0, &*got.1), framing, "{request}");
        assert_eq!(named("host"), "a");
    }
}
