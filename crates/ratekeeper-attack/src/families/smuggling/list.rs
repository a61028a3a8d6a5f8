//! The requests: every way to say where a body ends, and every way to end a line.

/// Heads without their bodies' framing: what stands before, between and after it.
const LINES: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n Transfer-Encoding: chunked\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n",
    "GET / HTTP/1.1\r\n Host: a\r\nX: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\rX: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nX\0Y: 1\r\n\r\n",
    "GET / HTTP/1.1\r\nX: / HTTP/1.1\r\nHost : a\r\n\r\n",
    "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.2\r\nHost: a\r\n\r\n",
    "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "GET / http/1.1\r\nHost: a\r\n\r\n",
    "GET /\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\n\r\n",
    "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a, b\r\n\r\n",
    "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "\nGET / HTTP/1.1\nHost: a\n\n",
    "GET / HTTP/1.1\r\nHost: a\n\r\n",
    "GET / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n",
];

/// Lines that say how long a body is.
const LENGTHS: &[&str] = &[
    "Content-Length: 33",
    "Content-Length: 0",
    "Content-Length: 033",
    "Content-Length: +33",
    "Content-Length: -33",
    "Content-Length: 0x21",
    "Content-Length: 3 3",
    "Content-Length: 33.0",
    "Content-Length: 33e0",
    "Content-Length:",
    "Content-Length: \u{b}33",
    "Content-Length: 33\u{b}",
    "Content-Length: \"33\"",
    "Content-Length: 33;x",
    "Content-Length: 0, 33",
    "Content-Length: 33, 33",
    "Content-Length: 99999999999999999999",
    "Content-Length: 18446744073709551649",
    "Content-Length: 0\r\nContent-Length: 33",
    "Content-Length: 33\r\nContent-Length: 0",
    "Content-Length : 33",
    "Content-Length\t: 33",
    "Content_Length: 33",
    "Content-Length: 0\r\n 33",
    "X: 1\r\n Content-Length: 33",
    "\u{b}Content-Length: 33",
    "Content-Length: 0\r\nContent_Length: 33",
    "Connection: Content-Length\r\nContent-Length: 33",
    "X: 1\rContent-Length: 33",
    "X: 1\nContent-Length: 33",
];

/// Lines that say that a body comes in chunks.
const CODINGS: &[&str] = &[
    "Transfer-Encoding: chunked",
    "Transfer-Encoding: CHUNKED",
    "Transfer-Encoding:chunked",
    "Transfer-Encoding: chunked ",
    "Transfer-Encoding:\tchunked",
    "Transfer-Encoding: \u{b}chunked",
    "Transfer-Encoding: chunked\u{b}",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: 'chunked'",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: chunkedx",
    "Transfer-Encoding: chunked;x=y",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: ,chunked",
    "Transfer-Encoding: chunked,",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: \r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding\t: chunked",
    "Transfer-Encoding\u{b}: chunked",
    "Transfer_Encoding: chunked",
    "Transfer Encoding: chunked",
    "X: 1\r\n Transfer-Encoding: chunked",
    "X: 1\nTransfer-Encoding: chunked",
    "X: 1\rTransfer-Encoding: chunked",
    "TRANSFER-ENCODING: chunked",
    "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked",
    "TE: chunked",
];

/// Bodies in chunks, most of them broken.
const CHUNKS: &[&str] = &[
    "0\r\n\r\n",
    "zz\r\nhello\r\n0\r\n\r\n",
    "5\r\nhello!\r\n0\r\n\r\n",
    "5\r\nhell\r\n0\r\n\r\n",
    "-5\r\nhello\r\n0\r\n\r\n",
    "+5\r\nhello\r\n0\r\n\r\n",
    "0x5\r\nhello\r\n0\r\n\r\n",
    "5 \r\nhello\r\n0\r\n\r\n",
    " 5\r\nhello\r\n0\r\n\r\n",
    "5_0\r\nhello\r\n0\r\n\r\n",
    "fffffffffffffffff\r\n",
    "10000000000000005\r\nhello\r\n0\r\n\r\n",
    "5\nhello\r\n0\r\n\r\n",
    "5;a\nb\r\nhello\r\n0\r\n\r\n",
    "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
    "5\rhello\r\n0\r\n\r\n",
    "5\r\nhello\n0\r\n\r\n",
    "5\r\nhello\r\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\n\n",
    "5\r\nhello\r\n0\r\n\n",
    "5\r\nhello\r\n\r\n0\r\n\r\n",
    "5\r\nhello\r\n0\r\nContent-Length: 33\r\n\r\n",
    "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
    "5\r\nhello\r\n0\r\n x: folded\r\n\r\n",
    "5\r\nhello\r\n0;x\r\n\r\n",
    "5\r\nhello\r\n00\r\n\r\n",
    "5\r\nhello\r\n0\r\nGET /secret HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// All requests; what is to be smuggled comes behind them.
pub(super) fn requests() -> Vec<String> {
    let mut requests: Vec<String> = LINES.iter().map(|&head| head.to_owned()).collect();
    let head = |method: &str, version: &str, lines: &str| {
        format!("{method} / HTTP/{version}\r\nHost: a\r\n{lines}\r\n\r\n")
    };
    for method in ["POST", "GET"] {
        for lines in LENGTHS {
            requests.push(head(method, "1.1", lines));
        }
        for lines in CODINGS {
            // The body ends at once for who reads chunks, and behind what is smuggled for who goes by the length.
            requests.push(head(method, "1.1", lines) + "0\r\n\r\n");
            for both in [
                format!("{lines}\r\nContent-Length: 38"),
                format!("Content-Length: 5\r\n{lines}"),
            ] {
                requests.push(head(method, "1.1", &both) + "0\r\n\r\n");
            }
        }
    }
    for lines in [
        "Transfer-Encoding: chunked",
        "Content-Length: 33\r\nTransfer-Encoding: chunked",
    ] {
        requests.push(head("POST", "1.0", lines) + "0\r\n\r\n");
    }
    let chunked = head("POST", "1.1", "Transfer-Encoding: chunked");
    requests.extend(CHUNKS.iter().map(|body| format!("{chunked}{body}")));
    let long = "x".repeat(20_000);
    requests.push(format!("{chunked}5;{long}\r\nhello\r\n0\r\n\r\n"));
    requests
}
