//! Requests over HTTP/2 that HTTP/1 has no words for, or two meanings. They are written byte by byte: no client sends them.

use std::io::Write;
use std::net::Shutdown;

use ratekeeper_testkit::http2::{
    DATA, END_STREAM, Fields, GOAWAY, Outcome, PING, RST_STREAM, begin, frame, outcome, read_frame,
};

use crate::support::{Gateway, Upstream, ok};

/// The outcome of a request with that body.
fn ask(gateway: &Gateway, fields: Fields<'_>, body: &str) -> Outcome {
    let mut stream = begin(gateway.port, fields, Some(body));
    let outcome = outcome(&mut stream);
    let _ = stream.shutdown(Shutdown::Both);
    outcome
}

const PLAIN: [(&str, &str); 4] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/"),
    (":authority", "a"),
];

#[test]
fn what_http1_could_not_say_reaches_nobody() {
    let upstream = Upstream::start(|_| ok("public"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let line = "x\r\nTransfer-Encoding: chunked";
    let more: [(&str, Fields<'_>); 22] = [
        ("a connection header", &[("connection", "keep-alive")]),
        ("chunks", &[("transfer-encoding", "chunked")]),
        ("an upgrade", &[("upgrade", "h2c")]),
        ("keep-alive", &[("keep-alive", "timeout=5")]),
        ("proxy-connection", &[("proxy-connection", "keep-alive")]),
        ("a TE that is not trailers", &[("te", "gzip")]),
        ("another host", &[("host", "b")]),
        ("two hosts", &[("host", "a"), ("host", "a")]),
        ("a length that is too long", &[("content-length", "40")]),
        ("a length that is too short", &[("content-length", "1")]),
        ("a length of nothing", &[("content-length", "0")]),
        ("a signed length", &[("content-length", "+2")]),
        (
            "two lengths",
            &[("content-length", "2"), ("content-length", "40")],
        ),
        ("a list of lengths", &[("content-length", "2, 2")]),
        ("a value with a line in it", &[("x", line)]),
        ("a value with a null byte", &[("x", "a\0b")]),
        ("a name with a line in it", &[("x\r\ny", "1")]),
        ("a name with a colon", &[("x: y", "1")]),
        ("a name with a capital", &[("Transfer-Encoding", "chunked")]),
        ("no name", &[("", "1")]),
        ("a late pseudo-header", &[("x", "1"), (":path", "/b")]),
        ("an unknown pseudo-header", &[(":x", "1")]),
    ];
    for (what, more) in more {
        let outcome = ask(&gateway, &[&PLAIN, more].concat(), "hi");
        assert_ne!(outcome, Outcome::Status(200), "{what}");
    }
    let instead = [
        ("a line in the path", ":path", "/ HTTP/1.1\r\nX: 1"),
        ("a version in the path", ":path", "/ HTTP/1.1"),
        ("a space in the path", ":path", "/a b"),
        ("a tab in the path", ":path", "/a\tb"),
        ("a null byte in the path", ":path", "/a\0b"),
        ("no path", ":path", ""),
        ("a path without a slash", ":path", "a"),
        ("a path that names a host", ":path", "http://b/"),
        ("an asterisk", ":path", "*"),
        ("dots", ":path", "/a/../secret"),
        ("an encoded slash", ":path", "/a%2fb"),
        (
            "a line in the method",
            ":method",
            "GET /secret HTTP/1.1\r\nX: 1",
        ),
        ("a space in the method", ":method", "GET /secret"),
        ("no method", ":method", ""),
        ("CONNECT", ":method", "CONNECT"),
        ("a line in the host", ":authority", "a\r\nX: 1"),
        ("a path in the host", ":authority", "a/b"),
        ("a user in the host", ":authority", "u@a"),
        ("a space in the host", ":authority", "a b"),
        ("no host", ":authority", ""),
        ("two hosts", ":authority", "a, b"),
        ("a port that is none", ":authority", "a:b"),
        ("a path in the scheme", ":scheme", "http://b/x?"),
        ("a line in the scheme", ":scheme", "http\r\nX: 1"),
    ];
    for (what, name, value) in instead {
        let fields = PLAIN.map(|(other, usual)| (other, if other == name { value } else { usual }));
        let outcome = ask(&gateway, &fields, "hi");
        assert_ne!(outcome, Outcome::Status(200), "{what}");
    }
    for left_out in 0..PLAIN.len() {
        let mut fields = PLAIN.to_vec();
        let (name, _) = fields.remove(left_out);
        // A scheme is of no use here: how the client comes is known.
        if name != ":scheme" {
            let outcome = ask(&gateway, &fields, "hi");
            assert_ne!(outcome, Outcome::Status(200), "without {name}");
        }
    }
    assert!(upstream.asked().is_empty(), "{:?}", upstream.asked());
}

#[test]
fn what_passes_is_said_as_http1_has_it() {
    let upstream = Upstream::start(|_| ok("public"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let passed = |more: Fields<'_>, body: &str| {
        let outcome = ask(&gateway, &[&PLAIN, more].concat(), body);
        assert_eq!(outcome, Outcome::Status(200), "{more:?}");
        upstream.asked().pop().expect("it was asked")
    };
    let asked = passed(&[("host", "A"), ("te", "trailers")], "hi");
    assert!(asked.head.starts_with("POST / HTTP/1.1\r\n"), "{asked:?}");
    assert_eq!(
        asked.head.matches("host: ").count(),
        2,
        "Host and X-Forwarded-Host"
    );
    assert_eq!(asked.header("transfer-encoding"), Some("chunked"));
    assert_eq!(
        (asked.header("content-length"), &*asked.body),
        (None, &b"hi"[..])
    );
    let asked = passed(&[("content-length", "2")], "hi");
    assert_eq!(asked.header("content-length"), Some("2"));
    assert_eq!(asked.header("transfer-encoding"), None);
    let asked = passed(&[("cookie", "a=1"), ("cookie", "b=2")], "");
    assert_eq!(asked.header("cookie"), Some("a=1; b=2"));
}

/// What is refused before its body has come is not reset as well: some clients would take that for all there is.
#[test]
fn the_rest_of_a_refused_request_is_taken() {
    let upstream = Upstream::start(|_| ok("public"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let fields = PLAIN.map(|(name, usual)| match name {
        ":path" => (name, "/a/../secret"),
        _ => (name, usual),
    });
    let mut stream = begin(gateway.port, &fields, None);
    assert_eq!(outcome(&mut stream), Outcome::Status(400));
    let mut rest = frame(DATA, END_STREAM, 1, b"hi");
    rest.extend(frame(PING, 0, 0, &[0; 8]));
    stream.write_all(&rest).expect("it is read from");
    loop {
        match read_frame(&mut stream) {
            Some((PING, _)) => break,
            Some((RST_STREAM | GOAWAY, _)) | None => panic!("it was reset"),
            Some(_) => {}
        }
    }
}
