use super::*;
use crate::listen::ServerBounds;
use crate::listen::drain::Drain;
use crate::listen::{Peer, PeerAddress, Protocol};

const BOTH: &str =
    "POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";

/// The number of the request that gives two lengths, when the bytes come in pieces of `size`.
fn found(bytes: &str, size: usize) -> Option<u32> {
    let peer = Peer::unnamed(PeerAddress::Unix, true);
    let drain = Arc::new(Drain::new());
    let bounds = ServerBounds::default();
    let line = Arc::new(Line::new(peer, Protocol::Either, bounds, drain, |_| false));
    let mut framing = Framing::new(Arc::clone(&line), 100);
    for piece in bytes.as_bytes().chunks(size) {
        framing.follow(piece);
    }
    line.framed_twice()
}

#[test]
fn a_head_with_both_is_found_behind_whatever_went_before() {
    for before in [
        "",
        "\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\nHost: a\n\n",
        "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\ncontent-length:\t4\r\nContent-Length: 4 \r\n\r\na\nb\n",
        "POST / HTTP/1.1\r\nContent-Length: 4\r\n\r\n\r\n\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: gzip , chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nTRANSFER-ENCODING: Chunked\r\n\r\n3\r\n\r\n\n\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: 1\r\nY: a\n\r\nZ: 2\r\n\r\n",
    ] {
        let expected = 1 + u32::from(before.contains("HTTP"));
        for size in [1, 2, 3, 7, 1_000] {
            let bytes = format!("{before}{BOTH}");
            assert_eq!(found(&bytes, size), Some(expected), "{before:?} by {size}");
            assert_eq!(found(before, size), None, "{before:?} by {size}");
        }
    }
}

#[test]
fn either_order_and_any_value_counts() {
    for lines in [
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nX: 1\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: x",
        "Content-Length: 5\r\nTransfer-Encoding: identity",
    ] {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n");
        assert_eq!(found(&head, 1_000), Some(1), "{lines}");
    }
}

#[test]
fn bodies_are_no_heads() {
    let length = BOTH.len();
    let body = format!("POST / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{BOTH}");
    let chunk = format!(
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\r\n{BOTH}\r\n0\r\n\r\n"
    );
    for size in [1, 5, 1_000] {
        assert_eq!(found(&body, size), None);
        assert_eq!(found(&chunk, size), None);
        assert_eq!(found(&format!("{body}{chunk}{BOTH}"), size), Some(3));
    }
}

/// hyper ends the connection there, so no request that follows is one.
#[test]
fn what_is_no_http1_is_not_followed() {
    for before in [
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\n\r\n",
        "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    ] {
        assert_eq!(found(&format!("{before}{BOTH}"), 1_000), None, "{before:?}");
    }
    let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n{BOTH}", "x".repeat(200));
    assert_eq!(found(&long, 10), None, "a line of more than 100 bytes");
}
