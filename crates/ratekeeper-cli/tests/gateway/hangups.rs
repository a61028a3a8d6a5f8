//! Clients that go away while the upstream works for them take neither permits nor places with them.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ratekeeper_testkit::http2::{
    END_HEADERS, END_STREAM, HEADERS, PREFACE, RST_STREAM, SETTINGS, block, frame,
};
use ratekeeper_testkit::process::eventually;

use crate::support::{Act, Answer, Gateway, RULES, Upstream, ok};

const LIMIT: usize = 3;

const PERMITS: &str = "
domain: api
descriptors:
  - key: path
    value: /slow
    concurrency: { limit: 3, timeout: 1h }
";

const PLACES: &str =
    "upstream_requests_max: 3\nupstream_queue_max: 0\nupstream_address_share: 100%\n";

/// The longest that an upstream may take: far longer than any of these tests.
const PATIENT: &str = "upstream_timeout: 1h\n";

/// The answer to everything.
const DONE: &str = r#"{"usage":{"prompt_tokens":100,"completion_tokens":400}}"#;

const SLOW: &str = "GET /slow HTTP/1.1\r\nHost: a\r\n\r\n";

/// An upstream whose work on `/slow` ends when the test says so, whether its client is there or not.
struct Worker {
    upstream: Upstream,
    /// Holds the number of requests whose work may end.
    gate: Arc<(Mutex<usize>, Condvar)>,
}

impl Worker {
    fn start() -> Self {
        let gate = Arc::new((Mutex::new(0_usize), Condvar::new()));
        let own = Arc::clone(&gate);
        let upstream = Upstream::start(move |asked| {
            if asked.head.contains(" /slow ") {
                let (may_end, changed) = &*own;
                let mut may_end = may_end.lock().expect("a lock");
                while *may_end == 0 {
                    may_end = changed.wait(may_end).expect("a lock");
                }
                *may_end -= 1;
            }
            ok(DONE)
        });
        Self { upstream, gate }
    }

    /// Lets the work on so many requests end.
    fn end(&self, requests: usize) {
        *self.gate.0.lock().expect("a lock") += requests;
        self.gate.1.notify_all();
    }

    fn gateway(&self, rules: &str, settings: &str) -> Gateway {
        let settings = format!("{PATIENT}{settings}");
        // One worker, and so one pool of connections.
        let args = ["--upstream", &self.upstream.url(), "--worker-threads", "1"];
        Gateway::start_with(rules, &settings, &args)
    }

    /// Waits until so many requests have come.
    fn has(&self, requests: usize) {
        eventually("the requests came", || {
            self.upstream.asked().len() == requests
        });
    }
}

fn tells_abandoned(gateway: &Gateway, count: usize) {
    let series = r#"ratelimit_gateway_upstream_abandoned{upstream="upstream"}"#;
    gateway.tells("/metrics", &format!("{series} {count}\n"));
}

fn tells_connections(gateway: &Gateway, count: usize) {
    let series = r#"ratelimit_gateway_upstream_connections{upstream="upstream"}"#;
    gateway.tells("/metrics", &format!("{series} {count}\n"));
}

/// Clients that go away as soon as the upstream has their requests.
fn come_and_go(worker: &Worker, gateway: &Gateway) {
    let before = worker.upstream.asked().len();
    let clients: Vec<_> = (0..LIMIT).map(|_| gateway.open(SLOW)).collect();
    worker.has(before + LIMIT);
    drop(clients);
}

/// The same over one HTTP/2 connection, which stays open, and whose streams are reset.
fn come_and_reset(worker: &Worker, gateway: &Gateway) -> TcpStream {
    let before = worker.upstream.asked().len();
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/slow"),
    ];
    let streams = (1_u32..).step_by(2).take(LIMIT);
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &[]));
    for id in streams.clone() {
        let flags = END_HEADERS | END_STREAM;
        bytes.extend(frame(HEADERS, flags, id, &block(&fields)));
    }
    let mut client = gateway.connect();
    client.write_all(&bytes).expect("it is read from");
    worker.has(before + LIMIT);
    for id in streams {
        let reset = frame(RST_STREAM, 0, id, &8_u32.to_be_bytes());
        client.write_all(&reset).expect("it is read from");
    }
    client
}

#[test]
fn a_permit_is_held_until_the_upstream_is_done_and_its_answer_is_thrown_away() {
    let worker = Worker::start();
    let gateway = worker.gateway(PERMITS, "");
    for is_reset in [false, true] {
        let _client = match is_reset {
            false => {
                come_and_go(&worker, &gateway);
                None
            }
            true => Some(come_and_reset(&worker, &gateway)),
        };
        tells_abandoned(&gateway, LIMIT);
        for _ in 0..10 {
            assert_eq!(gateway.get("/slow", &[]).status, 429);
        }
        worker.end(LIMIT);
        tells_abandoned(&gateway, 0);
    }
    worker.end(1);
    assert_eq!(gateway.get("/slow", &[]).body, DONE);
    // Their answers arrived: none of the connections was closed.
    assert!(
        worker
            .upstream
            .asked()
            .last()
            .is_some_and(|it| it.before > 0)
    );
}

#[test]
fn a_place_is_kept_for_as_long_as_answers_took_lately() {
    let worker = Worker::start();
    let gateway = worker.gateway(RULES, PLACES);
    // The route learns how long its answers take.
    let first = gateway.open(&SLOW.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    worker.has(1);
    std::thread::sleep(Duration::from_secs(4));
    worker.end(1);
    assert!(whole(first).body.contains(DONE));
    come_and_go(&worker, &gateway);
    tells_abandoned(&gateway, LIMIT);
    let refused = gateway.get("/", &[]);
    assert_eq!(refused.status, 503, "{refused:?}");
    // The upstream was told at once, and goes on all the same: that is not seen.
    tells_connections(&gateway, 0);
    eventually("it is thought to be done", || {
        gateway.get("/", &[]).status == 200
    });
    worker.end(LIMIT);
}

#[test]
fn a_route_says_what_becomes_of_requests_without_a_client() {
    let finish = "routes: [ { upstream: upstream, on_client_gone: finish } ]\n";
    let worker = Worker::start();
    let gateway = worker.gateway(RULES, &format!("{PLACES}{finish}"));
    come_and_go(&worker, &gateway);
    tells_abandoned(&gateway, LIMIT);
    tells_connections(&gateway, LIMIT);
    assert_eq!(gateway.get("/", &[]).status, 503);
    worker.end(LIMIT);
    eventually("they are done", || gateway.get("/", &[]).status == 200);

    let worker = Worker::start();
    let gateway = worker.gateway(PERMITS, &finish.replace("finish", "cancel"));
    // Answers of the route begin at once.
    assert_eq!(gateway.get("/", &[]).status, 200);
    come_and_go(&worker, &gateway);
    tells_abandoned(&gateway, 0);
    tells_connections(&gateway, 0);
    worker.end(LIMIT + 1);
    eventually("its permits are free", || {
        gateway.get("/slow", &[]).status == 200
    });
}

#[test]
fn little_is_read_of_an_answer_that_no_client_waits_for() {
    const ONE_EACH: &str = "
domain: api
descriptors:
  - key: path
    concurrency: { limit: 1, timeout: 1h }
";
    let upstream = Upstream::start(|asked| match asked.head.starts_with("GET /long") {
        true => Act::Pour(32 << 20),
        false => Act::Pour(512 << 10),
    });
    // One worker, and so one pool of connections.
    let args = ["--upstream", &upstream.url(), "--worker-threads", "1"];
    let gateway = Gateway::start_with(ONE_EACH, PATIENT, &args);
    // The connections that come after one whose client took nothing: the same if the rest was read, or another.
    for (path, same) in [("/short", true), ("/long", false)] {
        let before = upstream.asked().len();
        let client = stall(&gateway, path);
        eventually("it is asked", || upstream.asked().len() > before);
        assert_eq!(gateway.get(path, &[]).status, 429);
        drop(client);
        eventually("its permit is free", || {
            gateway.get(path, &[]).status == 200
        });
        let asked = upstream.asked();
        let [first, next] = &asked[before..] else {
            panic!("two requests came");
        };
        assert_eq!(next.before == first.before + 1, same, "{path}");
    }
}

/// A client that takes one byte of its answer.
fn stall(gateway: &Gateway, path: &str) -> TcpStream {
    const INITIAL_WINDOW_SIZE: [u8; 6] = [0, 4, 0, 0, 0, 1];
    let mut bytes = PREFACE.to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &INITIAL_WINDOW_SIZE));
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", path),
    ];
    let flags = END_HEADERS | END_STREAM;
    bytes.extend(frame(HEADERS, flags, 1, &block(&fields)));
    let mut client = gateway.connect();
    client.write_all(&bytes).expect("it is read from");
    client
}

#[test]
fn an_event_stream_ends_with_its_client() {
    const EVENTS: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n";
    let upstream = Upstream::start(|_| Act::Echo(EVENTS.to_owned()));
    let settings =
        format!("{PATIENT}routes: [ {{ upstream: upstream, on_client_gone: finish }} ]\n");
    let gateway = Gateway::start_with(RULES, &settings, &["--upstream", &upstream.url()]);
    let client = gateway.open("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    gateway.tells(
        "/metrics",
        r#"requests_total{upstream="upstream",status="2xx"} 1"#,
    );
    drop(client);
    tells_connections(&gateway, 0);
    tells_abandoned(&gateway, 0);
}

#[test]
fn a_gateway_that_stops_waits_for_work_that_goes_on() {
    let worker = Arc::new(Worker::start());
    let mut gateway = worker.gateway(PERMITS, "");
    come_and_go(&worker, &gateway);
    tells_abandoned(&gateway, LIMIT);
    let (later, address) = (Arc::clone(&worker), (Ipv4Addr::LOCALHOST, gateway.port));
    let ends = std::thread::spawn(move || {
        // It accepts no connection any more.
        eventually("it stops", || TcpStream::connect(address).is_err());
        later.end(LIMIT);
    });
    assert!(gateway.process.terminate().success());
    assert!(ends.is_finished(), "it did not wait");
    let output = gateway.process.output();
    assert!(!output.contains("cutting off"), "{output}");
}

/// All that is still to come.
fn whole(mut stream: TcpStream) -> Answer {
    let mut answer = String::new();
    let _ = std::io::Read::read_to_string(&mut stream, &mut answer);
    Answer::read(&answer)
}

/// The model worked for nobody, and its answer says how much that costs.
#[test]
fn a_finished_request_pays_for_what_its_answer_tells() {
    let budgets = "
usage: tokens
descriptors:
  - key: path
    value: /slow
    rate_limit: { window: 1h, limit: 1000, post_paid: true }
";
    let worker = Worker::start();
    let rules = format!("domain: api{budgets}    concurrency: {{ limit: 3, timeout: 1h }}\n");
    let gateway = worker.gateway(&rules, "");
    let post = SLOW
        .replace("GET", "POST")
        .replace("Host: a", "Host: a\r\nContent-Length: 0");
    let client = gateway.open(&post);
    worker.has(1);
    drop(client);
    tells_abandoned(&gateway, 1);
    worker.end(1);
    gateway.tells(
        "/metrics",
        "ratelimit_usage_hits_total{from=\"response\"} 500\n",
    );
    tells_abandoned(&gateway, 0);
}
