//! Limits that regions count together, simulated: see [`ratekeeper_testkit::counting`].

use ratekeeper_testkit::counting::{
    CountingGuard, CountingSimulation, CountingTotals, CountingTrouble,
};

/// The worlds of each kind.
const WORLDS: u64 = 300;

/// The most worlds in which a bound is looked for that breaks.
const TRIES: u64 = 1_000;

const fn world(seed: u64, trouble: CountingTrouble) -> CountingSimulation {
    CountingSimulation {
        seed,
        trouble,
        without: None,
    }
}

fn play(trouble: CountingTrouble) -> CountingTotals {
    let mut totals = CountingTotals::default();
    for seed in 0..WORLDS {
        match world(seed, trouble).run() {
            Ok(these) => totals += these,
            Err(broken) => panic!("{broken}"),
        }
    }
    println!("{trouble:?}: {totals:?}");
    assert!(
        totals.full > totals.windows / 2,
        "limits are used up: {totals:?}"
    );
    assert!(totals.exceeded > 0, "some pass: {totals:?}");
    totals
}

#[test]
fn connected_regions_admit_what_others_cannot_know_of_yet() {
    play(CountingTrouble::Clocks);
}

#[test]
fn regions_that_are_cut_off_stay_within_their_bounds() {
    let totals = play(CountingTrouble::Cut);
    assert!(totals.apart > WORLDS, "{totals:?}");
}

#[test]
fn regions_come_and_go_within_their_bounds() {
    play(CountingTrouble::Change);
}

/// Without `guard`, some world breaks, as `why` says.
fn breaks_without(guard: CountingGuard, trouble: CountingTrouble, why: &str) {
    let broken = |seed| {
        let run = CountingSimulation {
            without: Some(guard),
            ..world(seed, trouble)
        };
        run.run().err().filter(|broken| broken.contains(why))
    };
    let found = (0..TRIES).find_map(|seed| Some((seed, broken(seed)?)));
    let (seed, broken) = found.unwrap_or_else(|| panic!("nothing breaks without {guard:?}"));
    println!("without {guard:?}, seed {seed}: {broken}");
}

#[test]
fn the_larger_total_counts() {
    breaks_without(CountingGuard::Maximum, CountingTrouble::Clocks, "");
}

#[test]
fn a_total_counts_in_the_window_that_it_names() {
    breaks_without(CountingGuard::WindowNumber, CountingTrouble::Clocks, "");
}

#[test]
fn a_total_for_the_next_window_is_kept() {
    breaks_without(CountingGuard::InAdvance, CountingTrouble::Clocks, "");
}

#[test]
fn a_total_for_the_next_window_takes_nothing_from_this_one() {
    breaks_without(CountingGuard::BothWindows, CountingTrouble::Clocks, "");
}

#[test]
fn what_was_asked_for_since_the_last_look_is_posted() {
    breaks_without(CountingGuard::Fresh, CountingTrouble::Clocks, "");
}

#[test]
fn a_silent_region_counts_with_its_share() {
    breaks_without(CountingGuard::Silence, CountingTrouble::Cut, "");
}

#[test]
fn a_silent_region_counts_with_what_it_posted_if_that_is_more() {
    breaks_without(CountingGuard::Larger, CountingTrouble::Cut, "");
}

/// By places alone, hits of a region are lost, or count twice.
#[test]
fn a_total_stays_that_of_its_region_while_others_come_and_go() {
    let (guard, trouble) = (CountingGuard::Identity, CountingTrouble::Change);
    breaks_without(guard, trouble, " admits at ");
    breaks_without(guard, trouble, " denies at ");
}
