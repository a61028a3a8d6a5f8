#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of tests are small"
)]

//! Synced counters, simulated: nodes that add their counts to a store, over a network that loses, repeats and delays
//! messages. Nodes crash, and the store loses everything or goes back to an older state. The nodes are compared with a
//! slow model that remembers every hit. A seed makes a run; a run that breaks a promise names its seed.

mod store;
mod world;

use ratekeeper_core::synced::{SyncTerms, SyncedCounter};
use ratekeeper_core::{Algorithm, Bounds, Limit, LimitSpec, Micros, Moment, Timestamp};
use ratekeeper_testkit::random::Random;
use world::{Faults, World};

/// Runs of each limit; RATEKEEPER_SYNCED_RUNS says otherwise.
const RUNS: u64 = 30;

const INTERVAL: Micros = Micros::from_millis(500);

fn limits() -> [Limit; 4] {
    let limit = |algorithm, quota, sub_windows| {
        let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(3));
        let limit = Limit::try_new(LimitSpec {
            sub_windows,
            ..spec
        });
        let terms = SyncTerms::try_new(&limit.expect("a valid limit"), Some(INTERVAL));
        *terms.expect("it can be synced").limit()
    };
    [
        limit(Algorithm::FixedWindow, 40, None),
        limit(Algorithm::SlidingWindow, 60, None),
        limit(Algorithm::SlidingWindow, 60, Some(1)),
        limit(Algorithm::SlidingWindow, 60, Some(20)),
    ]
}

fn run(seed: u64, limit: &Limit, faults: Faults) -> World {
    let mut world = World::new(*limit, INTERVAL, faults, Random::new(seed));
    let played = world.play().and_then(|()| world.settle());
    if let Err(broken) = played {
        panic!("{broken}\nseed {seed}: {limit:?}, {faults:?}");
    }
    world
}

fn all_runs(faults: Faults) -> (u64, u64) {
    let runs = std::env::var("RATEKEEPER_SYNCED_RUNS").ok();
    let runs = runs.and_then(|runs| runs.parse().ok()).unwrap_or(RUNS);
    let (mut admitted, mut denied) = (0, 0);
    for limit in &limits() {
        for seed in 0..runs {
            let world = run(seed, limit, faults);
            admitted += world.admitted;
            denied += world.denied;
        }
    }
    (admitted, denied)
}

#[test]
fn every_hit_is_added_once_and_known_to_all_over_a_good_network() {
    let (admitted, denied) = all_runs(Faults::NONE);
    assert!(admitted > 0 && denied > 0, "{admitted} {denied}");
}

#[test]
fn every_hit_is_added_once_over_a_bad_network() {
    let (admitted, denied) = all_runs(Faults::NETWORK);
    assert!(admitted > 0 && denied > 0, "{admitted} {denied}");
}

#[test]
fn every_hit_is_added_once_though_the_store_and_nodes_restart() {
    let (admitted, denied) = all_runs(Faults::ALL);
    assert!(admitted > 0 && denied > 0, "{admitted} {denied}");
}

/// A day on which clocks go back is an hour longer than others.
#[test]
fn counts_of_a_long_day_are_kept_to_its_end() {
    let day = Micros::from_secs(86_400);
    let spec = LimitSpec {
        calendar: true,
        ..LimitSpec::new(Algorithm::FixedWindow, 40, day)
    };
    let limit = Limit::try_new(spec).expect("a valid limit");
    let start = Timestamp::from_secs(1_793_484_000);
    let end = start.after(day).after(Micros::from_secs(3_600));
    let at = Moment {
        calendar: Some(Bounds {
            start,
            end,
            next_end: end.after(day),
        }),
        ..Moment::at(start)
    };
    let mut counter = SyncedCounter::new();
    counter.charge(&limit, 7, &at);
    let additions = counter.additions(&limit, INTERVAL, &at, &mut 0);
    let [addition] = additions[..] else {
        panic!("{additions:?}")
    };
    assert!(start.after(addition.kept) > end, "{addition:?}");
}

/// Of a store that has lost everything a node learns by its mark, and brings back the sub-windows that it had settled long ago.
#[test]
fn counts_of_older_sub_windows_are_brought_back_too() {
    let limit = limits()[3];
    let length = 3_000_000 / 20;
    let at = |parts: u64| {
        let now = 1_700_000_010_000_000 + parts * length;
        Moment::at(Timestamp::from_micros(now))
    };
    let (mut counter, mut sums) = (SyncedCounter::new(), store::Sums::new());
    let sync = |counter: &mut SyncedCounter, sums: &mut store::Sums, parts| {
        let additions = counter.additions(&limit, INTERVAL, &at(parts), &mut 0);
        let answers = store::add(sums, 1, &additions, None);
        counter.apply_answer(
            &limit,
            additions.iter().copied().zip(answers),
            at(parts).now,
        );
        additions.len()
    };
    counter.charge(&limit, 7, &at(0));
    assert_eq!(sync(&mut counter, &mut sums, 0), 21, "all are read once");
    sync(&mut counter, &mut sums, 17);
    assert!(
        sync(&mut counter, &mut sums, 18) < 21,
        "the oldest are settled"
    );
    sums.clear();
    sync(&mut counter, &mut sums, 19);
    sync(&mut counter, &mut sums, 19);
    let all: i64 = sums.values().filter_map(|sum| sum.value).sum();
    assert_eq!(all, 7);
}

/// The model must see hits that are added twice, and such that are not added.
#[test]
fn a_store_without_its_guards_is_found_out() {
    for without in [store::Guard::Number, store::Guard::Mark, store::Guard::Lost] {
        let faults = Faults {
            without: Some(without),
            ..Faults::ALL
        };
        let is_found = (0..RUNS).any(|seed| {
            let mut world = World::new(limits()[0], INTERVAL, faults, Random::new(seed));
            world.play().and_then(|()| world.settle()).is_err()
        });
        assert!(is_found, "{without:?}");
    }
}
