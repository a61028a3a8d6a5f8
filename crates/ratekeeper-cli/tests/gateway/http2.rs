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

/// A request refused before its body has arrived is not reset as well: some clients would see the reset only.
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
