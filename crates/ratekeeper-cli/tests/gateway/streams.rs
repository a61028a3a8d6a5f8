//! Upstreams of HTTP/2 that end connections, refuse streams, or take few at once. They are written frame by frame: no
//! server does so at the moment that a test is about.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use ratekeeper_testkit::http2::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, RST_STREAM, SETTINGS, block,
    frame, read_flagged,
};

use crate::support::{Answer, Gateway};

const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;

/// One worker, which has all connections.
const ONE_WORKER: &[&str] = &["--worker-threads", "1"];

/// A connection of the gateway, as its upstream sees it.
struct Peer {
    stream: TcpStream,
    streams: u32,
}

impl Peer {
    fn begin(mut stream: TcpStream, streams_max: Option<u32>) -> Option<Peer> {
        const MAX_CONCURRENT_STREAMS: [u8; 2] = [0, 3];
        let settings =
            streams_max.map(|max| [&MAX_CONCURRENT_STREAMS[..], &max.to_be_bytes()].concat());
        let settings = settings.unwrap_or_default();
        stream.read_exact(&mut [0; PREFACE.len()]).ok()?;
        stream.write_all(&frame(SETTINGS, 0, 0, &settings)).ok()?;
        Some(Peer { stream, streams: 0 })
    }

    /// The stream of the next request, all of which has arrived, and the length of its body; None at the end of the
    /// connection. Requests with bodies come one at a time.
    fn request(&mut self) -> Option<(u32, usize)> {
        let mut length = 0;
        loop {
            let (kind, flags, payload) = read_flagged(&mut self.stream)?;
            match kind {
                SETTINGS if flags & ACK == 0 => self.say(SETTINGS, ACK, 0, &[]),
                HEADERS => self.streams += 1,
                DATA => length += payload.len(),
                _ => continue,
            }
            if [HEADERS, DATA].contains(&kind) && flags & END_STREAM != 0 {
                return Some((2 * self.streams - 1, length));
            }
        }
    }

    fn say(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        // The gateway may have closed it.
        let _ = self.stream.write_all(&frame(kind, flags, stream, payload));
    }

    fn answer(&mut self, stream: u32) {
        let head = block(&[(":status", "200")]);
        self.say(HEADERS, END_HEADERS | END_STREAM, stream, &head);
    }

    fn reset(&mut self, stream: u32, code: u32) {
        self.say(RST_STREAM, 0, stream, &code.to_be_bytes());
    }

    /// Says that no request behind `last` will be looked at.
    fn go_away(&mut self, last: u32) {
        let payload = [last.to_be_bytes(), NO_ERROR.to_be_bytes()].concat();
        self.say(GOAWAY, 0, 0, &payload);
    }
}

/// Has `serve` serve each connection with its number, the first of which is 0. The upstream's URL.
fn upstream(
    streams_max: Option<u32>,
    serve: impl Fn(usize, Peer) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let serve = Arc::clone(&serve);
            thread::spawn(move || {
                let peer = stream.ok().and_then(|it| Peer::begin(it, streams_max));
                if let Some(peer) = peer {
                    serve(number, peer);
                }
            });
        }
    });
    format!("h2c://127.0.0.1:{port}")
}

fn answer_all(mut peer: Peer) {
    while let Some((stream, _)) = peer.request() {
        peer.answer(stream);
    }
}

/// The answer to a request with a body of that many bytes.
fn ask(gateway: &Gateway, method: &str, length: usize) -> Answer {
    let body = "x".repeat(length);
    let request = format!(
        "{method} / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    Answer::read(&gateway.say(&request))
}

/// The statuses of two such requests that are under way at once.
fn ask_twice_at_once(gateway: &Gateway, method: &str, length: usize) -> [u16; 2] {
    thread::scope(|scope| {
        let other = scope.spawn(|| ask(gateway, method, length).status);
        let one = ask(gateway, method, length).status;
        [one, other.join().expect("it is answered")]
    })
}

#[test]
fn what_comes_behind_the_end_of_a_connection_goes_to_the_next_one() {
    for (method, length) in [("GET", 0), ("POST", 0), ("POST", 10_000)] {
        let url = upstream(None, |number, mut peer| {
            if number > 0 {
                return answer_all(peer);
            }
            let both = [peer.request(), peer.request()];
            peer.go_away(1);
            peer.answer(1);
            assert!(both.iter().all(Option::is_some), "two at once");
            while peer.request().is_some() {}
        });
        let gateway = Gateway::start(&url, ONE_WORKER);
        let statuses = ask_twice_at_once(&gateway, method, length);
        assert_eq!(statuses, [200, 200], "{method} with {length} bytes");
        gateway.tells(
            "/metrics",
            "ratelimit_gateway_upstream_retries_total{upstream=\"upstream\"} 1\n",
        );
    }
}

/// An upstream that resets the first request with `code` and answers the others, and the lengths of all their bodies.
fn resets_the_first(code: u32) -> (String, Arc<Mutex<Vec<usize>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&asked);
    let url = upstream(None, move |_, mut peer| {
        while let Some((stream, length)) = peer.request() {
            let mut all = all.lock().expect("no thread panicked");
            all.push(length);
            match all.len() {
                1 => peer.reset(stream, code),
                _ => peer.answer(stream),
            }
        }
    });
    (url, asked)
}

#[test]
fn only_a_stream_that_was_refused_is_sent_again() {
    const LONG: usize = 30_000;
    for (code, method, length, status, sent) in [
        (REFUSED_STREAM, "GET", 0, 200, 2),
        (REFUSED_STREAM, "POST", 0, 200, 2),
        (REFUSED_STREAM, "POST", LONG, 200, 2),
        (INTERNAL_ERROR, "POST", 0, 502, 1),
        (INTERNAL_ERROR, "POST", LONG, 502, 1),
    ] {
        let (url, asked) = resets_the_first(code);
        let gateway = Gateway::start(&url, ONE_WORKER);
        let answer = ask(&gateway, method, length);
        let asked = asked.lock().expect("no thread panicked").clone();
        let case = format!("{code} to a {method} with {length} bytes: {answer:?}");
        assert_eq!(
            (answer.status, asked),
            (status, vec![length; sent]),
            "{case}"
        );
    }
}

#[test]
fn an_upstream_that_refuses_everything_is_asked_a_few_times() {
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let url = upstream(None, move |_, mut peer| {
        while let Some((stream, _)) = peer.request() {
            *count.lock().expect("no thread panicked") += 1;
            peer.reset(stream, REFUSED_STREAM);
        }
    });
    let gateway = Gateway::start(&url, ONE_WORKER);
    let answer = ask(&gateway, "POST", 0);
    assert_eq!(answer.status, 502, "{answer:?}");
    assert!(answer.body.contains("UPSTREAM_BROKE_OFF"), "{answer:?}");
    assert_eq!(*asked.lock().expect("no thread panicked"), 3);
}

/// Neither request is answered before both have arrived.
#[test]
fn a_request_beyond_what_a_connection_takes_at_once_has_another() {
    let both = Barrier::new(2);
    let url = upstream(Some(1), move |_, mut peer| {
        while let Some((stream, _)) = peer.request() {
            both.wait();
            peer.answer(stream);
        }
    });
    let timeout = ["--upstream-timeout", "5s"];
    let gateway = Gateway::start(&url, &[ONE_WORKER, &timeout].concat());
    for round in ["new connections", "kept ones"] {
        let statuses = ask_twice_at_once(&gateway, "POST", 0);
        assert_eq!(statuses, [200, 200], "{round}");
    }
}
