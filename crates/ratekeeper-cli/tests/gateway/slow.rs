//! Peers that take nothing of what they asked for, send next to nothing, or come in numbers.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use ratekeeper_testkit::http2::{
    END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, block, frame,
};
use ratekeeper_testkit::process::eventually;

use crate::support::{Act, Answer, Gateway, Upstream, ok};

/// More than the buffers of both systems take.
const LONG: usize = 16 << 20;

/// Three seconds without progress end a request, and whoever is above the rate goes on: a busy machine keeps no one from
/// that for so long.
const IMPATIENT: &str = "stall_timeout: 3s\nmin_rate: 256KiB\n";

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn in_front_of(upstream: &Upstream, settings: &str) -> Gateway {
    let rules = crate::support::RULES;
    Gateway::start_with(rules, settings, &["--upstream", &upstream.url()])
}

/// The connections to the upstream that are open.
fn upstream_connections(gateway: &Gateway) -> usize {
    let told = gateway.told("/metrics");
    let name = "ratelimit_gateway_upstream_connections{upstream=\"upstream\"} ";
    let line = told.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|count| count.trim().parse().ok())
        .expect("it is told")
}

/// Returns true if the other side has closed the connection, whatever is still to be read.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it can be set");
    let mut piece = [0; 64 << 10];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => return true,
        }
    }
}

#[test]
fn a_client_that_stalls_costs_little_memory() {
    const CLIENTS: usize = 100;
    let upstream = Upstream::start(|_| Act::Pour(LONG));
    let gateway = in_front_of(&upstream, "");
    assert_eq!(gateway.get("/", &["Range: none"]).body.len(), LONG);
    let before = gateway.rss_kib();
    let stalled: Vec<_> = (0..CLIENTS).map(|_| gateway.open(GET)).collect();
    eventually("all are answered", || upstream.asked().len() > CLIENTS);
    // What is read from the upstream comes to a stop once every buffer is full.
    let mut last = 0;
    eventually("nothing moves any more", || {
        std::thread::sleep(Duration::from_millis(500));
        let rss = gateway.rss_kib();
        rss <= std::mem::replace(&mut last, rss)
    });
    let each = gateway.rss_kib().saturating_sub(before) / CLIENTS;
    assert!(each <= 200, "{each} KiB each");
    drop(stalled);
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_and_one_that_is_slow_is_not() {
    let upstream = Upstream::start(|_| Act::Pour(LONG));
    let gateway = in_front_of(&upstream, IMPATIENT);
    let mut stalled = gateway.open(GET);
    let mut slow = gateway.open(GET);
    let (mut taken, mut piece) = (0, vec![0; 256 << 10]);
    // About 2 MiB a second, for much longer than a client may stall.
    while taken < LONG {
        let read = slow.read(&mut piece).expect("it goes on");
        assert_ne!(read, 0, "cut off after {taken} bytes");
        taken += read;
        std::thread::sleep(Duration::from_millis(read as u64 / 2048));
    }
    eventually("only what may be kept is open", || {
        upstream_connections(&gateway) <= 1
    });
    eventually("the client is told", || is_closed(&mut stalled));
}

/// A client that opens streams with windows of one byte, and answers PINGs.
fn stalling_streams(gateway: &Gateway, streams: u32) -> TcpStream {
    const INITIAL_WINDOW_SIZE: [u8; 6] = [0, 4, 0, 0, 0, 1];
    let mut stream = gateway.connect();
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &INITIAL_WINDOW_SIZE));
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    for number in 0..streams {
        let id = 2 * number + 1;
        bytes.extend(frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            id,
            &block(&fields),
        ));
    }
    stream.write_all(&bytes).expect("it is read from");
    stream
}

#[test]
fn streams_that_stall_end_and_their_connection_does_not() {
    const STREAMS: u32 = 20;
    let upstream = Upstream::start(|_| Act::Pour(LONG));
    let gateway = in_front_of(&upstream, IMPATIENT);
    let mut client = stalling_streams(&gateway, STREAMS);
    let mut resets = 0;
    while resets < STREAMS {
        let mut head = [0; 9];
        client
            .read_exact(&mut head)
            .expect("the connection stays open");
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut payload = vec![0; length];
        client.read_exact(&mut payload).expect("frames are whole");
        match head[3] {
            RST_STREAM => resets += 1,
            PING if head[4] == 0 => {
                let answer = frame(PING, 1, 0, &payload);
                client.write_all(&answer).expect("it is read from");
            }
            _ => {}
        }
    }
    eventually("no connection is held", || {
        upstream_connections(&gateway) == 0
    });
}

#[test]
fn what_a_stalling_client_holds_of_a_concurrency_limit_is_free_again() {
    const RULES: &str = "
domain: api
descriptors:
  - key: method
    value: GET
    concurrency: { limit: 20, timeout: 4s }
";
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /short") {
        true => ok("short"),
        false => Act::Pour(LONG),
    });
    // Long enough to see that all of it is held, and longer than the rule's own timeout, which is long enough to renew
    // permits on a busy machine.
    let patient = "stall_timeout: 15s\nmin_rate: 256KiB\n";
    let gateway = Gateway::start_with(RULES, patient, &["--upstream", &upstream.url()]);
    let _client = stalling_streams(&gateway, 20);
    // Asked of the metrics: a request would hold a permit itself, and keep the twentieth stream out.
    eventually("all of it is held", || upstream_connections(&gateway) == 20);
    assert_eq!(gateway.get("/short", &[]).status, 429);
    eventually("it is free", || gateway.get("/short", &[]).status == 200);
}

#[test]
fn a_body_that_trickles_is_refused_and_one_that_is_slow_is_not() {
    let upstream = Upstream::start(|asked| ok(&asked.body.len().to_string()));
    let gateway = in_front_of(&upstream, "stall_timeout: 3s\nmin_rate: 1KiB\n");
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 20000\r\n\r\n";
    // A byte every 100 ms is progress, and no rate.
    let mut trickle = gateway.open(head);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) && trickle.write_all(b"x").is_ok() {
        if upstream.asked().is_empty() && is_answered(&mut trickle) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let answer = whole(trickle);
    assert_eq!(answer.status, 408, "{answer:?}");
    assert!(answer.body.contains("TIMEOUT"), "{answer:?}");

    let mut slow = gateway.open(head);
    for _ in 0..20 {
        slow.write_all(&[b'x'; 1000]).expect("it is read from");
        std::thread::sleep(Duration::from_millis(300));
    }
    let answer = whole(slow);
    assert_eq!((answer.status, answer.body.as_str()), (200, "20000"));
}

/// All that is still to come.
fn whole(mut stream: TcpStream) -> Answer {
    stream.set_nonblocking(false).expect("it can be set");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    Answer::read(&String::from_utf8_lossy(&answer))
}

fn is_answered(stream: &mut TcpStream) -> bool {
    stream.set_nonblocking(true).expect("it can be set");
    stream.peek(&mut [0]).is_ok_and(|length| length > 0)
}

#[test]
fn an_upstream_has_so_many_requests_and_so_many_wait() {
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /hang") {
        true => Act::Hang,
        false => ok("here"),
    });
    let settings =
        "upstream_requests_max: 2\nupstream_queue_max: 1\nupstream_connect_timeout: 1m\n";
    let gateway = in_front_of(&upstream, settings);
    let hang = "GET /hang HTTP/1.1\r\nHost: a\r\n\r\n";
    let held: Vec<_> = (0..2).map(|_| gateway.open(hang)).collect();
    eventually("both are under way", || upstream.asked().len() == 2);
    let ask = || gateway.open("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let mut both = vec![ask(), ask()];
    let mut refused = None;
    eventually("one of two finds no room", || {
        refused = both.iter_mut().position(is_answered);
        refused.is_some()
    });
    let refused = both.swap_remove(refused.expect("it was found"));
    let refused = whole(refused);
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.body.contains("UPSTREAM_FULL"), "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused:?}");
    drop(held);
    let waited = both.pop().expect("there were two");
    assert_eq!(whole(waited).body, "here");
}

#[test]
fn operators_are_answered_while_clients_take_every_file_descriptor() {
    let upstream = Upstream::start(|_| ok(""));
    let mut gateway = Gateway::with_few_files(&upstream.url(), 256);
    gateway.process.wait_for_output("file descriptors");
    let address = (Ipv4Addr::LOCALHOST, gateway.port).into();
    let patience = Duration::from_millis(200);
    // The system takes some that the gateway does not, and then none.
    let connections: Vec<_> = (0..400)
        .map_while(|_| TcpStream::connect_timeout(&address, patience).ok())
        .collect();
    assert!(connections.len() > 100, "{} connections", connections.len());
    for _ in 0..20 {
        let told = gateway.told("/metrics");
        assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    }
    drop(connections);
    eventually("clients are answered again", || {
        gateway.get("/", &[]).status == 200
    });
}
