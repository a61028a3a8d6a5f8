//! Plays runs of the lease simulation on all cores, until they are done or one breaks a promise.
//!
//! ```text
//! simulate [--seeds N] [--seed S]
//! ```

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ratekeeper_testkit::leases::{LEASED_ALGORITHMS, LeaseSimulation, LeaseTotals, LeaseTrouble};

const TROUBLES: [LeaseTrouble; 6] = [
    LeaseTrouble::Usual,
    LeaseTrouble::ClockBack,
    LeaseTrouble::ClockForward,
    LeaseTrouble::Failovers,
    LeaseTrouble::Owed,
    LeaseTrouble::LateReports,
];

/// The time between two lines of progress.
const EVERY: Duration = Duration::from_secs(5);

/// The seeds to play, each with every algorithm and every trouble.
struct Seeds {
    from: u64,
    count: u64,
    next: AtomicU64,
    is_over: AtomicBool,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some(seeds) = read(&args) else {
        eprintln!("usage: simulate [--seeds N] [--seed S]");
        return ExitCode::from(2);
    };
    let begun = Instant::now();
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let ended = thread::scope(|scope| {
        scope.spawn(|| tell_progress(&seeds, begun));
        let players: Vec<_> = (0..threads).map(|_| scope.spawn(|| play(&seeds))).collect();
        let ended = players
            .into_iter()
            .map(|it| it.join().expect("it does not panic"));
        let ended: Vec<_> = ended.collect();
        seeds.is_over.store(true, Ordering::Relaxed);
        ended
    });
    let mut totals = LeaseTotals::default();
    for ended in ended {
        match ended {
            Ok(these) => totals += these,
            Err(broken) => {
                eprintln!("{broken}");
                return ExitCode::FAILURE;
            }
        }
    }
    let runs = seeds.count * (LEASED_ALGORITHMS.len() * TROUBLES.len()) as u64;
    println!(
        "{runs} runs of {} seeds in {:.0?}, no promise broken: {totals:?}",
        seeds.count,
        begun.elapsed()
    );
    ExitCode::SUCCESS
}

/// [`None`] if the arguments cannot be read. One seed alone is played again by `--seed`.
fn read(args: &[String]) -> Option<Seeds> {
    let (mut from, mut count) = (0, None);
    for pair in args.chunks(2) {
        let [name, value] = pair else { return None };
        let value = value.parse().ok()?;
        match name.as_str() {
            "--seeds" => count = Some(value),
            "--seed" => (from, count) = (value, count.or(Some(1))),
            _ => return None,
        }
    }
    Some(Seeds {
        from,
        count: count.unwrap_or(10_000),
        next: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    })
}

fn play(seeds: &Seeds) -> Result<LeaseTotals, String> {
    let mut totals = LeaseTotals::default();
    while !seeds.is_over.load(Ordering::Relaxed) {
        let number = seeds.next.fetch_add(1, Ordering::Relaxed);
        if number >= seeds.count {
            break;
        }
        for algorithm in LEASED_ALGORITHMS {
            for trouble in TROUBLES {
                let run = LeaseSimulation {
                    seed: seeds.from.wrapping_add(number),
                    algorithm,
                    trouble,
                    without: None,
                };
                totals += run.run_model().inspect_err(|_| {
                    seeds.is_over.store(true, Ordering::Relaxed);
                })?;
            }
        }
    }
    Ok(totals)
}

fn tell_progress(seeds: &Seeds, begun: Instant) {
    let mut told = begun;
    while !seeds.is_over.load(Ordering::Relaxed) {
        thread::sleep(Duration::from_millis(50));
        if told.elapsed() >= EVERY {
            told = Instant::now();
            let done = seeds.next.load(Ordering::Relaxed).min(seeds.count);
            println!("{done} of {} seeds, {:.0?}", seeds.count, begun.elapsed());
        }
    }
}
