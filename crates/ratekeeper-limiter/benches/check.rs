//! The whole check of a two-entry descriptor, from entries to decision, beside governor's
//! `check_key` given the same bytes. `--json` prints one object a line instead of the table.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use governor::{Quota, RateLimiter};
use ratekeeper_limiter::{Check, Limiter, LimiterOptions};
use ratekeeper_rules::{Options, Source, load};
use ratekeeper_store::memory::{MemoryConfig, MemoryStore};
use ratekeeper_testkit::paired::{Paired, on_threads, paired};

const RULES: &str = "
domain: api
tenant: api_key
descriptors:
  - key: api_key
    descriptors:
      - key: endpoint
        value: POST /api/v1/orders
        rate_limit: { unit: minute, requests_per_unit: 4000000000 }
";

/// Checks of one run and thread.
const CHECKS: usize = 400_000;

fn limiter() -> Limiter<MemoryStore> {
    let source = Source {
        name: "bench.yaml".to_owned(),
        text: RULES.to_owned(),
    };
    let loaded = load(&[source], &Options::default()).expect("the rules above");
    let store = MemoryStore::new(MemoryConfig::default()).expect("the default store");
    Limiter::new(loaded.rules, store, LimiterOptions::default())
}

/// Nanoseconds per check of each thread, every thread walking the keys from its own place.
fn run(threads: usize, keys: usize, check: impl Fn(usize) + Sync) -> f64 {
    on_threads(threads, |thread| {
        let started = Instant::now();
        let mut index = thread * keys / threads;
        for _ in 0..CHECKS {
            check(index);
            // A stride that is prime to every number of keys used here: no order to prefetch.
            index = (index + 7_368_787) % keys;
        }
        started.elapsed().as_nanos() as f64 / CHECKS as f64
    })
}

fn compare(threads: usize, keys: usize) -> Paired {
    let names: Vec<String> = (0..keys).map(|key| format!("key-{key:012}")).collect();
    let joined: Vec<String> = names
        .iter()
        .map(|name| format!("api|{name}|POST /api/v1/orders"))
        .collect();
    let limiter = limiter();
    let quota = Quota::per_second(NonZeroU32::MAX);
    let governor = RateLimiter::keyed(quota);
    let ours = |index: usize| {
        let mut check = Check::new("api");
        check.push([
            ("api_key", &*names[index]),
            ("endpoint", "POST /api/v1/orders"),
        ]);
        assert!(black_box(limiter.check_now(black_box(&check))).allowed());
    };
    let theirs = |index: usize| {
        assert!(black_box(governor.check_key(black_box(&joined[index]))).is_ok());
    };
    for index in 0..keys {
        ours(index);
        theirs(index);
    }
    paired(|| run(threads, keys, ours), || run(threads, keys, theirs))
}

/// Checks of one key and nothing else, for tools that count instructions:
/// `valgrind --tool=callgrind <bench> --instructions`.
fn instructions() {
    const TIMES: usize = 20_000;
    let limiter = limiter();
    let mut check = Check::new("api");
    check.push([
        ("api_key", "key-000000000000"),
        ("endpoint", "POST /api/v1/orders"),
    ]);
    for _ in 0..TIMES {
        assert!(black_box(limiter.check_now(black_box(&check))).allowed());
    }
    println!("{TIMES} checks");
}

fn main() {
    if std::env::args().any(|argument| argument == "--instructions") {
        return instructions();
    }
    let json = std::env::args().any(|argument| argument == "--json");
    if !json {
        println!("whole check, ns per check and thread    ours governor   ratio [95 %]");
    }
    for (threads, keys) in [(1, 1), (1, 1_000_000), (2, 1), (2, 1_000_000)] {
        let result = compare(threads, keys);
        let Paired {
            ours,
            theirs,
            ratio,
            interval: (low, high),
            pairs,
        } = result;
        if json {
            println!(
                r#"{{"bench":"whole check","threads":{threads},"keys":{keys},"ours_ns":{ours:.1},"governor_ns":{theirs:.1},"ratio":{ratio:.3},"low":{low:.3},"high":{high:.3},"pairs":{pairs}}}"#
            );
        } else {
            println!("{threads} thread, {keys:>9} keys             {result}");
        }
    }
}
