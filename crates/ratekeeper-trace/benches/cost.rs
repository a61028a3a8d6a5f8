#![allow(
    clippy::cast_lossless,
    clippy::cast_precision_loss,
    reason = "figures of measurements are rounded on purpose"
)]

//! The cost of traces for checks that are not traced: `cargo bench -p ratekeeper-trace`, `--quick` for a first look.
//!
//! Runs of whole checks in memory, with and without the tracer, alternate, and their difference counts. The second
//! number is the decision alone, in a loop.

use std::hint::black_box;
use std::time::Instant;

use http::{HeaderMap, HeaderName, HeaderValue};
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_testkit::paired::difference;
use ratekeeper_trace::{SpanQueue, TracedCall, Tracer};

const RULES: &str = "
domain: api
descriptors:
  - key: api_key
    rate_limit: { unit: minute, requests_per_unit: 4000000000 }
";

/// Checks of one run: few enough that a hundredth of them fits into the queue of spans.
const CHECKS: usize = 100_000;

/// The most that a check which is not traced may cost, in nanoseconds.
const GOAL: f64 = 5.0;

/// The headers of a request, and the tracer that meets them.
struct Row {
    name: &'static str,
    tracer: Option<(Tracer, SpanQueue)>,
    headers: HeaderMap,
    has_goal: bool,
}

fn limiter() -> Limiter<MemoryStore> {
    let source = Source {
        name: "bench.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default()).expect("the rules above");
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    Limiter::new(loaded.rules, store, LimiterOptions::default())
}

/// The metadata of a call by Envoy, with more headers up to a number, and a context.
fn headers(count: usize, context: Option<&'static str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("grpc-timeout", "20m"),
        ("x-envoy-internal", "true"),
        ("x-forwarded-for", "10.0.0.7"),
        ("x-envoy-expected-rq-timeout-ms", "20"),
    ] {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    for number in headers.len()..count {
        let name = HeaderName::try_from(format!("x-header-{number}")).expect("a name");
        headers.insert(name, HeaderValue::from_static("value"));
    }
    if let Some(context) = context {
        headers.insert("traceparent", HeaderValue::from_static(context));
    }
    headers
}

fn rows() -> Vec<Row> {
    let on = |ratio| Some(Tracer::new(ratio));
    let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    let row = |name, tracer, headers, has_goal| Row {
        name,
        tracer,
        headers,
        has_goal,
    };
    vec![
        row("off", None, headers(6, None), true),
        row(
            "on, not drawn, no context, 6 headers",
            on(0.0),
            headers(6, None),
            true,
        ),
        row(
            "on, not drawn, no context, 24 headers",
            on(0.0),
            headers(24, None),
            false,
        ),
        row(
            "on, not drawn, caller records nothing",
            on(0.0),
            headers(6, Some(unsampled)),
            true,
        ),
        row(
            "on, 1 % drawn and traced",
            on(0.01),
            headers(6, None),
            false,
        ),
    ]
}

/// Nanoseconds per check.
fn run(
    limiter: &Limiter<MemoryStore>,
    check: impl Fn(&mut Check<'_>, &Limiter<MemoryStore>),
) -> f64 {
    let mut asked = Check::new("api").descriptor([("api_key", "key-000000000000")]);
    let started = Instant::now();
    for _ in 0..CHECKS {
        check(black_box(&mut asked), limiter);
    }
    started.elapsed().as_nanos() as f64 / CHECKS as f64
}

fn without(check: &mut Check<'_>, limiter: &Limiter<MemoryStore>) {
    let now = limiter.clock().now();
    let allowed = limiter.ask_at(check, now, |ruling| ruling.decision.allowed());
    assert!(black_box(allowed));
}

/// As the server does it.
fn with(
    (tracer, headers): (&Option<Tracer>, &HeaderMap),
    check: &mut Check<'_>,
    limiter: &Limiter<MemoryStore>,
) {
    let now = limiter.clock().now();
    let call = TracedCall::check("rls");
    check.observer = tracer
        .as_ref()
        .and_then(|tracer| tracer.check(Some(headers), call));
    let allowed = limiter.ask_at(check, now, |ruling| ruling.decision.allowed());
    assert!(black_box(allowed));
}

/// Nanoseconds per decision, the least of several runs.
fn alone(tracer: &Option<Tracer>, headers: &HeaderMap) -> f64 {
    let once = || {
        let started = Instant::now();
        for _ in 0..CHECKS {
            let (tracer, headers) = (black_box(tracer), black_box(headers));
            let call = TracedCall::check("rls");
            let observer = tracer
                .as_ref()
                .and_then(|tracer| tracer.check(Some(headers), call));
            black_box(&observer);
        }
        started.elapsed().as_nanos() as f64 / CHECKS as f64
    };
    (0..21).map(|_| once()).fold(f64::INFINITY, f64::min)
}

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let pairs = if is_quick { 31 } else { 301 };
    let limiter = limiter();
    println!("ns a check, of the whole      with without    more [95 %]       decision alone");
    for row in rows() {
        let (tracer, mut queue) = row.tracer.unzip();
        let (tracer, headers) = black_box((tracer, row.headers));
        let mut empty = || queue.iter_mut().for_each(|queue| drop(queue.take()));
        let mut runs = Vec::with_capacity(pairs);
        for number in 0..=pairs {
            let ours = || {
                run(&limiter, |check, limiter| {
                    with((&tracer, &headers), check, limiter)
                })
            };
            let theirs = || run(&limiter, without);
            let pair = match number % 2 {
                0 => (ours(), theirs()),
                _ => {
                    let theirs = theirs();
                    (ours(), theirs)
                }
            };
            // Not a part of what a check costs its caller.
            empty();
            // The first pair warms caches.
            if number > 0 {
                runs.push(pair);
            }
        }
        let (more, (low, high)) = difference(&runs);
        let alone = alone(&tracer, &headers);
        let mean =
            |of: fn(&(f64, f64)) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
        let goal = match (row.has_goal, alone < GOAL) {
            (false, _) => "",
            (true, true) => "  goal (< 5) met",
            (true, false) => "  GOAL (< 5) MISSED",
        };
        println!(
            "{:<38} {:7.1} {:7.1} {more:7.1} [{low:.1}, {high:.1}] {alone:8.2}{goal}",
            row.name,
            mean(|run| run.0),
            mean(|run| run.1),
        );
    }
}
