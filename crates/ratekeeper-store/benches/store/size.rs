//! Memory, the state file, and the startup time of the store.

use std::fs;
use std::time::Instant;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::{MemoryConfig, MemoryStore, Request, RuleSlot, Step};
use ratekeeper_testkit::process::own_resident_kib;

use crate::Report;
use crate::speed::{Namer, step};

const COUNTERS: u64 = 10_000_000;

/// Resident memory of this process in bytes.
fn resident() -> u64 {
    own_resident_kib() as u64 * 1_024
}

/// A store whose table has room for `counters` and a tenth more.
fn store_for(counters: u64) -> MemoryStore {
    let table = counters as usize * 57 * 11 / 10;
    let config = MemoryConfig {
        memory_limit: table / 3 * 4,
        max_share_percent: 100,
    };
    MemoryStore::new(config).expect("enough memory")
}

fn ten_an_hour(algorithm: Algorithm) -> Limit {
    let spec = LimitSpec::new(algorithm, 10, Micros::from_secs(3_600));
    Limit::try_new(spec).expect("a valid limit")
}

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);

fn fill(store: &MemoryStore, limit: &Limit, numbers: std::ops::Range<u64>, rules: u16) -> u64 {
    let namer = Namer::new();
    let mut admitted = 0;
    for number in numbers {
        let rule = RuleSlot((number % u64::from(rules)) as u16);
        let steps = [Step {
            rule,
            ..step(namer.number(number), limit)
        }];
        let request = Request::new(&steps, Mode::default(), NOW);
        admitted += u64::from(store.decide_now(&request).allowed);
    }
    admitted
}

pub(crate) fn bytes_per_counter(report: &Report) {
    report.title("resident bytes per counter, key included, 10 M keys, table 91 % full");
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::TokenBucket,
        Algorithm::Gcra,
        Algorithm::LeakyBucket,
    ] {
        let before = resident();
        let started = Instant::now();
        let store = store_for(COUNTERS);
        fill(&store, &ten_an_hour(algorithm), 0..COUNTERS, 1);
        let ns = started.elapsed().as_nanos() as f64 / COUNTERS as f64;
        let bytes = resident().saturating_sub(before) as f64;
        let stats = store.stats();
        let each = bytes / stats.counters as f64;
        report.line(
            "memory",
            algorithm.name(),
            format!(
                "{each:6.1} B   {} held, {} evicted, {ns:.0} ns each",
                stats.counters, stats.evicted_live
            ),
            &[
                ("bytes_per_counter", each),
                ("counters", stats.counters as f64),
                ("evicted", stats.evicted_live as f64),
                ("insert_ns", ns),
            ],
        );
    }
}

pub(crate) fn flood(report: &Report) {
    report.title("20 M new keys into 64 MiB, after 100 k counters were denied");
    let before = resident();
    let config = MemoryConfig {
        memory_limit: 64 << 20,
        ..MemoryConfig::default()
    };
    let store = MemoryStore::new(config).expect("64 MiB");
    let (once, ten) = (
        Limit::try_new(LimitSpec::new(Algorithm::Gcra, 1, Micros::from_secs(3_600))),
        ten_an_hour(Algorithm::SlidingWindow),
    );
    let once = once.expect("a valid limit");
    fill(&store, &once, 0..100_000, 8);
    let started = Instant::now();
    fill(&store, &ten, 1_000_000..21_000_000, 8);
    let ns = started.elapsed().as_nanos() as f64 / 20e6;
    let still_denied = 100_000 - fill(&store, &once, 0..100_000, 8);
    let (resident, stats) = (
        resident().saturating_sub(before) as f64 / f64::from(1 << 20),
        store.stats(),
    );
    report.line(
        "flood",
        "20 M keys",
        format!(
            "{resident:.1} MiB resident, {ns:.0} ns each, {still_denied} of 100000 still denied, {} evicted, {} refused",
            stats.evicted_live, stats.refused_full
        ),
        &[
            ("resident_mib", resident),
            ("ns", ns),
            ("still_denied", still_denied as f64),
            ("evicted", stats.evicted_live as f64),
        ],
    );
}

pub(crate) fn state_file(report: &Report) {
    report.title("state file, 10 M counters");
    let store = store_for(COUNTERS);
    fill(
        &store,
        &ten_an_hour(Algorithm::SlidingWindow),
        0..COUNTERS,
        1,
    );
    let path = std::env::temp_dir().join(format!("ratekeeper-bench-{}", std::process::id()));
    let started = Instant::now();
    let saved = store.save_file(&path, b"", NOW).expect("room on the disk");
    let save = started.elapsed().as_secs_f64();
    drop(store);
    let store = store_for(COUNTERS);
    let started = Instant::now();
    let loaded = store.load_file(&path, NOW).expect("what was saved");
    let load = started.elapsed().as_secs_f64();
    let _ = fs::remove_file(&path);
    let mib = saved.bytes as f64 / f64::from(1 << 20);
    report.line(
        "file",
        "10 M counters",
        format!(
            "{mib:.0} MiB, saved in {save:.2} s, loaded in {load:.2} s, {} dropped",
            loaded.dropped
        ),
        &[
            ("mib", mib),
            ("save_s", save),
            ("load_s", load),
            ("dropped", loaded.dropped as f64),
        ],
    );
}

pub(crate) fn start(report: &Report) {
    report.title("a new store of 1 GiB");
    let before = resident();
    let started = Instant::now();
    let config = MemoryConfig {
        memory_limit: 1 << 30,
        ..MemoryConfig::default()
    };
    let store = MemoryStore::new(config).expect("one gigabyte");
    let ms = started.elapsed().as_secs_f64() * 1e3;
    fill(&store, &ten_an_hour(Algorithm::SlidingWindow), 0..1_000, 1);
    let mib = resident().saturating_sub(before) as f64 / f64::from(1 << 20);
    report.line(
        "start",
        "1 GiB, then 1,000 counters",
        format!("{ms:.2} ms, {mib:.1} MiB resident"),
        &[("ms", ms), ("resident_mib", mib)],
    );
}
