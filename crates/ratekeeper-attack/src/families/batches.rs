//! Batches: large answers over gRPC that clients do not read.

use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use ratekeeper_testkit::http1::connect;
use ratekeeper_testkit::http2::{DATA, END_HEADERS, END_STREAM, HEADERS, block, frame, opening};

use super::lifted::{bytes, framed, message};
use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::Setup;

/// Peers in the full form.
const PEERS: u32 = 400;

/// Checks in each batch.
const CHECKS: usize = 1_000;

/// The memory that all answers under way may take, with what the process needs besides, in KiB.
const GROWTH_KIB: usize = 128 << 10;

/// The time within which peers that take nothing must be gone.
const GONE: Duration = Duration::from_secs(60);

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    // Peers that take nothing are to be gone soon.
    let settings = "stall_timeout: 2s\n";
    // Each answer names the rule, at length, for each check.
    let rules = format!(
        "domain: api\ndescriptors:\n  - key: user\n    rate_limit: {{ window: 10000d, limit: 1000000, name: {} }}\n",
        "n".repeat(200)
    );
    let service = Setup::serve(program)
        .for_all_hosts()
        .start_with(&rules, settings);
    let grpc = service.grpc;
    let before = service.process.resident_kib();
    let mut row = Row::new("batches whose answers are not read, gRPC");
    let batch = batch();
    let mut peers: Vec<_> = (0..PEERS / plan.divisor)
        .map(|_| open(grpc, &batch))
        .collect();
    let begun = Instant::now();
    let tried = peers.len();
    // A reset is read once, so that a peer which has gone is not looked at again.
    while !peers.is_empty() && begun.elapsed() < GONE {
        row.bound(
            service.serves("/healthcheck"),
            "an honest client got no answer",
        );
        row.measure(&service.process);
        sleep(Duration::from_millis(100));
        peers.retain(|peer| !is_over(peer));
    }
    let gone = tried - peers.len();
    (0..gone).for_each(|_| row.count(Fate::Refused, ""));
    for _ in &peers {
        row.count(Fate::Passed, format!("a peer is left after {GONE:?}"));
    }
    row.measure(&service.process);
    let grown = row.peak_kib.saturating_sub(before);
    row.most("KiB more", grown, GROWTH_KIB);
    Ok(vec![row])
}

/// A message of `CheckBatch`, with its prefix.
fn batch() -> Vec<u8> {
    // `ratekeeper.v1` numbers the fields of a check as Envoy does those of its request.
    framed(&bytes(1, &message(&[])).repeat(CHECKS))
}

/// Asks for a batch, with a window of one byte for the answer.
fn open(port: u16, batch: &[u8]) -> TcpStream {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/ratekeeper.v1.RateLimiterService/CheckBatch"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut bytes = opening(Some(1));
    bytes.extend(frame(HEADERS, END_HEADERS, 1, &block(&fields)));
    let mut pieces = batch.chunks(16 << 10).peekable();
    while let Some(piece) = pieces.next() {
        let flags = u8::from(pieces.peek().is_none()) * END_STREAM;
        bytes.extend(frame(DATA, flags, 1, piece));
    }
    let mut stream = connect(port);
    let _ = stream.write_all(&bytes);
    stream
}

/// True if the other side has closed the connection, or its only stream has ended: nothing is kept for it.
fn is_over(mut stream: &TcpStream) -> bool {
    use std::io::Read;
    let _ = stream.set_nonblocking(true);
    let mut piece = [0; 4 << 10];
    match stream.read(&mut piece) {
        Ok(0) => true,
        // RST_STREAM; or HEADERS that end the stream, which refuse the batch since too many answers wait.
        Ok(read) => {
            let came = piece.get(..read).unwrap_or_default();
            came.windows(9).any(|head| match *head {
                [0, 0, 4, 3, 0, 0, 0, 0, 1] => true,
                [0, _, _, 1, flags, 0, 0, 0, 1] => flags & END_STREAM != 0,
                _ => false,
            })
        }
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}
