//! Loans between regions, simulated: see [`ratekeeper_testkit::regions`].

use ratekeeper_core::region::loans::LoanKind;
use ratekeeper_testkit::regions::{
    RegionGuard, RegionScenario, RegionSimulation, RegionTotals, RegionTraffic, RegionTrouble,
};

/// The worlds of each kind of trouble.
const WORLDS: u64 = 1_000;

/// The most worlds in which a promise is looked for that breaks.
const TRIES: u64 = 3_000;

const fn world(seed: u64, trouble: RegionTrouble) -> RegionSimulation {
    RegionSimulation {
        seed,
        trouble,
        without: None,
    }
}

fn play(trouble: RegionTrouble) {
    let mut totals = RegionTotals::default();
    for seed in 0..WORLDS {
        match world(seed, trouble).run() {
            Ok(these) => totals += these,
            Err(broken) => panic!("{broken}"),
        }
    }
    println!("{trouble:?}: {totals:?}");
    assert!(totals.lending > WORLDS / 2, "regions lend: {totals:?}");
    assert!(totals.admitted > 20 * WORLDS, "requests pass: {totals:?}");
    // Only where stores count hits one by one and their replicas had not got them yet.
    assert!(totals.forgotten < WORLDS / 20, "{totals:?}");
}

#[test]
fn no_more_passes_in_all_regions_than_the_limit() {
    play(RegionTrouble::Usual);
}

#[test]
fn neither_late_messages_nor_clocks_let_more_pass() {
    play(RegionTrouble::Timing);
}

#[test]
fn a_region_that_is_cut_off_with_a_loan_lets_no_more_pass() {
    play(RegionTrouble::Shift);
}

#[test]
fn answers_that_are_lost_until_loans_are_over_let_no_more_pass() {
    play(RegionTrouble::Silence);
}

#[test]
fn weights_that_change_while_loans_stand_let_no_more_pass() {
    play(RegionTrouble::Weights);
}

/// Without `guard`, some world breaks.
fn breaks_without(guard: RegionGuard, trouble: RegionTrouble) {
    let broken = |seed| {
        let run = RegionSimulation {
            without: Some(guard),
            ..world(seed, trouble)
        };
        run.run().err()
    };
    let found = (0..TRIES).find_map(|seed| Some((seed, broken(seed)?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("nothing breaks without {guard:?}"));
    println!("without {guard:?}, seed {seed}: {broken}");
}

#[test]
fn what_is_used_is_not_lent() {
    breaks_without(RegionGuard::Room, RegionTrouble::Usual);
}

#[test]
fn what_is_lent_is_said_for_each_window() {
    breaks_without(RegionGuard::WindowNumbers, RegionTrouble::Usual);
}

#[test]
fn what_was_lent_in_earlier_windows_stays_lent() {
    breaks_without(RegionGuard::KeptPieces, RegionTrouble::Usual);
}

#[test]
fn a_renewal_adds_no_window_that_others_have() {
    breaks_without(RegionGuard::Renewals, RegionTrouble::Usual);
}

#[test]
fn hits_of_a_loan_that_is_over_count_for_a_window() {
    breaks_without(RegionGuard::Tail, RegionTrouble::Shift);
}

#[test]
fn a_lender_waits_for_the_window_of_a_log() {
    breaks_without(RegionGuard::LogWindow, RegionTrouble::Shift);
}

#[test]
fn a_loan_s_time_counts_from_the_sending_of_the_ask() {
    breaks_without(RegionGuard::FromSending, RegionTrouble::Timing);
}

#[test]
fn only_the_answer_to_the_latest_ask_counts() {
    breaks_without(RegionGuard::LatestAnswer, RegionTrouble::Usual);
}

#[test]
fn old_asks_change_nothing() {
    breaks_without(RegionGuard::OldAsks, RegionTrouble::Usual);
}

#[test]
fn late_asks_bring_nothing_back() {
    breaks_without(RegionGuard::LateAsks, RegionTrouble::Timing);
}

#[test]
fn asks_and_answers_leave_once_they_are_replicated() {
    breaks_without(RegionGuard::Replicated, RegionTrouble::Usual);
}

#[test]
fn a_clock_that_stepped_back_ends_loans() {
    breaks_without(RegionGuard::Generation, RegionTrouble::Usual);
}

#[test]
fn a_cold_start_ends_loans() {
    breaks_without(RegionGuard::ColdStart, RegionTrouble::Timing);
}

#[test]
fn a_share_grows_once_all_others_have_shrunk() {
    breaks_without(RegionGuard::ShrunkFirst, RegionTrouble::Weights);
}

#[test]
fn a_region_that_has_lent_more_than_it_owns_does_not_report() {
    breaks_without(RegionGuard::Overlent, RegionTrouble::Weights);
}

#[test]
fn hits_under_the_old_share_leave_before_a_region_reports() {
    breaks_without(RegionGuard::OldHits, RegionTrouble::Weights);
}

#[test]
fn what_is_in_a_bucket_stays_when_its_share_changes() {
    breaks_without(RegionGuard::Level, RegionTrouble::Usual);
}

#[test]
fn tokens_that_come_to_a_bucket_have_left_another() {
    breaks_without(RegionGuard::Tokens, RegionTrouble::Silence);
}

#[test]
fn tokens_that_were_taken_do_not_come_back() {
    breaks_without(RegionGuard::Taken, RegionTrouble::Usual);
}

#[test]
fn tokens_of_a_loan_that_is_over_do_not_come_back() {
    breaks_without(RegionGuard::OverTokens, RegionTrouble::Silence);
}

#[test]
fn what_nodes_hold_in_leases_is_not_lent() {
    breaks_without(RegionGuard::Leased, RegionTrouble::Usual);
}

/// Loans give back nearly all that fixed shares lose of traffic which is not split like them.
#[test]
fn loans_follow_the_traffic() {
    for (traffic, lost_by_shares, lost_by_loans) in [
        (RegionTraffic::Skewed, 400, 20),
        (RegionTraffic::SkewedOver, 400, 30),
        (RegionTraffic::Moving, 50, 20),
        (RegionTraffic::FlashCrowd, 50, 20),
        (RegionTraffic::CutOff, 400, 20),
    ] {
        let run = |lends| {
            let scenario = RegionScenario {
                seed: 1,
                traffic,
                lends,
                kind: LoanKind::Windows,
                nodes: 1,
            };
            scenario.run().unwrap_or_else(|broken| panic!("{broken}"))
        };
        let (shares, loans) = (run(false), run(true));
        println!(
            "{traffic:?}: of 1,000 lost {} by shares, {} by loans, {} messages in 1,000 s",
            shares.lost(),
            loans.lost(),
            loans.messages
        );
        assert!(shares.lost() > lost_by_shares, "{traffic:?}: {shares:?}");
        assert!(loans.lost() <= lost_by_loans, "{traffic:?}: {loans:?}");
        assert_eq!(shares.messages, 0);
        assert!(loans.messages < 6_000, "{traffic:?}: {loans:?}");
    }
}

/// The same of logs and buckets. What one counter would have let pass is taken to be what a fixed window would have.
#[test]
fn loans_for_a_time_follow_the_traffic_too() {
    for kind in [LoanKind::Log, LoanKind::Bucket] {
        for (traffic, lost_by_shares, lost_by_loans) in [
            (RegionTraffic::Skewed, 300, 30),
            (RegionTraffic::FlashCrowd, 50, 30),
            (RegionTraffic::CutOff, 300, 30),
        ] {
            let run = |lends| {
                let scenario = RegionScenario {
                    seed: 1,
                    traffic,
                    lends,
                    kind,
                    nodes: 1,
                };
                scenario.run().unwrap_or_else(|broken| panic!("{broken}"))
            };
            let (shares, loans) = (run(false), run(true));
            println!(
                "{kind:?}, {traffic:?}: of 1,000 lost {} by shares, {} by loans, {} messages in 1,000 s",
                shares.lost(),
                loans.lost(),
                loans.messages
            );
            assert!(shares.lost() > lost_by_shares, "{traffic:?}: {shares:?}");
            assert!(loans.lost() <= lost_by_loans, "{traffic:?}: {loans:?}");
            assert!(loans.messages < 6_000, "{traffic:?}: {loans:?}");
        }
    }
}

/// A node sees a part of its region's demand: what is used tells the rest.
#[test]
fn loans_follow_the_traffic_that_other_nodes_see() {
    for kind in [LoanKind::Windows, LoanKind::Log, LoanKind::Bucket] {
        let scenario = RegionScenario {
            seed: 1,
            traffic: RegionTraffic::Skewed,
            lends: true,
            kind,
            nodes: 3,
        };
        let outcome = scenario.run().unwrap_or_else(|broken| panic!("{broken}"));
        println!("{kind:?}: of 1,000 lost {}", outcome.lost());
        assert!(outcome.lost() <= 20, "{kind:?}: {outcome:?}");
    }
}
