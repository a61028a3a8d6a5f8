//! Requests that have no meaning for an upstream, and those that are too much.

use crate::support::{Answer, Gateway, Upstream, ok};

#[test]
fn requests_without_one_meaning_are_refused_with_a_reason() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let end = "Connection: close\r\n\r\n";
    for (request, status, code) in [
        (format!("GET / HTTP/1.1\r\n{end}"), 400, "BAD_REQUEST"),
        (
            format!("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n{end}"),
            400,
            "BAD_REQUEST",
        ),
        (
            format!("GET http://b/ HTTP/1.1\r\nHost: a\r\n{end}"),
            400,
            "BAD_REQUEST",
        ),
        (
            format!("GET / HTTP/1.1\r\nHost: a@b\r\n{end}"),
            400,
            "BAD_REQUEST",
        ),
        (
            format!("GET /a/../secret HTTP/1.1\r\nHost: a\r\n{end}"),
            400,
            "BAD_REQUEST",
        ),
        (
            format!("GET /a/%2e%2e/secret HTTP/1.1\r\nHost: a\r\n{end}"),
            400,
            "BAD_REQUEST",
        ),
        (
            format!("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n{end}"),
            405,
            "METHOD_NOT_ALLOWED",
        ),
    ] {
        let answer = Answer::read(&gateway.say(&request));
        assert_eq!(answer.status, status, "{request}");
        assert!(answer.body.contains(code), "{request}: {answer:?}");
    }
    assert_eq!(upstream.asked().len(), 0);
}

#[test]
fn what_is_too_large_is_refused_with_a_body() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &["--request-body-max", "1KiB"]);
    let told = gateway.say("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1025\r\n\r\n");
    let answer = Answer::read(&told);
    assert_eq!(answer.status, 413, "{answer:?}");
    assert!(answer.body.contains("TOO_LARGE"), "{answer:?}");
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = Answer::read(&gateway.say(&format!("{chunked}{chunk}{chunk}")));
    assert_eq!(answer.status, 413, "{answer:?}");
    let answer = gateway.get("/", &[&format!("X-Large: {}", "x".repeat(20_000))]);
    assert_eq!(answer.status, 431, "{answer:?}");
    assert!(answer.body.contains("TOO_LARGE"), "{answer:?}");
    assert_eq!(upstream.asked().len(), 0);
}
