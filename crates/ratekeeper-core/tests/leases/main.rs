//! Leases, simulated against core's rules: see [`ratekeeper_testkit::leases`]. `cargo xtask simulate` plays as many runs
//! as are wanted.

use ratekeeper_core::Algorithm;
use ratekeeper_testkit::leases::{
    LEASED_ALGORITHMS, LeaseGuard, LeaseSimulation, LeaseTotals, LeaseTrouble,
};

/// Runs of each algorithm.
const RUNS: u64 = 500;

fn run(seed: u64, algorithm: Algorithm, trouble: LeaseTrouble) -> LeaseSimulation {
    LeaseSimulation {
        seed,
        algorithm,
        trouble,
        without: None,
    }
}

/// Plays so many runs of each algorithm.
fn play(trouble: LeaseTrouble, runs: u64) -> Vec<(Algorithm, LeaseTotals)> {
    let totals = LEASED_ALGORITHMS.map(|algorithm| {
        let mut totals = LeaseTotals::default();
        for seed in 0..runs {
            match run(seed, algorithm, trouble).run_model() {
                Ok(these) => totals += these,
                Err(broken) => panic!("{broken}"),
            }
        }
        println!("{}, {trouble:?}: {totals:?}", algorithm.name());
        (algorithm, totals)
    });
    totals.to_vec()
}

#[test]
fn no_more_is_admitted_than_the_limit() {
    for (algorithm, totals) in play(LeaseTrouble::Usual, RUNS) {
        assert!(
            totals.from_leases > totals.admitted / 20,
            "{}: {totals:?}",
            algorithm.name()
        );
    }
}

#[test]
fn a_clock_that_goes_back_costs_no_more_than_another_window() {
    play(LeaseTrouble::ClockBack, RUNS / 4);
}

/// Hits that leases hold at that moment can be spent in addition, and no more.
#[test]
fn a_clock_that_goes_forward_admits_at_most_what_is_held_in_addition() {
    play(LeaseTrouble::ClockForward, RUNS / 4);
}

/// The replica that takes over has every grant that was spent.
#[test]
fn a_failover_admits_no_more_than_the_limit() {
    for (algorithm, totals) in play(LeaseTrouble::Failovers, RUNS / 4) {
        assert!(totals.from_leases > 0, "{}: {totals:?}", algorithm.name());
    }
}

#[test]
fn what_is_owed_is_charged_once_and_admits_no_more_than_the_limit() {
    play(LeaseTrouble::Owed, RUNS / 4);
}

/// Each guard, limits that need it, and the trouble in which they do.
const GUARDS: [(LeaseGuard, Algorithm, LeaseTrouble); 18] = {
    use LeaseTrouble::{Failovers, Owed, Usual};
    const FIXED: Algorithm = Algorithm::FixedWindow;
    const SLIDING: Algorithm = Algorithm::SlidingWindow;
    [
        (LeaseGuard::AtomicGrant, FIXED, Usual),
        (LeaseGuard::OneAnswer, FIXED, Usual),
        (LeaseGuard::IdempotentGrant, FIXED, Usual),
        (LeaseGuard::SendTime, FIXED, Usual),
        (LeaseGuard::SendTime, Algorithm::TokenBucket, Usual),
        (LeaseGuard::NotBefore, FIXED, Usual),
        (LeaseGuard::WindowEnd, FIXED, Usual),
        (LeaseGuard::SingleReturn, FIXED, Usual),
        (LeaseGuard::Until, FIXED, Usual),
        (LeaseGuard::OldestReturn, SLIDING, Usual),
        (LeaseGuard::Lead, SLIDING, Usual),
        (LeaseGuard::OwnPart, SLIDING, Usual),
        (LeaseGuard::Generation, FIXED, Usual),
        (LeaseGuard::SmallerBurst, Algorithm::TokenBucket, Usual),
        (LeaseGuard::Burn, Algorithm::Gcra, Usual),
        (LeaseGuard::Replicated, FIXED, Failovers),
        (LeaseGuard::Replicated, SLIDING, Failovers),
        (LeaseGuard::SinglePost, FIXED, Owed),
    ]
};

/// The most runs in which a promise is looked for that breaks.
const TRIES: u64 = 1_000;

#[test]
fn every_guard_is_needed() {
    let mut unneeded = Vec::new();
    for (guard, algorithm, trouble) in GUARDS {
        let broken = |seed| {
            let without = LeaseSimulation {
                without: Some(guard),
                ..run(seed, algorithm, trouble)
            };
            Some((seed, without.run_model().err()?))
        };
        match (0..TRIES).find_map(broken) {
            Some((seed, broken)) => {
                let what = broken.lines().next().unwrap_or_default();
                println!("without {guard:?}, seed {seed}: {what}");
            }
            None => unneeded.push((guard, algorithm)),
        }
    }
    assert_eq!(unneeded, [], "nothing breaks without them");
}
