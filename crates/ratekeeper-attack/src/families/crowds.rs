//! Crowds: peers that take nothing of what they asked for, send next to nothing, or never finish a head.
//!
//! Each kind comes in numbers. Within a bound they must all be gone, honest clients and operators must be answered
//! meanwhile, and memory must stay within what `docs/gateway.md` says of each.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;
use ratekeeper_testkit::http1::connect;
use ratekeeper_testkit::http2::{ACK, END_HEADERS, END_STREAM, PING, frame, opening};
use ratekeeper_testkit::recorder::{Act, Recorder, ok};

use super::floods::request;
use crate::plan::Plan;
use crate::row::Row;
use crate::target::{Setup, Target};

/// Peers of each kind in the full form.
const PEERS: u32 = 400;

/// Streams on each HTTP/2 connection.
const STREAMS: u32 = 20;

/// More than the buffers of both systems take.
const LONG: usize = 16 << 20;

/// Times shorter than the defaults, so that the campaign need not wait half a minute for each kind.
const IMPATIENT: &str = "stall_timeout: 4s\nmin_rate: 256KiB\nupstream_timeout: 20s\n";

/// The time within which every peer must be gone: heads and idle connections have 30 seconds, and a busy machine adds some.
const GONE: Duration = Duration::from_secs(60);

/// Memory that a gateway takes for good once it has served anybody, in KiB.
const WARMED_UP_KIB: usize = 6 << 10;

/// Upstream connections that may be kept for honest clients.
const KEPT: u64 = 4;

/// Files for honest clients and operators.
const FILES_SPARE: usize = 32;

/// The metric of connections to the upstream.
const CONNECTIONS: &str = "ratelimit_gateway_upstream_connections{upstream=\"upstream\"} ";

/// The longest wait of an honest client.
const HONEST: Duration = Duration::from_secs(20);

/// A kind of peer.
struct Kind {
    name: &'static str,
    /// The requests under way of each peer; 0 where it never finishes the head of one.
    requests: u32,
    /// The most memory that each request, or each peer without one, may cost, in KiB.
    each_kib: usize,
    open: fn(u16) -> TcpStream,
    /// Keeps the connection alive without making progress.
    keep: fn(&mut TcpStream),
}

impl Kind {
    const fn new(
        name: &'static str,
        (requests, each_kib): (u32, usize),
        open: fn(u16) -> TcpStream,
        keep: fn(&mut TcpStream),
    ) -> Self {
        Self {
            name,
            requests,
            each_kib,
            open,
            keep,
        }
    }

    /// The most files that each request, or each peer without one, may cost.
    const fn files(&self) -> u32 {
        match self.requests {
            0 => 1,
            // One for an upstream connection, and one for the client's, which HTTP/2 requests share.
            _ => 2,
        }
    }
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const UPLOAD: &[u8] = b"POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n";
const HALF_A_HEAD: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nX: ";

const KINDS: &[Kind] = &[
    Kind::new(
        "clients that read nothing, HTTP/1.1",
        (1, 200),
        |port| open(port, GET),
        |_| {},
    ),
    Kind::new(
        "streams that read nothing, HTTP/2",
        (STREAMS, 120),
        stalling_streams,
        answer_pings,
    ),
    Kind::new(
        "uploads of a byte at a time, HTTP/1.1",
        (1, 300),
        |port| open(port, UPLOAD),
        trickle,
    ),
    Kind::new(
        "heads that never end, HTTP/1.1",
        (0, 120),
        |port| open(port, HALF_A_HEAD),
        trickle,
    ),
    Kind::new(
        "connections that say nothing",
        (0, 60),
        |port| open(port, b""),
        |_| {},
    ),
];

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    // Peers without a request have half a minute, whatever the settings: tests do not wait for that.
    let wanted = |kind: &&Kind| plan.divisor == 1 || kind.requests > 0;
    let kinds = KINDS.iter().filter(wanted);
    kinds.map(|kind| crowd(program, plan, kind)).collect()
}

fn crowd(program: &Path, plan: &Plan, kind: &Kind) -> Result<Row> {
    let upstream = Recorder::start(|asked| match asked.head.starts_with("GET /honest ") {
        true => ok("honest"),
        false => Act::Pour(LONG),
    });
    let setup = Setup::gateway(program, &upstream.url());
    let gateway = setup.start_with("domain: api\n", IMPATIENT);
    let each = kind.requests.max(1);
    let count = PEERS / plan.divisor / each;
    let mut row = Row::new(kind.name);
    let before = gateway.process.resident_kib();
    let mut peers: Vec<TcpStream> = (0..count).map(|_| (kind.open)(gateway.port)).collect();
    let begun = Instant::now();
    let (mut is_answered, mut most) = (true, 0);
    let files_before = gateway.process.open_files();
    let mut files = 0;
    loop {
        peers.iter_mut().for_each(kind.keep);
        let left = match kind.requests {
            0 => peers.iter().filter(|peer| !is_closed(peer)).count() as u64,
            _ => gateway.metric_or_zero(CONNECTIONS).saturating_sub(KEPT),
        };
        most = left.max(most);
        files = gateway.process.open_files().max(files);
        is_answered &= honest(&gateway);
        row.passed = left;
        // A crowd that has not come yet is not gone.
        if most > 0 && left == 0 || begun.elapsed() > GONE {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    row.refused = u64::from(count * each).saturating_sub(row.passed);
    row.measure(&gateway.process);
    let grown = row.peak_kib.saturating_sub(before + WARMED_UP_KIB);
    let (left, cost) = (row.passed, grown / (count * each) as usize);
    row.bound(most > 0, "no client came");
    row.bound(left == 0, format!("{left} are left after {GONE:?}"));
    row.bound(
        is_answered,
        format!("an honest client or an operator waited for more than {HONEST:?}"),
    );
    let files = files.saturating_sub(files_before + FILES_SPARE);
    let files_max = (count * each * kind.files()) as usize;
    row.most("files", files, files_max);
    row.most("KiB each", cost, kind.each_kib);
    Ok(row)
}

/// True if a client that behaves and an operator are answered in time.
fn honest(gateway: &Target) -> bool {
    let begun = Instant::now();
    let is_served = gateway.serves("/honest");
    is_served && gateway.told("/readyz").is_some() && begun.elapsed() < HONEST
}

fn open(port: u16, bytes: &[u8]) -> TcpStream {
    let mut stream = connect(port);
    let _ = stream.write_all(bytes);
    stream
}

/// Streams with windows of one byte.
fn stalling_streams(port: u16) -> TcpStream {
    let mut bytes = opening(Some(1));
    for number in 0..STREAMS {
        bytes.extend(request(2 * number + 1, END_HEADERS | END_STREAM));
    }
    open(port, &bytes)
}

/// Sends one byte more.
fn trickle(stream: &mut TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(b"x");
}

/// Answers the PINGs that have come, as a client that is alive does.
fn answer_pings(stream: &mut TcpStream) {
    let mut piece = [0; 64 << 10];
    let _ = stream.set_nonblocking(true);
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        let came = piece.get(..read).unwrap_or_default();
        // The head of a PING frame that is no answer.
        let head = [0, 0, 8, PING, 0, 0, 0, 0, 0];
        let pings = came.windows(17).filter(|window| window.starts_with(&head));
        for ping in pings {
            let _ = stream.write_all(&frame(PING, ACK, 0, ping.get(9..).unwrap_or_default()));
        }
    }
}

/// True if the gateway has closed the connection, on which it has nothing to send.
fn is_closed(stream: &TcpStream) -> bool {
    let _ = stream.set_nonblocking(true);
    match stream.peek(&mut [0]) {
        Ok(_) => true,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}
