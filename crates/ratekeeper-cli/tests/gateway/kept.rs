//! Bodies that are kept until they have told what limits go by: no client keeps others from being read.

use std::io::Write;
use std::net::TcpStream;

use ratekeeper_testkit::http1::ask;
use ratekeeper_testkit::process::eventually;

use crate::support::{Answer, Gateway, Upstream, ok};

const RULES: &str = "
domain: llm
descriptors: [ { key: model, rate_limit: { window: 10000d, limit: 1000000 } } ]
";

const BY_MODEL: &str = "
auth: { descriptors: [ [ { key: model, from: body:/model } ] ] }
";

/// The head of a body of that type that never ends.
fn endless(kind: &str, client: &str) -> String {
    format!(
        "POST / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\nContent-Type: {kind}\r\nContent-Length: 8000000\r\n\r\n"
    )
}

/// Returns true if anything came back, the end included.
fn is_answered(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it can be set");
    let peeked = stream.peek(&mut [0]);
    !peeked.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn one_client_has_half_of_the_room_for_bodies() {
    let upstream = Upstream::start(|_| ok("read"));
    let patient = format!("{BY_MODEL}stall_timeout: 10m\n");
    let gateway = Gateway::start_with(RULES, &patient, &["--upstream", &upstream.url()]);
    // Just less than may be kept of one body. Sixteen of them have room, and leave less for anybody than one needs.
    let part = format!(r#"{{"prompt":"{}"#, "x".repeat((4 << 20) - (64 << 10)));
    // All hosts of one IPv6 network are one client.
    let clients = (0..16).map(|host| {
        let head = endless("application/json", &format!("2001:db8:7::{host:x}"));
        let mut stream = gateway.open(&head);
        // It may be refused before it has sent all of it.
        let _ = stream.write_all(part.as_bytes());
        stream
    });
    let clients: Vec<_> = clients.collect();
    eventually("half of them are refused", || {
        clients.iter().filter(|it| is_answered(it)).count() >= 8
    });
    let lines = "X-Forwarded-For: 203.0.113.7\r\nContent-Type: application/json\r\n";
    let body = format!(r#"{part}","model":"small"}}"#);
    let answer = ask(gateway.port, "POST", "/", lines, body).expect("it answers in HTTP");
    assert_eq!((answer.status, &*answer.body), (200, "read"), "{answer:?}");
}

#[test]
fn a_stream_may_be_silent_only_once_it_has_told_what_limits_go_by() {
    let upstream = Upstream::start(|_| ok("read"));
    let settings = format!("{BY_MODEL}stall_timeout: 3s\n");
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    let begin = |body: &str| {
        let head = endless("application/connect+json", "203.0.113.7");
        gateway.open(&format!("{head}{body}"))
    };
    let told = begin(r#"{"model":"small""#);
    let mut silent = begin("{");
    let mut answer = String::new();
    let _ = std::io::Read::read_to_string(&mut silent, &mut answer);
    let answer = Answer::read(&answer);
    assert_eq!(answer.status, 408, "{answer:?}");
    assert!(!is_answered(&told), "it has been silent for longer");
}
