//! Leases, simulated against core's rules: see [`ratekeeper_testkit::leases`]. `cargo xtask simulate` plays as many runs
//! as are wanted.

use ratekeeper_core::Algorithm;
use ratekeeper_testkit::leases::{
    LEASED_ALGORITHMS, LeaseGuard, LeaseSimulation, LeaseTotals, LeaseTrouble,
};

/// Runs of each algorithm.
const RUNS: u64 = 400;

const fn run(seed: u64, algorithm: Algorithm, trouble: LeaseTrouble) -> LeaseSimulation {
    LeaseSimulation {
        seed,
        algorithm,
        trouble,
        without: None,
    }
}

/// Plays so many runs of each algorithm, in which leases are used.
fn play(trouble: LeaseTrouble, runs: u64) {
    for algorithm in LEASED_ALGORITHMS {
        let mut totals = LeaseTotals::default();
        for seed in 0..runs {
            match run(seed, algorithm, trouble).run_model() {
                Ok(these) => totals += these,
                Err(broken) => panic!("{broken}"),
            }
        }
        println!("{}, {trouble:?}: {totals:?}", algorithm.name());
        assert!(totals.from_leases > totals.admitted / 10, "{totals:?}");
    }
}

#[test]
fn no_more_is_admitted_than_the_limit() {
    play(LeaseTrouble::Usual, RUNS);
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

/// The replica that takes over has every lease that was spent.
#[test]
fn a_failover_admits_no_more_than_the_limit() {
    play(LeaseTrouble::Failovers, RUNS / 4);
}

#[test]
fn what_is_owed_is_charged_once_and_admits_no_more_than_the_limit() {
    play(LeaseTrouble::Owed, RUNS / 4);
}

#[test]
fn leases_that_are_spent_at_their_end_admit_no_more_than_the_limit() {
    for algorithm in LEASED_ALGORITHMS {
        let mut totals = LeaseTotals::default();
        for seed in 0..RUNS / 4 {
            let ran = run(seed, algorithm, LeaseTrouble::LateReports).run_model();
            totals += ran.unwrap_or_else(|broken| panic!("{broken}"));
        }
        // Nearly all is asked for at once, when no lease is worth its call.
        assert!(totals.from_leases > RUNS / 4, "{totals:?}");
    }
}

/// The most runs in which a promise is looked for that breaks.
const TRIES: u64 = 2_000;

/// Without `guard`, some run admits too much.
fn breaks_without(guard: LeaseGuard, algorithms: &[Algorithm], trouble: LeaseTrouble) {
    let broken = |seed| {
        let mut runs = algorithms.iter().map(|algorithm| LeaseSimulation {
            without: Some(guard),
            ..run(seed, *algorithm, trouble)
        });
        runs.find_map(|run| run.run_model().err())
    };
    let found = (0..TRIES).find_map(|seed| Some((seed, broken(seed)?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("nothing breaks without {guard:?}"));
    println!("without {guard:?}, seed {seed}: {broken}");
}

#[test]
fn room_is_less_what_others_hold() {
    breaks_without(LeaseGuard::Room, &LEASED_ALGORITHMS, LeaseTrouble::Usual);
}

#[test]
fn a_deadline_needs_its_margin() {
    breaks_without(LeaseGuard::Margin, &LEASED_ALGORITHMS, LeaseTrouble::Usual);
}

#[test]
fn what_was_spent_is_charged_as_of_its_report() {
    let algorithms = [Algorithm::TokenBucket, Algorithm::Gcra];
    breaks_without(LeaseGuard::Date, &algorithms, LeaseTrouble::LateReports);
}

#[test]
fn a_lease_that_is_over_is_charged() {
    breaks_without(
        LeaseGuard::ExpiryCharge,
        &LEASED_ALGORITHMS,
        LeaseTrouble::Usual,
    );
}

#[test]
fn an_older_call_changes_nothing() {
    breaks_without(LeaseGuard::Number, &LEASED_ALGORITHMS, LeaseTrouble::Usual);
}

#[test]
fn an_earlier_session_is_charged() {
    breaks_without(LeaseGuard::Since, &LEASED_ALGORITHMS, LeaseTrouble::Usual);
}

#[test]
fn what_is_spent_while_a_call_is_on_its_way_counts() {
    breaks_without(
        LeaseGuard::Snapshot,
        &LEASED_ALGORITHMS,
        LeaseTrouble::Usual,
    );
}

#[test]
fn what_is_put_back_late_stays_spent() {
    breaks_without(
        LeaseGuard::Generation,
        &LEASED_ALGORITHMS,
        LeaseTrouble::Usual,
    );
}

#[test]
fn a_check_does_not_spend_what_was_held_after_it_read_its_clock() {
    breaks_without(
        LeaseGuard::NotBefore,
        &[Algorithm::FixedWindow],
        LeaseTrouble::Usual,
    );
}

#[test]
fn a_lease_is_spent_only_once_the_replica_has_it() {
    breaks_without(
        LeaseGuard::Replicated,
        &LEASED_ALGORITHMS,
        LeaseTrouble::Failovers,
    );
}

#[test]
fn a_counter_outlives_its_leases() {
    let algorithms = [Algorithm::TokenBucket, Algorithm::Gcra];
    breaks_without(LeaseGuard::KeyLife, &algorithms, LeaseTrouble::Usual);
}

#[test]
fn what_may_still_be_spent_is_not_freed() {
    breaks_without(
        LeaseGuard::OpenWord,
        &LEASED_ALGORITHMS,
        LeaseTrouble::Usual,
    );
}
