//! Requests that two readers could take for two different ones, and those that are too much.

use crate::support::{Answer, Gateway, Upstream, ok};

/// Whatever the client tries, the upstream sees no request that it was not meant to, in a form that
/// has one meaning.
#[test]
fn nothing_is_smuggled() {
    let upstream = Upstream::start(|_| ok("public"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let smuggled = "GET /secret HTTP/1.1\r\nHost: a\r\n\r\n";
    let length = smuggled.len();
    let cases = [
        (
            "two CLs",
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nContent-Length: {length}\r\n\r\n{smuggled}"
            ),
        ),
        (
            "a list of CLs",
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0, {length}\r\n\r\n{smuggled}"),
        ),
        (
            "a signed CL",
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +{length}\r\n\r\n{smuggled}"),
        ),
        (
            "TE that is not chunked",
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n{smuggled}"),
        ),
        (
            "TE after chunked",
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n{smuggled}"
            ),
        ),
        (
            "TE of HTTP/1.0",
            format!(
                "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
            ),
        ),
        (
            "a folded line",
            format!(
                "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n Transfer-Encoding: chunked\r\n\r\n{smuggled}"
            ),
        ),
        (
            "a space before the colon",
            format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length : {length}\r\n\r\n{smuggled}"),
        ),
        (
            "a null byte",
            format!("GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n{smuggled}"),
        ),
        (
            "a line of CR alone",
            format!("GET / HTTP/1.1\r\nHost: a\rX: 1\r\n\r\n{smuggled}"),
        ),
    ];
    for (what, request) in cases {
        let answer = Answer::read(&gateway.say(&request));
        assert_eq!(answer.status, 400, "{what}: {answer:?}");
    }
    // Both a length and chunks: the length is dropped and the connection closed, as RFC 9112 (6.3) has it, so that
    // one meaning is left and nothing after it is read.
    let (long, chunked) = (
        format!("Content-Length: {}", length + 5),
        "Transfer-Encoding: chunked",
    );
    for (first, second) in [(&*long, chunked), (chunked, &*long)] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{first}\r\n{second}\r\n\r\n");
        let said = gateway.say(&format!("{head}0\r\n\r\n{smuggled}"));
        assert_eq!(said.matches("HTTP/1.1 ").count(), 1, "{said}");
        assert_eq!(
            Answer::read(&said).header("connection"),
            Some("close"),
            "{said}"
        );
    }
    for asked in upstream.asked() {
        assert!(!asked.head.contains("/secret"), "{}", asked.head);
        let both = (
            asked.header("content-length"),
            asked.header("transfer-encoding"),
        );
        assert!(both.0.is_none() || both.1.is_none(), "{}", asked.head);
    }
}

#[test]
fn broken_chunks_end_the_request_on_both_sides() {
    let upstream = Upstream::start(|_| ok("whole"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    for body in [
        "zz\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
    ] {
        let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let said = gateway.say(&format!("{head}{body}"));
        assert!(said.starts_with("HTTP/1.1 400 "), "{body:?}: {said}");
    }
    assert_eq!(upstream.asked().len(), 0, "none of them was whole");
}

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
