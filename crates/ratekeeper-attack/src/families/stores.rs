//! Stores: a Redis that answers nonsense, and a cluster that names servers that are none.
//!
//! The node must stay up, answer by each rule's failure mode, and take no more memory than it may.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ratekeeper_testkit::http1::ask;

use crate::plan::Plan;
use crate::row::{Fate, Row};
use crate::target::{JSON, Setup, Target, check};

/// Requests that the rules allow where this node counts alone.
const LIMIT: usize = 3;

/// Requests to each rule.
const ASKED: usize = 8;

/// Rounds of requests to all rules in the full form.
const ROUNDS: u32 = 40;

/// The memory that a node may take for answers that it cannot use, in KiB.
const GROWTH_KIB: usize = 160 << 10;

const RULES: &str = "
domain: api
descriptors:
  - key: local
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
    on_store_failure: local
  - key: allow
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
    on_store_failure: allow
  - key: deny
    rate_limit: { window: 10000d, limit: 3, algorithm: fixed_window }
    on_store_failure: deny
";

/// Answers to each piece of what a node says.
type Say = fn(&mut TcpStream) -> io::Result<()>;

fn put(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)
}

/// Says `piece` for as long as it is listened to.
fn pour(stream: &mut TcpStream, head: &[u8], piece: &[u8]) -> io::Result<()> {
    stream.write_all(head)?;
    loop {
        stream.write_all(piece)?;
    }
}

const ANSWERS: &[(&str, Say)] = &[
    ("nothing", |_| Ok(())),
    ("an end", |_| Err(io::ErrorKind::ConnectionReset.into())),
    ("OK to everything", |it| put(it, &b"+OK\r\n".repeat(64))),
    ("a number", |it| put(it, &b":1\r\n".repeat(64))),
    ("a number that is too large", |it| {
        put(it, b":99999999999999999999999999\r\n")
    }),
    ("nothing there", |it| put(it, &b"$-1\r\n*-1\r\n".repeat(64))),
    ("an empty list", |it| put(it, &b"*0\r\n".repeat(64))),
    ("lists of numbers", |it| {
        put(it, &b"*4\r\n:1\r\n:2\r\n:3\r\n:4\r\n".repeat(64))
    }),
    ("lists of large numbers", |it| {
        let list = "*3\r\n:9223372036854775807\r\n:-9223372036854775808\r\n$20\r\n18446744073709551615\r\n";
        put(it, &list.repeat(64).into_bytes())
    }),
    ("a list of many", |it| put(it, b"*1000000000\r\n:1\r\n")),
    ("lists in lists", |it| put(it, &b"*1\r\n".repeat(200_000))),
    ("a long string that never comes", |it| {
        put(it, b"$9223372036854775807\r\n")
    }),
    ("a string of a gigabyte", |it| {
        pour(it, b"$1000000000\r\n", &[b'x'; 64 << 10])
    }),
    ("a line without an end", |it| {
        pour(it, b"+", &[b'x'; 64 << 10])
    }),
    ("errors without an end", |it| pour(it, b"", b"-ERR no\r\n")),
    ("numbers without an end", |it| {
        pour(it, b"", &b":1\r\n".repeat(4 << 10))
    }),
    ("a map of many (RESP3)", |it| {
        put(it, b"%500000000\r\n+a\r\n")
    }),
    ("unrequested push messages (RESP3)", |it| {
        pour(it, b"", &b">2\r\n+message\r\n$1\r\nx\r\n".repeat(1 << 10))
    }),
    ("garbage", |it| put(it, &[0, 255, 13, 10, 0, 1, 2, 10, 13])),
    ("HTTP", |it| put(it, b"HTTP/1.1 400 Bad Request\r\n\r\n")),
    ("a login", |it| {
        put(it, &b"-NOAUTH Authentication required.\r\n".repeat(64))
    }),
    ("no script", |it| {
        put(it, &b"-NOSCRIPT No matching script.\r\n".repeat(64))
    }),
    ("another server", |it| {
        put(it, &b"-MOVED 1 192.0.2.1:6379\r\n".repeat(64))
    }),
    ("another server, malformed", |it| {
        put(it, &b"-MOVED x :99999999\r\n-ASK\r\n".repeat(64))
    }),
    ("an error with escape sequences", |it| {
        put(it, &b"-ERR \x1b[2J\x1b]0;owned\x07\r\n".repeat(64))
    }),
];

pub(crate) fn attack(program: &Path, plan: &Plan) -> Result<Vec<Row>> {
    let lives = lives(plan);
    let rows = thread::scope(|scope| {
        let shares = lives.chunks(lives.len().div_ceil(AT_ONCE));
        let shares = shares.map(|lives| scope.spawn(move || some(program, plan, lives)));
        let shares: Vec<_> = shares.collect();
        let rows = shares.into_iter().map(|it| match it.join() {
            Ok(row) => row,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        rows.collect::<Result<Vec<_>>>()
    })?;
    let mut row = Row::new("a Redis that answers nonsense");
    rows.into_iter().for_each(|it| row.join(it));
    Ok(vec![row, cluster(program, plan)?])
}

/// One kind of answer, with or without a greeting before it.
type Life = (&'static str, Say, bool);

/// The nodes that are attacked at the same time: they wait most of the time.
const AT_ONCE: usize = 4;

/// Every answer from the first word on and after a greeting; in the quick form, by turns the one or the other.
fn lives(plan: &Plan) -> Vec<Life> {
    let both = ANSWERS
        .iter()
        .enumerate()
        .flat_map(|(number, (what, answer))| {
            [true, false].map(|greets| (number, (*what, *answer, greets)))
        });
    let is_wanted =
        |(number, (.., greets)): &(usize, Life)| plan.divisor == 1 || (number % 2 == 0) == *greets;
    both.filter(is_wanted).map(|(_, life)| life).collect()
}

fn some(program: &Path, plan: &Plan, lives: &[Life]) -> Result<Row> {
    let mut row = Row::new("");
    for life in lives {
        one(program, plan, &mut row, *life)
            .with_context(|| format!("a Redis that answers: {}", life.0))?;
    }
    Ok(row)
}

/// Listens, and answers whatever comes on each connection; PING gets PONG if `greets`.
fn fake(greets: bool, answer: Say) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream, greets, answer));
        }
    });
    Ok(port)
}

fn serve(mut stream: TcpStream, greets: bool, answer: Say) {
    let mut piece = [0; 64 << 10];
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        let came = piece.get(..read).unwrap_or_default();
        let is_greeting = came.windows(6).any(|word| word == b"\r\nPING");
        let said = match greets && is_greeting {
            true => stream.write_all(b"+PONG\r\n"),
            false => answer(&mut stream),
        };
        if said.is_err() {
            return;
        }
    }
}

fn one(program: &Path, plan: &Plan, row: &mut Row, (what, answer, greets): Life) -> Result<()> {
    let store = format!("redis://127.0.0.1:{}/", fake(greets, answer)?);
    let node = withstand(program, plan, row, (what, &store))?;
    let has_escapes = node.process.output().contains('\u{1b}');
    row.bound(!has_escapes, format!("{what}: escape sequences in the log"));
    Ok(())
}

/// Asks a node round after round: it must stay up, and take no more memory than it may.
fn withstand(
    program: &Path,
    plan: &Plan,
    row: &mut Row,
    (what, store): (&str, &str),
) -> Result<Target> {
    let setup = Setup::serve(program).rules(RULES);
    let mut node = setup.args(&["--store", store]).start();
    let before = node.process.resident_kib();
    for round in 0..(ROUNDS / plan.divisor) {
        check_modes(&node, row, (what, round));
        thread::sleep(Duration::from_millis(50));
    }
    row.measure(&node.process);
    let grown = node.process.resident_peak_kib().saturating_sub(before);
    row.most(&format!("{what}: KiB more"), grown, GROWTH_KIB);
    let ended = node.process.ended();
    row.is(&format!("{what}: the node ended"), ended, None);
    Ok(node)
}

/// Asks for each rule as often as it takes to be over its limit.
fn check_modes(node: &Target, row: &mut Row, (what, round): (&str, u32)) {
    for (mode, expected) in [("local", LIMIT), ("allow", ASKED), ("deny", 0)] {
        let mut allowed = 0;
        for _ in 0..ASKED {
            let body = check(mode, &format!("u{round}"), "");
            let answer = ask(node.port, "POST", "/v1/check", JSON, &body);
            allowed +=
                usize::from(answer.is_some_and(|it| it.body.contains(r#""decision":"allow""#)));
        }
        // One that decides by nonsense shows it in either direction.
        let fate = Fate::Harmless.unless(allowed != expected);
        row.count(
            fate,
            format!("{what}: rules with `{mode}` allowed {allowed} of {ASKED}, not {expected}"),
        );
    }
}

/// Servers that the cluster names.
const NAMED: usize = 16_384;

/// Connections that a node may open to them in a run: two to each of the 1,024 that it keeps, and the one over which nodes
/// share their top keys, which is reopened every two seconds because no answer comes.
const FILES_MAX: usize = 2_400;

/// A cluster whose every slot is on another server, all of which lead to one listener that says nothing.
fn cluster(program: &Path, plan: &Plan) -> Result<Row> {
    let (silent, opened) = silent()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let map = Arc::new(map(silent));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let map = Arc::clone(&map);
            thread::spawn(move || tell(stream, &map));
        }
    });
    let mut row = Row::new("a cluster of servers that are none");
    let store = format!("redis+cluster://127.0.0.1:{port}/");
    withstand(program, plan, &mut row, ("a cluster of strangers", &store))?;
    let files = opened.load(Ordering::Relaxed);
    row.most("connections", files, FILES_MAX);
    Ok(row)
}

/// A listener on all addresses of this host that says nothing, and the most connections that it had at a time.
fn silent() -> Result<(u16, Arc<AtomicUsize>)> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port();
    let most = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&most);
    thread::spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        for mut stream in listener.incoming().flatten() {
            told.fetch_max(open.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let open = Arc::clone(&open);
            thread::spawn(move || {
                let _ = io::copy(&mut stream, &mut io::sink());
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
    Ok((port, most))
}

/// `CLUSTER SLOTS` with another address of this host for each slot.
fn map(port: u16) -> Vec<u8> {
    let mut map = format!("*{NAMED}\r\n");
    for slot in 0..NAMED {
        let host = format!(
            "127.{}.{}.{}",
            1 + slot / 65_536,
            slot / 256 % 256,
            slot % 256
        );
        map += &format!(
            "*3\r\n:{slot}\r\n:{slot}\r\n*2\r\n${}\r\n{host}\r\n:{port}\r\n",
            host.len()
        );
    }
    map.into_bytes()
}

/// Answers as a node of a cluster that has carried out nothing.
fn tell(mut stream: TcpStream, map: &[u8]) {
    let mut piece = [0; 64 << 10];
    while let Ok(read @ 1..) = stream.read(&mut piece) {
        let came = String::from_utf8_lossy(piece.get(..read).unwrap_or_default()).to_uppercase();
        let said = match () {
            () if came.contains("\r\nSLOTS") => stream.write_all(map),
            () if came.contains("\r\nPING") => stream.write_all(b"+PONG\r\n"),
            () => stream.write_all(&b"-MOVED 1 127.200.0.1:6379\r\n".repeat(8)),
        };
        if said.is_err() {
            return;
        }
    }
}
