//! The cost of a decision for Redis: CPU and bytes, by the server's own count.
//!
//! `cargo bench -p ratekeeper-store-redis` prints two tables: microseconds of the server's core for each decision, one
//! decision a call and sixteen, over many keys, and bytes for each counter at a million keys. A counter whose limit regions
//! lend each other is read together with its loans; it has a row without loans, and one with. Times are the server's
//! `used_cpu`, so that they mean something on a machine that does other things as well.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

use ratekeeper_core::region::loans::{LoanRegions, WindowAsk, WindowFacts, WindowLoans};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, Request, Step};
use ratekeeper_store_redis::script::{Call, Clock, Group, KeyName, Script};
use ratekeeper_testkit::redis::{Client, Reply, Server, encode};

/// Calls of one pipeline.
const PIPELINE: usize = 16;

/// Keys of the table of bytes.
const COUNTERS: u64 = 1_000_000;

fn main() {
    // `cargo test --benches` runs this too, only to see that it runs.
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_test = !args.iter().any(|arg| arg == "--bench");
    // A word selects the algorithms whose names have it.
    let word = args.iter().find(|arg| !arg.starts_with('-'));
    let counters = if is_test { 1_000 } else { COUNTERS };
    println!(
        "{:<28}{:>12}{:>12}{:>12}{:>12}",
        "", "1 a call", "16 a call", "denied", "bytes"
    );
    for (name, limit, loans) in limits() {
        if word.is_some_and(|word| !name.contains(word.as_str())) {
            continue;
        }
        let row = Row::measure((&limit, loans), counters);
        println!(
            "{name:<28}{:>12.2}{:>12.2}{:>12.2}{:>12.1}",
            row.one, row.sixteen, row.denied, row.bytes
        );
    }
    let server = Server::start();
    let mut client = server.client();
    let ping = cost(&mut client, counters, |_, pipeline| {
        encode(&["PING"], pipeline)
    });
    let incr = cost(&mut client, counters, |n, pipeline| {
        encode(&["INCRBY", &format!("key:{n:016}"), "1"], pipeline);
    });
    println!("{:<28}{ping:>12.2}", "PING");
    println!("{:<28}{incr:>12.2}", "INCRBY");
}

/// The parts of a counter that regions have lent each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loans {
    /// The limit is none that they lend.
    Never,
    None,
    /// A tenth, to one of two others.
    Some,
}

/// The window of all limits: so long that no bucket is full again, and forgotten, while this runs.
const WINDOW: Micros = Micros::from_secs(864_000);

fn limits() -> Vec<(String, Limit, Loans)> {
    let limit = |algorithm, quota, sub_windows| {
        let spec = LimitSpec::new(algorithm, quota, WINDOW);
        let spec = LimitSpec {
            sub_windows,
            ..spec
        };
        Limit::try_new(spec).expect("a valid limit")
    };
    let whole = |algorithm: Algorithm| {
        let limit = limit(algorithm, 1_000, None);
        (algorithm.name().to_owned(), limit, Loans::Never)
    };
    let mut limits: Vec<_> = Algorithm::ALL.into_iter().map(whole).collect();
    for count in [1, 12] {
        let parts = limit(Algorithm::SlidingWindow, 1_000, Some(count));
        limits.push((format!("sliding_window of {count}"), parts, Loans::Never));
    }
    for (name, loans) in [("bounded", Loans::None), ("bounded, lent", Loans::Some)] {
        let fixed = limit(Algorithm::FixedWindow, 1_000, None);
        limits.push((format!("fixed_window {name}"), fixed, loans));
    }
    limits
}

/// The loans of a counter as they are kept, a tenth of it lent to one of two other regions.
fn kept_loans(client: &mut Client) -> Vec<u8> {
    let Reply::Array(time) = client.ask(&["TIME"]) else {
        panic!("TIME is answered by a list");
    };
    let seconds: u64 = time[0].text().parse().expect("a number");
    let window = seconds * 1_000_000 / WINDOW.get();
    let mut loans = WindowLoans::new(1_000, 3);
    let ask = WindowAsk {
        number: 1,
        first: window,
        hold_now: 0,
        hold_next: 0,
        want_now: 100,
        want_next: 100,
    };
    let facts = WindowFacts {
        window,
        count: 0,
        need_now: 0,
        need_next: 0,
        floor: 100,
        windows: 2,
    };
    loans
        .lend(1, &ask, &facts)
        .expect("a first ask is answered");
    loans
        .encode(window, &LoanRegions::named(["ap", "eu", "us"]))
        .expect("loans of three regions fit")
        .to_vec()
}

struct Row {
    one: f64,
    sixteen: f64,
    denied: f64,
    bytes: f64,
}

impl Row {
    fn measure((limit, loans): (&Limit, Loans), counters: u64) -> Self {
        let server = Server::start();
        let mut client = server.client();
        let script = Script::new(Clock::Server);
        client.ask(&["SCRIPT", "LOAD", script.text()]);
        let before = memory(&mut client);
        let names = KeyName::default();
        if loans == Loans::Some {
            let kept = kept_loans(&mut client);
            cost(&mut client, counters, |number, pipeline| {
                let mut key = Vec::new();
                names.loans(key_of(number), &mut key);
                encode(&[&b"SET"[..], &key, &kept], pipeline);
            });
        }
        let terms = u64::from(loans != Loans::Never);
        let mut call = Call::new();
        // Counters are made, sixteen a call.
        let mut ask = |hits: i64, many: u64, next: u64, pipeline: &mut Vec<u8>| {
            call.clear();
            for number in next * many..(next + 1) * many {
                call.push(&group((limit, terms), number % counters, hits), &names);
            }
            push(&script, &call, pipeline);
        };
        let sixteen = cost(&mut client, counters / 16, |n, out| ask(1, 16, n, out)) / 16.0;
        let one = cost(&mut client, counters / 8, |n, out| ask(1, 1, n, out));
        let bytes = (memory(&mut client) - before) / counters as f64;
        let oversized = i64::try_from(limit.capacity() + 1).unwrap_or(i64::MAX);
        let denied = cost(&mut client, counters / 8, |n, out| {
            ask(oversized, 1, n, out)
        });
        Self {
            one,
            sixteen,
            denied,
            bytes,
        }
    }
}

fn key_of(number: u64) -> CounterKey {
    // Spread as hashes are.
    let spread = |n: u64| (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    CounterKey {
        subject: spread(number),
        identity: spread(spread(number)),
    }
}

fn group((limit, terms): (&Limit, u64), number: u64, hits: i64) -> Group {
    let step = Step {
        hits,
        terms,
        ..Step::new(key_of(number), *limit)
    };
    Group::new(&Request::new(&[step], Mode::default(), Timestamp::EPOCH))
}

fn push(script: &Script, call: &Call, pipeline: &mut Vec<u8>) {
    let count = call.keys().len().to_string();
    let mut args: Vec<&[u8]> = vec![b"EVALSHA", script.sha1().as_bytes(), count.as_bytes()];
    args.extend(call.keys());
    args.push(call.plan());
    encode(&args, pipeline);
}

/// Microseconds of the server's core for each of `calls` calls, in pipelines.
fn cost(client: &mut Client, calls: u64, mut ask: impl FnMut(u64, &mut Vec<u8>)) -> f64 {
    let before = cpu(client);
    let mut pipeline = Vec::new();
    let mut next = 0;
    while next < calls {
        pipeline.clear();
        let most = (PIPELINE as u64).min(calls - next);
        for number in next..next + most {
            ask(number, &mut pipeline);
        }
        client.send(&pipeline);
        for _ in 0..most {
            let reply = client.read();
            assert!(!reply.is_error(), "{reply:?}");
        }
        next += most;
    }
    (cpu(client) - before) * 1e6 / calls.max(1) as f64
}

/// Seconds of the server's processes so far.
fn cpu(client: &mut Client) -> f64 {
    client.number("cpu", "used_cpu_user") + client.number("cpu", "used_cpu_sys")
}

fn memory(client: &mut Client) -> f64 {
    client.number("memory", "used_memory")
}
