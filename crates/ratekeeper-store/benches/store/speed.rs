//! Nanoseconds per decision, compared with governor's `check_key` for the same bytes.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::time::Instant;

use governor::clock::{Clock, FakeRelativeClock};
use governor::{Quota, RateLimiter};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{CounterKey, MemoryConfig, MemoryStore, Request, Step};
use ratekeeper_testkit::paired::{Paired, on_threads, paired};
use siphasher::sip::SipHasher13;

use crate::Report;

/// Decisions per run and thread.
const DECISIONS: usize = 300_000;

/// The length of the key's prefix that names its subject.
const SUBJECT: usize = 24;

/// Keys in the order of their use, so that reading the keys themselves costs neither side a cache
/// miss.
fn keys(count: usize) -> Vec<String> {
    (0..count)
        .map(|index| {
            let number = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
            format!("api|key-{number:016}|POST /api/v1/orders")
        })
        .collect()
}

/// A keyed hash like the limiter's.
pub(crate) struct Namer(SipHasher13);

impl Namer {
    pub(crate) fn new() -> Self {
        Self(SipHasher13::new_with_key(b"sixteen bytes!!!"))
    }

    fn key(&self, key: &str) -> CounterKey {
        CounterKey {
            subject: self.0.hash(&key.as_bytes()[..SUBJECT]),
            identity: self.0.hash(key.as_bytes()),
        }
    }

    pub(crate) fn number(&self, number: u64) -> CounterKey {
        let bytes = number.to_le_bytes();
        CounterKey {
            subject: self.0.hash(&bytes[..4]),
            identity: self.0.hash(&bytes),
        }
    }
}

pub(crate) fn step(key: CounterKey, limit: &Limit) -> Step {
    Step::new(key, *limit)
}

fn store() -> MemoryStore {
    let config = MemoryConfig {
        memory_limit: 256 << 20,
        max_share_percent: 100,
    };
    MemoryStore::new(config).expect("a quarter of a gigabyte")
}

/// A limit that never denies here.
fn wide(algorithm: Algorithm) -> Limit {
    let spec = LimitSpec::new(algorithm, 1_000_000, Micros::from_secs(1));
    let spec = match algorithm {
        Algorithm::Gcra | Algorithm::TokenBucket => LimitSpec {
            burst: Some(u64::from(u32::MAX)),
            ..spec
        },
        _ => LimitSpec {
            quota: u64::from(u32::MAX),
            window: Micros::from_secs(60),
            ..spec
        },
    };
    Limit::try_new(spec).expect("a valid limit")
}

/// Nanoseconds per decision of each thread; every thread starts at a different key.
fn run(threads: usize, keys: usize, decide: impl Fn(usize) + Sync) -> f64 {
    on_threads(threads, |thread| {
        let started = Instant::now();
        let mut index = (thread * keys / threads + offset(keys)) % keys;
        for _ in 0..DECISIONS {
            decide(index);
            index += 1;
            if index == keys {
                index = 0;
            }
        }
        started.elapsed().as_nanos() as f64 / DECISIONS as f64
    })
}

/// A different start for every run, so that none finds the keys of the last one cached.
fn offset(keys: usize) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    RUNS.fetch_add(DECISIONS, Ordering::Relaxed) % keys
}

fn compare(threads: usize, count: usize, clock: &Governors) -> Paired {
    let keys = keys(count);
    let (store, namer, limit) = (store(), Namer::new(), wide(Algorithm::Gcra));
    let now = Timestamp::from_secs(1_800_000_000);
    let ours = |index: usize| {
        let steps = [step(namer.key(&keys[index]), &limit)];
        let request = Request::new(&steps, Mode::default(), now);
        let verdicts = store.decide_now(black_box(&request));
        assert!(black_box(&verdicts).allowed);
    };
    (0..count)
        .map(|index| elsewhere(index, count))
        .for_each(ours);
    match clock {
        Governors::Own => {
            let governor = RateLimiter::keyed(quota());
            against(threads, count, ours, |index| {
                governor.check_key(&keys[index]).is_ok()
            })
        }
        Governors::None => {
            let governor = RateLimiter::dashmap_with_clock(quota(), FakeRelativeClock::default());
            against(threads, count, ours, |index| {
                governor.check_key(&keys[index]).is_ok()
            })
        }
    }
}

/// An order of insertion that differs from the order of use, so that neither side's memory is laid
/// out in the order of the run.
fn elsewhere(index: usize, keys: usize) -> usize {
    // A prime that divides none of the key counts.
    (index * 7_368_787) % keys
}

fn quota() -> Quota {
    Quota::per_second(NonZeroU32::MIN.saturating_add(999_999)).allow_burst(NonZeroU32::MAX)
}

/// Governor's clock.
enum Governors {
    /// Its default clock.
    Own,
    /// A paused clock, comparable to our store, which gets the time as an argument.
    None,
}

fn against(
    threads: usize,
    count: usize,
    ours: impl Fn(usize) + Sync,
    theirs: impl Fn(usize) -> bool + Sync,
) -> Paired {
    let theirs = |index: usize| assert!(black_box(theirs(index)));
    (0..count)
        .map(|index| elsewhere(index, count))
        .for_each(theirs);
    paired(
        || run(threads, count, &ours),
        || run(threads, count, theirs),
    )
}

pub(crate) fn beside_governor(report: &Report) {
    report.title(
        "one gcra decision, ns per thread, hashing included       ours  governor  ratio [95 %]",
    );
    for (clock, name) in [(Governors::Own, ""), (Governors::None, ", no clock")] {
        for (threads, keys) in [(1, 1), (1, 1_000_000), (2, 1), (2, 1_000_000)] {
            let result = compare(threads, keys, &clock);
            let name = format!("{threads} thread, {keys} keys{name}");
            pair(report, &name, &result);
        }
    }
}

fn pair(report: &Report, name: &str, result: &Paired) {
    let Paired {
        ours,
        theirs,
        ratio,
        interval: (low, high),
        pairs,
    } = *result;
    report.line(
        "store step",
        name,
        result,
        &[
            ("ours_ns", ours),
            ("governor_ns", theirs),
            ("ratio", ratio),
            ("low", low),
            ("high", high),
            ("pairs", pairs as f64),
        ],
    );
}

/// Every algorithm by itself, admitting and denying, with one key and a million.
pub(crate) fn algorithms(report: &Report) {
    report
        .title("ns per decision, one thread                   1 key    1 M keys    1 key, denied");
    let now = Timestamp::from_secs(1_800_000_000);
    for algorithm in Algorithm::ALL {
        if matches!(algorithm, Algorithm::SlidingLog | Algorithm::Concurrency) {
            continue;
        }
        let (wide, none) = (
            wide(algorithm),
            LimitSpec::new(algorithm, 1, Micros::from_secs(60)),
        );
        let none = Limit::try_new(none).expect("a valid limit");
        let (store, namer, keys) = (store(), Namer::new(), keys(1_000_000));
        let decide = |limit: &Limit, index: usize| {
            let steps = [step(namer.key(&keys[index]), limit)];
            let request = Request::new(&steps, Mode::default(), now);
            black_box(store.decide_now(black_box(&request)).allowed);
        };
        let best = |keys: usize, limit: &Limit| {
            (0..keys).for_each(|index| decide(limit, index));
            let runs = (0..9).map(|_| run(1, keys, |index| decide(limit, index)));
            runs.fold(f64::INFINITY, f64::min)
        };
        let (one, denied, many) = (best(1, &wide), best(1, &none), best(1_000_000, &wide));
        report.line(
            "algorithm",
            algorithm.name(),
            format!("{one:8.1} {many:10.1} {denied:12.1}"),
            &[
                ("one_key_ns", one),
                ("million_keys_ns", many),
                ("denied_ns", denied),
            ],
        );
    }
    several_steps(report);
    let clock = governor::clock::DefaultClock::default();
    let one = run(1, 1, |_| {
        black_box(clock.now());
    });
    report.line(
        "algorithm",
        "governor's clock alone",
        format!("{one:8.1}"),
        &[("one_key_ns", one)],
    );
}

/// Requests with several steps on different counters, in as many shards.
fn several_steps(report: &Report) {
    let (store, namer, limit) = (store(), Namer::new(), wide(Algorithm::Gcra));
    let now = Timestamp::from_secs(1_800_000_000);
    let steps = [0, 1, 2, 3].map(|number| step(namer.number(number), &limit));
    for count in [2, 4] {
        let steps = &steps[..count];
        let mode = Mode::default();
        let request = Request::new(steps, mode, now);
        let runs = (0..9).map(|_| {
            run(1, 1, |_| {
                assert!(black_box(&store.decide_now(black_box(&request))).allowed);
            })
        });
        let best = runs.fold(f64::INFINITY, f64::min);
        let name = format!("{count} gcra steps of one request, not hashed");
        let text = format!("{best:8.1}");
        report.line("steps", &name, text, &[("one_key_ns", best)]);
    }
}
