//! The parts of requests and answers that are forwarded, and those that are not.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::support::{Act, Answer, Gateway, Upstream, header, ok};
use ratekeeper_testkit::process::eventually;

#[test]
fn heads_arrive_without_what_was_for_the_gateway_alone() {
    let upstream = Upstream::start(|_| {
        Act::Say("HTTP/1.1 201 Created\r\nX-Kept: 1\r\nConnection: X-Dropped\r\nX-Dropped: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nhi".to_owned())
    });
    let gateway = Gateway::start(&upstream.url(), &["--trusted-proxies", ""]);
    let answer = gateway.get(
        "/a?b=c",
        &[
            "Connection: close, X-Secret",
            "X-Secret: 1",
            "X-Forwarded-For: 1.2.3.4",
            "Forwarded: for=1.2.3.4",
            "Accept: */*",
        ],
    );
    assert_eq!((answer.status, answer.body.as_str()), (201, "hi"));
    assert_eq!(answer.header("x-kept"), Some("1"));
    assert_eq!(
        (answer.header("x-dropped"), answer.header("keep-alive")),
        (None, None)
    );
    let asked = &upstream.asked()[0];
    assert!(
        asked.head.starts_with("GET /a?b=c HTTP/1.1\r\n"),
        "{}",
        asked.head
    );
    assert_eq!(asked.header("host"), Some("localhost"));
    assert_eq!(asked.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(asked.header("x-forwarded-proto"), Some("http"));
    assert_eq!(asked.header("x-forwarded-host"), Some("localhost"));
    assert_eq!(asked.header("accept"), Some("*/*"));
    for gone in ["x-secret", "forwarded", "connection"] {
        assert_eq!(asked.header(gone), None, "{}", asked.head);
    }
}

#[test]
fn a_trusted_proxys_word_is_passed_on_and_added_to() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &[]);
    gateway.get(
        "/",
        &["X-Forwarded-For: 198.51.100.7", "X-Forwarded-Proto: https"],
    );
    let asked = &upstream.asked()[0];
    assert_eq!(
        asked.header("x-forwarded-for"),
        Some("198.51.100.7, 127.0.0.1")
    );
    assert_eq!(asked.header("x-forwarded-proto"), Some("https"));
}

#[test]
fn connections_to_the_upstream_are_kept() {
    let upstream = Upstream::start(|_| ok(""));
    let gateway = Gateway::start(&upstream.url(), &["--worker-threads", "1"]);
    eventually("one connection carries its fifth request", || {
        assert_eq!(gateway.get("/", &[]).status, 200);
        upstream.asked().iter().any(|asked| asked.before == 4)
    });
}

#[test]
fn bodies_stream_both_ways_before_they_end() {
    let upstream = echo("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    let gateway = Gateway::start(&format!("http://127.0.0.1:{upstream}"), &[]);
    let mut stream = gateway.connect();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("it reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 200 OK"));
    for chunk in ["3\r\none\r\n", "5\r\nthree\r\n", "0\r\n\r\n"] {
        stream.write_all(chunk.as_bytes()).expect("it reads");
        let mut back = vec![0; chunk.len()];
        stream
            .read_exact(&mut back)
            .expect("a chunk comes back before the next is sent");
        assert_eq!(String::from_utf8_lossy(&back), chunk);
    }
}

/// Answers one request with `head` before its body arrives, then echoes what it is sent. Returns its port.
fn echo(head: &'static str) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept()?;
        read_head(&mut stream);
        stream.write_all(head.as_bytes())?;
        std::io::copy(&mut stream.try_clone()?, &mut stream)
    });
    port
}

fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("a head comes");
        head.push(byte[0]);
    }
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn a_chunked_upload_arrives_whole_whatever_its_method() {
    let upstream = Upstream::start(|asked| ok(&String::from_utf8_lossy(&asked.body)));
    let gateway = Gateway::start(&upstream.url(), &[]);
    for method in ["POST", "GET", "DELETE", "OPTIONS"] {
        let said = gateway.say(&format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
        ));
        let answer = Answer::read(&said);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "hello world"),
            "{method}"
        );
    }
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::start(|asked| {
        let sum = header(&asked.trailers, "x-sum").unwrap_or("none");
        Act::Say(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: {sum} too\r\n\r\n"
        ))
    });
    let gateway = Gateway::start(&upstream.url(), &[]);
    let said = gateway.say(
        "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close, TE\r\nTE: trailers\r\nTrailer: X-Sum\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    assert!(
        said.to_ascii_lowercase()
            .ends_with("0\r\nx-sum: 7 too\r\n\r\n"),
        "{said}"
    );
}

#[test]
fn an_upgraded_connection_carries_bytes_both_ways() {
    let upstream = Upstream::start(|asked| {
        assert_eq!(asked.header("upgrade"), Some("websocket"), "{}", asked.head);
        assert_eq!(
            asked.header("sec-websocket-key"),
            Some("dGhlIHNhbXBsZSBub25jZQ==")
        );
        Act::Echo(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
                .to_owned(),
        )
    });
    let gateway = Gateway::start(&upstream.url(), &[]);
    let mut stream = gateway.connect();
    let ask = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
               Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("it reads");
    let head = read_head(&mut stream);
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    for word in ["one", "two"] {
        stream.write_all(word.as_bytes()).expect("it carries");
        let mut back = [0; 3];
        stream.read_exact(&mut back).expect("it comes back");
        assert_eq!(&back, word.as_bytes());
    }
}

const ONE_AT_A_TIME: &str = "
domain: api
descriptors:
  - key: api_key
    concurrency: { limit: 1, timeout: 1h }
";

/// The permit is free at once, not only after the upstream has timed out.
#[test]
fn a_client_that_goes_where_it_is_cancelled_gives_its_permit_back() {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /slow ") {
        true => Act::Hang,
        false => ok(""),
    });
    let args = ["--upstream", &upstream.url(), "--upstream-timeout", "1h"];
    let cancel = "routes: [ { upstream: upstream, on_client_gone: cancel } ]\n";
    let gateway = Gateway::start_with(ONE_AT_A_TIME, cancel, &args);
    let stream = gateway.open("GET /slow HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\n\r\n");
    eventually("the request is at the upstream", || {
        !upstream.asked().is_empty()
    });
    let status = || gateway.get("/", &["X-Api-Key: k"]).status;
    assert_eq!(status(), 429);
    drop(stream);
    eventually("its permit is given back", || status() == 200);
}

/// The request is in flight for as long as the connection is open, not only until the upgrade.
#[test]
fn an_upgraded_connection_keeps_its_permit() {
    let upstream = Upstream::start(|asked| match asked.header("upgrade") {
        Some(_) => Act::Echo(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
                .to_owned(),
        ),
        None => ok(""),
    });
    let gateway = Gateway::start_with(ONE_AT_A_TIME, "", &["--upstream", &upstream.url()]);
    let mut stream = gateway.connect();
    let ask = "GET /chat HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    stream.write_all(ask.as_bytes()).expect("it reads");
    assert!(read_head(&mut stream).starts_with("HTTP/1.1 101 "));
    stream.write_all(b"one").expect("it carries");
    stream.read_exact(&mut [0; 3]).expect("it comes back");
    let status = || gateway.get("/", &["X-Api-Key: k"]).status;
    assert_eq!(status(), 429);
    drop(stream);
    eventually("its permit is given back", || status() == 200);
}

#[test]
fn http2_in_the_clear_is_not_upgraded_to() {
    let upstream = Upstream::start(|_| ok("plain"));
    let gateway = Gateway::start(&upstream.url(), &[]);
    let lines = [
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA",
    ];
    assert_eq!(gateway.get("/", &lines).body, "plain");
    let asked = &upstream.asked()[0];
    assert_eq!(
        (asked.header("upgrade"), asked.header("http2-settings")),
        (None, None)
    );
}
