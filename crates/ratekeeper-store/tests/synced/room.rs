//! The room of a part of the table, which its counters fill to the last place.

use super::*;

/// Counters that fill a part of the table: some of it to the first search for room, and the rest after it.
const MANY: u64 = 1 << 14;

/// A step of a window of ten seconds. Numbers are counters of one part, which the low bits tell.
fn it(number: u64) -> Step {
    Step {
        key: CounterKey {
            subject: 0,
            identity: number << 6,
        },
        full_mode: FullMode::Deny,
        ..fixed(10, 0)
    }
}

fn hits(hits: i64, number: u64) -> Step {
    Step { hits, ..it(number) }
}

fn is_counted(node: &SyncedCounters, number: u64, now: u64) -> bool {
    let verdicts = decide(node, &[it(number)], now);
    matches!(verdicts.outcomes[0], StepOutcome::Counted(_))
}

fn counters(node: &SyncedCounters) -> u64 {
    node.gauges().counters
}

/// Has all counters synced and asked for no more.
fn fall_asleep(node: &SyncedCounters, shared: &mut Shared) {
    for now in [0, 1_000_000] {
        sync(node, 0, shared, now);
    }
    assert_eq!(node.next_due(), None);
}

#[test]
fn a_part_is_filled_to_the_last_place_before_one_is_forgotten() {
    let node = SyncedCounters::new(1);
    assert!((1..MANY).all(|number| is_counted(&node, number, 0)));
    fall_asleep(&node, &mut Shared::default());
    assert!(is_counted(&node, MANY, 1_000_001));
    assert_eq!(counters(&node), MANY);
    assert!(is_counted(&node, 0, 1_000_002));
    assert_eq!(counters(&node), MANY / 2 + 1, "half of them, rounded up");
    assert_eq!(node.gauges().refused, 0);
}

/// The room of what is forgotten is there for others, whatever counters take of it.
#[test]
fn forgotten_counters_leave_their_room() {
    let node = SyncedCounters::new(1);
    assert!((0..MANY).all(|number| is_counted(&node, number, 0)));
    fall_asleep(&node, &mut Shared::default());
    let others = MANY..2 * MANY;
    let filled = others.filter(|number| is_counted(&node, *number, 1_000_001));
    assert_eq!(filled.count() as u64, MANY / 2);
    assert_eq!(counters(&node), MANY);
}

#[test]
fn what_waits_for_its_turn_makes_no_room_until_it_is_idle() {
    let node = SyncedCounters::new(1);
    assert!((0..MANY).all(|number| is_counted(&node, number, 0)));
    let mut shared = Shared::default();
    sync(&node, 0, &mut shared, 0);
    assert!(
        !is_counted(&node, MANY, 500_000),
        "they are synced, and wait"
    );
    sync(&node, 0, &mut shared, 1_000_000);
    assert!(is_counted(&node, MANY, 1_000_000));
}

/// A search costs a walk over the part, so a flood of new keys has one every tenth of a second.
#[test]
fn room_is_searched_for_ten_times_a_second() {
    let node = SyncedCounters::new(1);
    assert!((0..MANY).all(|number| is_counted(&node, number, 0)));
    let mut shared = Shared::default();
    sync(&node, 0, &mut shared, 0);
    assert!(!is_counted(&node, MANY, 950_000));
    sync(&node, 0, &mut shared, 1_000_000);
    assert!(!is_counted(&node, MANY, 1_049_999), "it was just searched");
    assert!(is_counted(&node, MANY, 1_050_000));
}

#[test]
fn counters_without_hits_make_room_before_those_with_hits_of_any_node() {
    let [one, other] = [7, 8].map(SyncedCounters::new);
    let mut shared = Shared::default();
    let (own, others, without) = (0..100, 100..200, 200..MANY);
    for number in 0..MANY {
        assert!(is_counted(&one, number, 0));
    }
    for number in others.chain(without) {
        decide(&one, &[hits(-1, number)], 0);
    }
    for number in 100..200 {
        assert!(is_counted(&other, number, 0));
    }
    sync(&other, 1, &mut shared, 0);
    fall_asleep(&one, &mut shared);
    assert!(is_counted(&one, MANY, 1_000_001));
    assert_eq!(counters(&one), 201);
    let known = |number| one.known(&it(number), Micros::new(1_000_002));
    assert!(own.clone().all(|number| known(number).own == 1));
    assert!((100..200).all(|number| known(number).others == 1));
}

/// Counters that are still in their windows stay, those without hits too, as long as others make room whose windows are over.
#[test]
fn windows_that_are_over_make_room_alone() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    assert!((0..MANY / 2).all(|number| is_counted(&node, number, 0)));
    fall_asleep(&node, &mut shared);
    let second_half = MANY / 2..MANY;
    for number in second_half {
        assert!(is_counted(&node, number, 12_000_000));
        decide(&node, &[hits(-1, number)], 12_000_000);
    }
    for now in [12_000_000, 13_000_000] {
        sync(&node, 0, &mut shared, now);
    }
    assert!(is_counted(&node, MANY, 13_000_001));
    assert_eq!(counters(&node), MANY / 2 + 1);
}

/// With room for two more, the third of three new counters of a request has none.
#[test]
fn each_counter_that_a_request_makes_takes_its_room() {
    let node = SyncedCounters::new(1);
    assert!((2..MANY).all(|number| is_counted(&node, number, 0)));
    let new = [MANY, MANY + 1, MANY + 2].map(it);
    let verdicts = decide(&node, &new, 0);
    assert!(!verdicts.allowed);
    assert!(matches!(
        verdicts.outcomes[..],
        [
            StepOutcome::Counted(_),
            StepOutcome::Counted(_),
            StepOutcome::Full(_)
        ]
    ));
    assert_eq!(counters(&node), MANY - 2);
}
