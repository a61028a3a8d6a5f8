//! Nanoseconds of one test and charge, per algorithm, in cache: `cargo bench -p ratekeeper-core`.
//!
//! Each figure is the fastest of several rounds of the same steps, because disturbances only ever
//! slow a round down. The clock of the steps advances by an odd number of microseconds, so that
//! sub-windows begin and hits leave at all positions.

#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of measurements, and of tests, are rounded on purpose"
)]

use ratekeeper_core::{
    Algorithm, Ask, Limit, LimitSpec, Micros, Moment, State, StateMut, StateRef, Timestamp, Words,
};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;
const STEPS: u64 = 200_000;

/// A limit with this quota: a minute's window, a millisecond for concurrency.
fn limit(algorithm: Algorithm, quota: u64, sub_windows: Option<u32>) -> Limit {
    let window = match algorithm {
        Algorithm::Concurrency => Micros::from_millis(1),
        _ => Micros::from_secs(60),
    };
    let spec = LimitSpec::new(algorithm, quota, window);
    Limit::try_new(LimitSpec {
        sub_windows,
        ..spec
    })
    .expect("a valid limit")
}

/// The fastest round, in nanoseconds a step.
fn fastest(mut round: impl FnMut()) -> f64 {
    let rounds = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() as f64 / STEPS as f64
    });
    rounds.fold(f64::INFINITY, f64::min)
}

fn moment(step: u64, gap: u64) -> Moment {
    Moment::at(Timestamp::from_micros(1_700_000_000_000_000 + step * gap))
}

/// Steps on a counter kept inline, as a store takes them.
fn in_words(limit: &Limit, gap: u64) -> f64 {
    fastest(|| {
        let mut words: Words = [0; 4];
        let limit = black_box(limit);
        for step in 0..STEPS {
            let at = moment(step, gap);
            let outcome = limit.test(StateRef::Words(&words), Ask::hits(black_box(1)), &at);
            let hits = i64::from(outcome.fits());
            black_box(&outcome);
            let charged = limit.charge(StateMut::Words(&mut words), hits, &at);
            black_box(charged.is_ok());
        }
        black_box(&words);
    })
}

/// Steps on an owned state, inline or on the heap.
fn anywhere(limit: &Limit, gap: u64) -> f64 {
    fastest(|| {
        let mut state = State::new(limit.shape());
        let limit = black_box(limit);
        for step in 0..STEPS {
            black_box(limit.step(&mut state, black_box(1), &moment(step, gap)));
        }
        black_box(&state);
    })
}

/// An algorithm with a name and, for a sliding window, its sub-windows.
struct Case {
    name: &'static str,
    algorithm: Algorithm,
    sub_windows: Option<u32>,
}

impl Case {
    const fn of(name: &'static str, algorithm: Algorithm, sub_windows: Option<u32>) -> Self {
        Self {
            name,
            algorithm,
            sub_windows,
        }
    }

    /// Measures the steps with a quota that always admits and one that rarely does.
    fn measure(&self, quotas: [u64; 2], steps: impl Fn(&Limit) -> f64) {
        let [admitting, denying] =
            quotas.map(|quota| steps(&limit(self.algorithm, quota, self.sub_windows)));
        println!("{:<34} {admitting:>9.1} {denying:>9.1}", self.name);
    }
}

const IN_WORDS: [Case; 7] = [
    Case::of("fixed_window", Algorithm::FixedWindow, None),
    Case::of("sliding_window", Algorithm::SlidingWindow, None),
    Case::of(
        "sliding_window, 1 sub-window",
        Algorithm::SlidingWindow,
        Some(1),
    ),
    Case::of(
        "sliding_window, 12 sub-windows",
        Algorithm::SlidingWindow,
        Some(12),
    ),
    Case::of("token_bucket", Algorithm::TokenBucket, None),
    Case::of("gcra", Algorithm::Gcra, None),
    Case::of("leaky_bucket", Algorithm::LeakyBucket, None),
];

const ON_THE_HEAP: [Case; 4] = [
    Case::of(
        "sliding_window, 13 sub-windows",
        Algorithm::SlidingWindow,
        Some(13),
    ),
    Case::of(
        "sliding_window, 60 sub-windows",
        Algorithm::SlidingWindow,
        Some(60),
    ),
    Case::of("sliding_log", Algorithm::SlidingLog, None),
    Case::of("concurrency", Algorithm::Concurrency, None),
];

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // `cargo bench` passes this; `cargo test --benches` does not, and has nothing to measure.
    if !args.iter().any(|arg| arg == "--bench") {
        return;
    }
    // An argument selects the algorithms whose names contain it.
    let word = args.iter().find(|arg| !arg.starts_with('-'));
    let selected = |case: &&Case| word.is_none_or(|word| case.name.contains(word.as_str()));
    println!(
        "{:<34} {:>9} {:>9}",
        "ns per test and charge", "admitting", "denying"
    );
    for case in IN_WORDS.iter().filter(selected) {
        case.measure([60_000, 600], |limit| in_words(limit, 1_117));
    }
    for case in ON_THE_HEAP.iter().filter(selected) {
        case.measure([10_000, 100], |limit| anywhere(limit, 7_117));
    }
}
