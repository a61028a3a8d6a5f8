//! Bytes that are no text, and messages that are large or broken, sent over each protocol as a proxy would forward them.
//!
//! An attempt is the same request many times. It passes if more get through than the limit has, counting every answer
//! that lets a proxy forward the request: a permission, and over gRPC an error too.

use std::collections::HashSet;
use std::io::Write;
use std::path::Path;

use anyhow::Result;
use ratekeeper_testkit::http1::{Answer, ask, connect, say};
use ratekeeper_testkit::http2::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    block, frame, opening, read_flagged,
};

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{JSON, Setup, Target};

const LIMIT: usize = 3;
const TRIES: usize = 8;

const RULES: &str = "
domain: api
descriptors:
  - key: user
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
  - key: api_key
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
";

pub(crate) fn attack(program: &Path, _plan: &Plan) -> Result<Vec<Row>> {
    let service = Setup::serve(program).for_all_hosts().start_with(RULES, "");
    let grpc = service.grpc;
    Ok(vec![rls(&service, grpc), posted(&service), auth(&service)])
}

/// Values that are no text, or long.
fn values() -> Vec<Vec<u8>> {
    let mut values: Vec<Vec<u8>> = [
        &b"\xff"[..],
        b"\xfe",
        b"ada\xff",
        b"\xffada",
        b"\xc3",
        b"\xc0\xaf",
        b"\xed\xa0\x80",
        b"\xf0\x9f\xa6",
        b"\xf4\x90\x80\x80",
        b"\xef\xb7\x90ff",
        b"\xef\xb7\x90",
    ]
    .map(<[u8]>::to_vec)
    .into();
    values.extend([34_000, 65_536, 65_537, 200_000].map(|length| vec![b'k'; length]));
    values.push(vec![0xff; 60_000]);
    values
}

fn named(value: &[u8]) -> String {
    let start = &value[..value.len().min(12)];
    format!(
        "{} bytes, {:?}",
        value.len(),
        String::from_utf8_lossy(start)
    )
}

/// A field of a message that has a length: number, length, bytes.
fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    loop {
        let digit = u8::try_from(length & 0x7f).unwrap_or_default();
        length >>= 7;
        match length {
            0 => out.push(digit),
            _ => out.push(digit | 0x80),
        }
        if length == 0 {
            break;
        }
    }
    out.extend(bytes);
    out
}

/// A `RateLimitRequest` with so many descriptors of one user.
fn request(value: &[u8], descriptors: usize) -> Vec<u8> {
    let entry = [field(1, b"user"), field(2, value)].concat();
    let descriptor = field(2, &field(1, &entry));
    [field(1, b"api"), descriptor.repeat(descriptors)].concat()
}

/// Returns true unless Envoy is told that the request is over its limit.
fn passes_envoy(port: u16, message: &[u8]) -> bool {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let body = [&[0], &length.to_be_bytes()[..], message].concat();
    // OVER_LIMIT as `overall_code`, the first field of the answer.
    !call(port, &body).is_some_and(|answer| answer.starts_with(b"\x08\x02"))
}

/// The bytes that a client may send before the service says that it has read some.
const WINDOW: usize = 250_000;

/// The message of the answer to `ShouldRateLimit`; None for an error. Of a longer body only the first bytes are sent.
fn call(port: u16, body: &[u8]) -> Option<Vec<u8>> {
    let head = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (
            ":path",
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
        ),
        (":authority", "localhost"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ]);
    let mut stream = connect(port);
    stream.write_all(&opening(None)).ok()?;
    // Its windows hold once its settings are acknowledged.
    while !matches!(read_flagged(&mut stream)?, (SETTINGS, 0, _)) {}
    stream.write_all(&frame(SETTINGS, ACK, 0, &[])).ok()?;
    // That of the connection is said apart.
    while read_flagged(&mut stream)?.0 != WINDOW_UPDATE {}
    stream
        .write_all(&frame(HEADERS, END_HEADERS, 1, &head))
        .ok()?;
    for piece in body.chunks(16_000).take(WINDOW / 16_000) {
        stream.write_all(&frame(DATA, 0, 1, piece)).ok()?;
    }
    if body.len() <= WINDOW {
        stream.write_all(&frame(DATA, END_STREAM, 1, &[])).ok()?;
    }
    let mut answer = Vec::new();
    loop {
        let (kind, flags, payload) = read_flagged(&mut stream)?;
        match kind {
            DATA => answer.extend(payload),
            GOAWAY => return None,
            // The rest of the body is not wanted: the answer came before.
            RST_STREAM => return answer.get(5..).map(<[u8]>::to_vec),
            HEADERS if flags & END_STREAM != 0 => return answer.get(5..).map(<[u8]>::to_vec),
            _ => {}
        }
    }
}

fn rls(service: &Target, grpc: u16) -> Row {
    let mut row = Row::new("bytes that are no text, large and broken messages, gRPC");
    for value in values() {
        for descriptors in [1, 3] {
            let message = request(&value, descriptors);
            if message.len() > WINDOW {
                continue;
            }
            let passed = (0..TRIES).filter(|_| passes_envoy(grpc, &message)).count();
            let fate = Fate::Limited.unless(passed > LIMIT);
            row.count(fate, format!("{}, {descriptors} times", named(&value)));
        }
    }
    let mut costly = field(1, &[field(1, b"user"), field(2, b"ada")].concat());
    // hits_addend: 2^53.
    costly.extend(field(3, b"\x08\x80\x80\x80\x80\x80\x80\x80\x10"));
    let broken = [
        ("a domain that is no text", b"\x0a\x01\xff".to_vec()),
        ("a wrong type", b"\x08\x01".to_vec()),
        ("a broken length", b"\x12\x02\x0a\x09".to_vec()),
        ("2^53 hits", [field(1, b"api"), field(2, &costly)].concat()),
        (
            "40,000 descriptors",
            [field(1, b"api"), field(2, b"").repeat(40_000)].concat(),
        ),
        ("101 descriptors", request(b"ada", 101)),
        ("5 MB", request(&vec![b'k'; 5_000_000], 1)),
    ];
    for (what, message) in broken {
        row.count(Fate::Limited.unless(passes_envoy(grpc, &message)), what);
    }
    row.measure(&service.process);
    row.most("KiB", row.peak_kib, 256 << 10);
    row
}

fn posted(service: &Target) -> Row {
    let mut row = Row::new("bytes that are no text, and long values, JSON");
    // A limit for each path, so that one does not use up the other's.
    for (path, name) in [("/json", "user"), ("/v1/check?status=true", "api_key")] {
        for value in values() {
            let head = format!(
                r#"{{"domain":"api","descriptors":[{{"entries":[{{"key":"{name}","value":""#
            );
            let body = [head.as_bytes(), &value, br#""}]}]}"#].concat();
            let statuses: Vec<_> = (0..TRIES)
                .map(|_| ask(service.port, "POST", path, JSON, &body).map(|answer| answer.status))
                .collect();
            // Whatever is not 429, a program that asks may take for a failure, and go on.
            let passed = statuses
                .iter()
                .filter(|status| **status != Some(429))
                .count();
            let fate = Fate::Limited.unless(passed > LIMIT);
            row.count(fate, format!("{path}: {}, {statuses:?}", named(&value)));
        }
    }
    row.measure(&service.process);
    row
}

fn auth(service: &Target) -> Row {
    let mut row = Row::new("keys that are no text, forward-auth");
    let mut statuses = HashSet::new();
    for value in values() {
        if value.len() > 60_000 {
            continue;
        }
        let passed = (0..TRIES)
            .filter(|_| {
                let head =
                    b"GET /v1/auth HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Api-Key: ";
                let answer = say(service.port, [&head[..], &value, b"\r\n\r\n"].concat());
                let status = Answer::try_read(&answer).map(|answer| answer.status);
                statuses.insert(status);
                matches!(status, Some(200 | 500..))
            })
            .count();
        let fate = match passed {
            0 => Fate::Refused,
            1..=LIMIT => Fate::Limited,
            _ => Fate::Passed,
        };
        row.count(fate, format!("{}, {statuses:?}", named(&value)));
    }
    row.measure(&service.process);
    row
}
