//! Upstreams that are not there, say nothing, or go in the middle.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener};

use crate::support::{Act, Answer, Gateway, Upstream, deaf_port, ok};
use ratekeeper_testkit::process::eventually;

#[test]
fn an_upstream_that_is_not_there_is_named() {
    let (_taken, port) = deaf_port();
    let gateway = Gateway::start(&format!("http://127.0.0.1:{port}"), &[]);
    let answer = gateway.get("/", &[]);
    assert_eq!(answer.status, 502);
    assert!(
        answer.body.contains(r#""code":"UPSTREAM_UNREACHABLE""#),
        "{answer:?}"
    );
    assert!(
        answer.body.contains(r#""upstream":"upstream""#),
        "{answer:?}"
    );
    let grpc = gateway.get("/", &["Content-Type: application/grpc"]);
    assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("14")));
}

#[test]
fn an_upstream_that_says_nothing_in_time_is_a_504() {
    let upstream = Upstream::start(|_| Act::Hang);
    let gateway = Gateway::start(&upstream.url(), &["--upstream-timeout", "50ms"]);
    let answer = gateway.get("/", &[]);
    assert_eq!(answer.status, 504);
    assert!(answer.body.contains("UPSTREAM_TIMEOUT"), "{answer:?}");
}

#[test]
fn what_is_no_http_is_a_502() {
    let upstream = Upstream::start(|_| Act::Say("SSH-2.0-OpenSSH\r\n\r\n".to_owned()));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let answer = gateway.get("/", &[]);
    assert_eq!(answer.status, 502);
    assert!(answer.body.contains("UPSTREAM_BROKE_OFF"), "{answer:?}");
}

/// A kept connection that the upstream closes as the next request arrives: that is no fault of whoever asks, where
/// asking twice does no harm.
#[test]
fn only_what_may_be_sent_twice_is() {
    let upstream = Upstream::start(|asked| match asked.before {
        0 => ok("first"),
        _ => Act::Close,
    });
    let gateway = Gateway::start(&upstream.url(), &["--worker-threads", "1"]);
    eventually("a GET on a kept connection was closed on", || {
        assert_eq!(gateway.get("/", &[]).body, "first");
        upstream.asked().iter().any(|asked| asked.before == 1)
    });
    eventually("a POST on a kept connection was closed on", || {
        let before = upstream.asked().len();
        let post = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let answer = Answer::read(&gateway.say(post));
        let asked = &upstream.asked()[before..];
        assert_eq!(asked.len(), 1, "it may have been carried out: {asked:?}");
        let was_closed_on = asked[0].before == 1;
        assert_eq!(answer.status, if was_closed_on { 502 } else { 200 });
        was_closed_on
    });
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET") {
        true => Act::Say(
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nhalf".to_owned(),
        ),
        false => Act::Close,
    });
    let gateway = Gateway::start(&upstream.url(), &[]);
    let answer = gateway.get("/", &[]);
    assert_eq!(answer.header("content-length"), Some("10"), "{answer:?}");
    assert!(answer.body.len() < 10, "{answer:?}");
}

/// Bytes after an answer are not taken for another one, and an answer with two lengths is forwarded with one.
#[test]
fn an_answer_ends_where_it_was_read_to_end() {
    let upstream = Upstream::start(|asked| {
        let text = match asked.head.starts_with("GET /twice ") {
            true => "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
            false => {
                "Content-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
            }
        };
        Act::Say(format!("HTTP/1.1 200 OK\r\n{text}"))
    });
    let gateway = Gateway::start(&upstream.url(), &["--worker-threads", "1"]);
    for _ in 0..5 {
        let asked = "GET /twice HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let said = gateway.say(asked);
        assert!(said.ends_with("2\r\nhi\r\n0\r\n\r\n"), "{said}");
        assert_eq!(Answer::read(&said).header("content-length"), None, "{said}");
        assert_eq!(gateway.get("/behind", &[]).body, "hi");
    }
}

/// The upstream resets a connection that it has not read to the end, while the gateway is still sending.
#[test]
fn an_early_answer_arrives_though_the_upstream_closes() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    // Ends with the process.
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(
                b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge",
            );
        }
    });
    let gateway = Gateway::start(&url, &[]);
    let body = "x".repeat(1 << 20);
    for _ in 0..20 {
        let ask =
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 1048576\r\n\r\n";
        let mut stream = gateway.open(ask);
        // It may be closed before all of it is taken.
        let _ = stream.write_all(body.as_bytes());
        let mut told = Vec::new();
        let _ = stream.read_to_end(&mut told);
        let answer = Answer::read(&String::from_utf8_lossy(&told));
        assert_eq!((answer.status, &*answer.body), (413, "large"));
    }
}

#[test]
fn addresses_take_turns_and_dead_ones_are_passed_over() {
    let (one, two) = (
        Upstream::start(|_| ok("one")),
        Upstream::start(|_| ok("two")),
    );
    let (_taken, dead) = deaf_port();
    let settings = format!(
        "upstreams:\n  app: [ '{}', 'http://127.0.0.1:{dead}', '{}' ]\n",
        one.url(),
        two.url()
    );
    let gateway = Gateway::start_with(crate::support::RULES, &settings, &["--worker-threads", "1"]);
    for _ in 0..12 {
        assert_eq!(gateway.get("/", &[]).status, 200);
    }
    assert!(one.asked().len() >= 3 && two.asked().len() >= 3);
    gateway.tells("/readyz", &format!("127.0.0.1:{dead}"));
}
