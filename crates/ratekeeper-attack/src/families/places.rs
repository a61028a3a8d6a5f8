//! Places: made-up keys that take the places of those who wait for a leaky bucket, and streams that take those of others at an
//! upstream.

use std::net::TcpStream;
use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http1::{Answer, connect, say};
use ratekeeper_testkit::http2::{END_HEADERS, END_STREAM, HEADERS, block, frame, opening};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::recorder::{Act, Recorder, ok};
use std::io::Write;

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{Setup, Target};

/// A turn comes every ten minutes, and one request waits for it.
const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    rate_limit: { window: 100m, limit: 10, burst: 2, algorithm: leaky_bucket }
";

const WAITING: &str = "wait_max: 1h\nwaiting_max: 160\n";

/// The places that one address may take.
const SHARE: u64 = 160 / 8;

/// Made-up keys of one address: more than there are places.
const KEYS: u64 = 200;

/// Honest clients that come then, each from an address of its own.
const HONEST: u64 = 40;

/// Places at the upstream, in the full form.
const PLACES: u32 = 1_024;

/// Streams on each connection: as many as the gateway allows.
const STREAMS: u32 = 100;

/// More than the buffers of both systems take.
const LONG: usize = 16 << 20;

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let upstream = Recorder::start(|_| ok(""));
    let gateway = Setup::gateway(program, &upstream.url()).start_with(RULES, WAITING);
    let mut row = Row::new("made-up keys that wait for leaky buckets");
    let mut waiting = Vec::new();
    for number in 0..KEYS {
        let fate = match take(&gateway, "198.51.100.9", &format!("made-up-{number}")) {
            Some(stream) => {
                waiting.push(stream);
                Fate::Harmless
            }
            None => Fate::Limited,
        };
        row.count(fate, format!("made-up-{number}"));
    }
    let taken = waiting.len() as u64;
    row.most("places of one address", taken, SHARE);
    row.bound(taken > 0, "no request waits");
    for number in 0..HONEST {
        let place = take(
            &gateway,
            &format!("203.0.113.{number}"),
            &format!("honest-{number}"),
        );
        let fate = match place {
            Some(stream) => {
                waiting.push(stream);
                Fate::Harmless
            }
            None => Fate::Passed,
        };
        row.count(fate, format!("honest client {number} found no place"));
    }
    row.measure(&gateway.process);
    Ok(vec![row, stalled_streams(program, plan)?])
}

/// Streams whose client takes a byte of what it asked for: of one address, on many connections.
fn stalled_streams(program: &Path, plan: &Plan) -> Result<Row> {
    let upstream = Recorder::start(|asked| match asked.head.starts_with("GET /long") {
        true => Act::Pour(LONG),
        false => ok("here"),
    });
    let places = PLACES / plan.divisor;
    let settings = format!("upstream_requests_max: {places}\nupstream_connect_timeout: 2s\n");
    let gateway = Setup::gateway(program, &upstream.url()).start_with("domain: api\n", &settings);
    let mut row = Row::new("stalled streams of one address at an upstream");
    let connections = (2 * places + places / 2) / STREAMS;
    let held: Vec<_> = (0..connections.max(1)).map(|_| stall(&gateway)).collect();
    let asked = || upstream.asked().len() as u32;
    eventually("it has its share", || asked() >= places / 2);
    for number in 0..HONEST {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 203.0.113.{number}\r\nConnection: close\r\n\r\n"
        );
        let answer = Answer::try_read(&say(gateway.port, request));
        let is_served = answer.is_some_and(|answer| answer.status == 200);
        row.count(
            Fate::Harmless.unless(!is_served),
            format!("honest client {number} found no place"),
        );
    }
    let taken = asked() - HONEST as u32;
    row.most("places of one address", taken, places / 2);
    row.measure(&gateway.process);
    drop(held);
    Ok(row)
}

/// A connection with many streams whose windows take one byte.
fn stall(gateway: &Target) -> TcpStream {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/long"),
        ("x-forwarded-for", "198.51.100.9"),
    ];
    let mut bytes = opening(Some(1));
    for number in 0..STREAMS {
        let flags = END_HEADERS | END_STREAM;
        bytes.extend(frame(HEADERS, flags, 2 * number + 1, &block(&fields)));
    }
    let mut stream = connect(gateway.port);
    // It may be refused: then it holds nothing.
    let _ = stream.write_all(&bytes);
    stream
}

/// Takes the turn of a key, and then a place behind it; None if there is no place.
fn take(gateway: &Target, address: &str, key: &str) -> Option<TcpStream> {
    let request = |connection: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {address}\r\nX-Api-Key: {key}\r\nConnection: {connection}\r\n\r\n"
        )
    };
    let first = Answer::try_read(&say(gateway.port, request("close")));
    if first.is_none_or(|first| first.status != 200) {
        return None;
    }
    let decided = |what: &str| {
        gateway.metric_or_zero(&format!("ratelimit_gateway_held_total{{what=\"{what}\"}} "))
    };
    let (waited, denied) = (decided("waited"), decided("denied"));
    let mut stream = connect(gateway.port);
    stream.write_all(request("keep-alive").as_bytes()).ok()?;
    let mut has_place = false;
    eventually("the request waits or is denied", || {
        has_place = decided("waited") > waited;
        has_place || decided("denied") > denied
    });
    has_place.then_some(stream)
}
