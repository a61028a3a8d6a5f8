//! Floods: frames of HTTP/2 that cost their sender nothing, by the hundred thousand.
//!
//! The gateway may answer, ignore or end the connection; memory, the log and the time that an honest client waits are bounded.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use ratekeeper_testkit::http1::connect;
use ratekeeper_testkit::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, SETTINGS,
    WINDOW_UPDATE, block, frame, opening,
};
use ratekeeper_testkit::recorder::{Recorder, ok};

use crate::plan::Plan;
use crate::row::Row;
use crate::target::{Setup, Target};

/// Frames of each flood in the full form.
const FRAMES: u32 = 200_000;

/// The most memory that a flood may cost, in KiB.
const COST_KIB: usize = 48 << 10;

/// The most lines of log that a flood may cause.
const LINES: u64 = 100;

/// The longest wait of an honest client.
const HONEST: Duration = Duration::from_secs(20);

/// The frame of that number.
type Frame = fn(u32) -> Vec<u8>;

const FLOODS: &[(&str, Frame)] = &[
    ("rapid reset, HTTP/2", |number| {
        let mut bytes = request(stream(number), END_HEADERS | END_STREAM);
        bytes.extend(frame(RST_STREAM, 0, stream(number), &8_u32.to_be_bytes()));
        bytes
    }),
    ("requests made to be reset, HTTP/2", |number| {
        let mut bytes = request(stream(number), END_HEADERS);
        // A window that overflows makes the other side reset the stream.
        bytes.extend(frame(
            WINDOW_UPDATE,
            0,
            stream(number),
            &0x7fff_ffff_u32.to_be_bytes(),
        ));
        bytes
    }),
    ("PING, HTTP/2", |_| frame(PING, 0, 0, b"flooding")),
    ("PING ACK, HTTP/2", |_| frame(PING, ACK, 0, b"flooding")),
    ("SETTINGS, HTTP/2", |_| frame(SETTINGS, 0, 0, &[])),
    ("SETTINGS ACK, HTTP/2", |_| frame(SETTINGS, ACK, 0, &[])),
    ("CONTINUATION, HTTP/2", |number| match number {
        0 => request(1, 0),
        _ => frame(CONTINUATION, 0, 1, &block(&[("x", &"y".repeat(100))])),
    }),
    ("empty CONTINUATION, HTTP/2", |number| match number {
        0 => request(1, 0),
        _ => frame(CONTINUATION, 0, 1, &[]),
    }),
    ("empty DATA, HTTP/2", |number| match number {
        0 => request(1, END_HEADERS),
        _ => frame(DATA, 0, 1, &[]),
    }),
    ("WINDOW_UPDATE, HTTP/2", |_| {
        frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())
    }),
    ("PRIORITY, HTTP/2", |number| {
        frame(2, 0, stream(number), &[0, 0, 0, 0, 1])
    }),
    ("frames of unknown types, HTTP/2", |_| {
        frame(0xbb, 0, 0, &[0; 64])
    }),
    ("RST_STREAM of idle streams, HTTP/2", |number| {
        frame(RST_STREAM, 0, stream(number), &8_u32.to_be_bytes())
    }),
    ("headers that are said to be huge, HTTP/2", |number| {
        // An indexed name, and a value of 2 GiB.
        let promise = [0, 1, b'x', 0x7f, 0x80, 0xff, 0xff, 0xff, 0x07];
        frame(HEADERS, END_HEADERS | END_STREAM, stream(number), &promise)
    }),
    ("an HPACK bomb, HTTP/2", |number| match number {
        // A name and a value of 4,000 bytes into the table, and then references to it.
        0 => {
            let mut entry = vec![0x40, 1, b'x', 0x7f];
            entry.extend([0x81, 0x1e]);
            entry.extend([b'y'; 4_000]);
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &entry)
        }
        number => {
            let references = [0xbe; 16_000];
            let flags = END_HEADERS | END_STREAM;
            frame(HEADERS, flags, stream(number % 100), &references)
        }
    }),
];

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    FLOODS
        .iter()
        .map(|(name, frame)| flood(program, plan, name, *frame))
        .collect()
}

fn flood(program: &Path, plan: &Plan, name: &str, frame: Frame) -> Result<Row> {
    let upstream = Recorder::start(|_| ok("here"));
    let gateway = Setup::gateway(program, &upstream.url()).start_with("domain: api\n", "");
    let mut row = Row::new(name);
    let before = gateway.process.resident_kib();
    let mut client = connect(gateway.port);
    client.write_all(&opening(None))?;
    row.bound(is_listened_to(&mut client), "no answer to the first PING");
    let count = FRAMES / plan.divisor;
    let (mut sent, mut longest) = (0, Duration::ZERO);
    while sent < count {
        let numbers = sent..(sent + 500).min(count);
        let bytes: Vec<u8> = numbers.clone().flat_map(frame).collect();
        sent = numbers.end;
        let is_open = push(&mut client, &bytes);
        if sent % 10_000 == 0 || !is_open {
            longest = longest.max(honest(&gateway, &mut row));
        }
        if !is_open {
            break;
        }
    }
    row.refused = u64::from(count - sent);
    row.harmless = u64::from(sent);
    row.measure(&gateway.process);
    let cost = row.peak_kib.saturating_sub(before);
    row.most("KiB that it cost", cost, COST_KIB);
    let lines = gateway.process.lines();
    row.most("lines of log", lines, LINES);
    row.most("an honest client waited", longest, HONEST);
    Ok(row)
}

/// Sends a PING, and waits until it is answered: what follows is read as frames, and not refused for its preface.
fn is_listened_to(client: &mut TcpStream) -> bool {
    let answer = frame(PING, ACK, 0, b"listens?");
    if client.write_all(&frame(PING, 0, 0, b"listens?")).is_err() {
        return false;
    }
    let (mut said, mut piece) = (Vec::new(), [0; 4 << 10]);
    while !said.windows(answer.len()).any(|it| it == answer) {
        match client.read(&mut piece) {
            Ok(read @ 1..) => said.extend_from_slice(piece.get(..read).unwrap_or_default()),
            _ => return false,
        }
    }
    true
}

/// Sends all of `bytes`, and throws away what comes meanwhile. False once the other side has closed the connection.
fn push(stream: &mut TcpStream, mut bytes: &[u8]) -> bool {
    let _ = stream.set_nonblocking(true);
    let mut answers = [0; 64 << 10];
    let begun = Instant::now();
    while !bytes.is_empty() && begun.elapsed() < HONEST {
        match stream.write(bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(_) => return false,
        }
        match stream.read(&mut answers) {
            Ok(0) => return false,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return false,
            _ => {}
        }
    }
    // Who takes nothing for that long has had enough of this connection.
    bytes.is_empty()
}

/// The time that a client which behaves waits for its answer.
fn honest(gateway: &Target, row: &mut Row) -> Duration {
    let begun = Instant::now();
    row.bound(gateway.serves("/"), "an honest client was not served");
    begun.elapsed()
}

/// The stream of the request of that number.
const fn stream(number: u32) -> u32 {
    2 * number + 1
}

/// A request without a body.
pub(super) fn request(stream: u32, flags: u8) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];
    frame(HEADERS, flags, stream, &block(&fields))
}
