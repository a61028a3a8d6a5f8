//! Synced counters of several nodes on one store, by the hands of the test.

use std::collections::HashMap;

use ratekeeper_core::synced::StoredSum;
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};
use ratekeeper_store::synced::{AnsweredAt, SyncTurn, SyncedCounters};
use ratekeeper_store::{Charge, CounterKey, Extra, FullMode, Request, Step, StepOutcome, Verdicts};

/// A round number of ten seconds.
const START: u64 = 1_700_000_010_000_000;

const INTERVAL: Micros = Micros::from_secs(1);

fn limit(algorithm: Algorithm, quota: u64, sub_windows: Option<u32>) -> Limit {
    let spec = LimitSpec::new(algorithm, quota, Micros::from_secs(10));
    let spec = LimitSpec {
        sub_windows,
        ..spec
    };
    Limit::try_new(spec).expect("a valid limit")
}

fn step(limit: Limit, number: u64) -> Step {
    let key = CounterKey {
        subject: number,
        identity: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    Step {
        sync: INTERVAL,
        ..Step::new(key, limit)
    }
}

fn fixed(quota: u64, number: u64) -> Step {
    step(limit(Algorithm::FixedWindow, quota, None), number)
}

/// The store: what each node has added, and when the test's clock says it is. Boot clocks start at zero.
#[derive(Default)]
struct Shared(HashMap<(CounterKey, Timestamp), HashMap<usize, (u64, i64)>>);

impl Shared {
    fn add(&mut self, node: usize, turn: &SyncTurn) -> Vec<StoredSum> {
        let add = |addition: &ratekeeper_core::synced::Addition| {
            let marks = self.0.entry((turn.key, addition.start)).or_default();
            let before = marks.get(&node).map_or(0, |mark| mark.0);
            if addition.total != 0 && addition.number > before {
                marks.insert(node, (addition.number, addition.total));
            }
            let sum: i64 = marks.values().map(|mark| mark.1).sum();
            StoredSum {
                sum: sum.max(0).unsigned_abs(),
                marked_before: before,
                marked: marks.get(&node).map_or(0, |mark| mark.0),
            }
        };
        turn.additions.iter().map(add).collect()
    }
}

fn decide(node: &SyncedCounters, steps: &[Step], now: u64) -> Verdicts {
    ask(node, &Request::new(steps, Mode::default(), time(now)), now)
}

fn ask(node: &SyncedCounters, request: &Request<'_>, now: u64) -> Verdicts {
    node.decide(request, Micros::new(now)).verdicts
}

fn time(now: u64) -> Timestamp {
    Timestamp::from_micros(START + now)
}

/// Carries out the turns of a node that are due; how many.
fn sync(node: &SyncedCounters, number: usize, shared: &mut Shared, now: u64) -> usize {
    let due = node.take_due(Micros::new(now), usize::MAX);
    let turns = due
        .iter()
        .filter_map(|key| node.begin(*key, Micros::new(now)));
    let turns: Vec<SyncTurn> = turns.collect();
    for turn in &turns {
        let answers = shared.add(number, turn);
        node.apply_answer(turn, &answers, at(now));
    }
    turns.len()
}

fn at(now: u64) -> AnsweredAt {
    AnsweredAt {
        store: time(now),
        sent: Micros::new(now),
        heard: Micros::new(now),
    }
}

fn remaining(verdicts: &Verdicts) -> u64 {
    match verdicts.outcomes[0] {
        StepOutcome::Counted(outcome) => outcome.remaining,
        other => panic!("{other:?}"),
    }
}

/// 25 tenants and 3 nodes, whatever the traffic: 75 additions a second, 25 at a time.
#[test]
fn each_counter_is_added_once_an_interval_and_all_of_them_together() {
    let nodes = [11, 22, 33].map(SyncedCounters::new);
    let mut shared = Shared::default();
    let mut turns = Vec::new();
    for millis in (0..10_000).step_by(10) {
        let now = millis * 1_000;
        for (number, node) in nodes.iter().enumerate() {
            for tenant in 0..25 {
                decide(node, &[fixed(1_000_000, tenant)], now);
            }
            turns.push((millis, sync(node, number, &mut shared, now)));
        }
    }
    // The first of all are at once.
    let after: Vec<_> = turns
        .iter()
        .filter(|(millis, _)| *millis >= 1_000)
        .collect();
    let all: usize = after.iter().map(|(_, turns)| turns).sum();
    assert_eq!(all, 9 * 75);
    assert!(after.iter().all(|(_, turns)| *turns == 0 || *turns == 25));
    for node in &nodes {
        let gauges = node.gauges();
        assert_eq!((gauges.counters, gauges.due, gauges.failed), (25, 25, 0));
    }
}

#[test]
fn an_idle_counter_costs_nothing() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    decide(&node, &[fixed(10, 1)], 0);
    assert_eq!(sync(&node, 0, &mut shared, 0), 1);
    let turns: usize = (1..=20)
        .map(|at| sync(&node, 0, &mut shared, at * 500_000))
        .sum();
    assert_eq!(turns, 0);
    assert_eq!(node.next_due(), None);
    let woken = node.decide(
        &Request::new(&[fixed(10, 1)], Mode::default(), time(10_000_001)),
        Micros::new(10_000_001),
    );
    assert!(woken.wakes, "it is due at once");
}

#[test]
fn nodes_learn_of_each_other_and_deny_by_the_sum() {
    for (algorithm, sub_windows) in [
        (Algorithm::FixedWindow, None),
        (Algorithm::SlidingWindow, Some(4)),
    ] {
        let [one, other] = [7, 8].map(SyncedCounters::new);
        let mut shared = Shared::default();
        let it = step(limit(algorithm, 10, sub_windows), 1);
        for _ in 0..6 {
            assert!(decide(&one, &[it], 0).allowed);
            assert!(decide(&other, &[it], 0).allowed);
        }
        // 12 of 10: neither knows.
        for turn in 0..2 {
            sync(&one, 0, &mut shared, turn * 1_000_000);
            sync(&other, 1, &mut shared, turn * 1_000_000);
            let peek = Step { hits: 0, ..it };
            decide(&one, &[peek], turn * 1_000_000);
            decide(&one, &[it], turn * 1_000_000);
        }
        let denied = decide(&one, &[it], 1_500_000);
        assert!(!denied.allowed, "{denied:?}");
        assert_eq!(remaining(&denied), 0);
        let known = one.known(&it, Micros::new(1_500_000));
        // The seventh was admitted before it heard of the other's.
        assert_eq!((known.own, known.others, known.pending), (7, 6, 0));
    }
}

/// A request that one limit denies is charged to no other.
#[test]
fn a_request_is_charged_as_a_whole_or_not_at_all() {
    let node = SyncedCounters::new(1);
    let (wide, narrow) = (fixed(100, 1), fixed(1, 2));
    assert!(decide(&node, &[wide, narrow], 0).allowed);
    for _ in 0..5 {
        assert!(!decide(&node, &[wide, narrow], 0).allowed);
    }
    assert_eq!(remaining(&decide(&node, &[wide], 0)), 98);
    // A counter that is named twice sees the earlier take.
    let twice = [Step { hits: 60, ..wide }, Step { hits: 60, ..wide }];
    assert!(!decide(&node, &twice, 0).allowed);
    let shadow = Step {
        shadow: true,
        ..narrow
    };
    assert!(decide(&node, &[wide, shadow], 0).allowed);
}

#[test]
fn hits_come_back_into_their_window_only() {
    let node = SyncedCounters::new(1);
    let it = fixed(10, 1);
    let taken = decide(&node, &[Step { hits: 8, ..it }], 0);
    let extra = Extra {
        taken_at: Some(taken.at),
        ..Extra::default()
    };
    let back = [Step { hits: -3, ..it }];
    let give_back = |now| {
        let request = Request {
            extra: Some(&extra),
            ..Request::new(&back, Mode::default(), time(now))
        };
        ask(&node, &request, now);
    };
    give_back(1);
    assert_eq!(remaining(&decide(&node, &[Step { hits: 0, ..it }], 1)), 5);
    decide(&node, &[Step { hits: 8, ..it }], 10_000_000);
    give_back(10_000_001);
    let left = decide(&node, &[Step { hits: 0, ..it }], 10_000_001);
    assert_eq!(remaining(&left), 2);
}

/// Without the store a node goes on, and what is pending is added once; but not to a window that is over.
#[test]
fn what_was_counted_without_the_store_is_added_when_it_is_back() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    let it = fixed(1_000, 1);
    for second in 0..5 {
        decide(&node, &[Step { hits: 10, ..it }], second * 1_000_000);
        for key in node.take_due(Micros::new(second * 1_000_000), usize::MAX) {
            let turn = node.begin(key, Micros::new(second * 1_000_000));
            node.failed(
                &turn.expect("it was asked for"),
                Micros::new(second * 1_000_000),
            );
        }
    }
    assert_eq!(node.gauges().pending, 50);
    assert_eq!(sync(&node, 0, &mut shared, 6_000_000), 1);
    let gauges = node.gauges();
    assert_eq!((gauges.pending, gauges.applied, gauges.dropped), (0, 50, 0));
    decide(&node, &[Step { hits: 7, ..it }], 6_500_000);
    decide(&node, &[Step { hits: 1, ..it }], 10_000_000);
    assert_eq!(node.gauges().dropped, 7, "that window is over");
}

#[test]
fn a_node_that_stops_makes_everything_due_at_once() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    decide(&node, &[fixed(10, 1)], 0);
    sync(&node, 0, &mut shared, 0);
    decide(&node, &[fixed(10, 1)], 1);
    assert_eq!(node.gauges().pending, 1);
    node.close();
    sync(&node, 0, &mut shared, 2);
    assert_eq!(node.gauges().pending, 0);
}

/// Keys that an attacker makes up fill the table, and no more.
#[test]
fn the_table_is_bounded_and_idle_counters_make_room() {
    let node = SyncedCounters::new(1);
    let cut = limit(Algorithm::SlidingWindow, 10, Some(64));
    let mut refused = 0;
    for number in 0..40_000 {
        let it = Step {
            full_mode: FullMode::Deny,
            ..step(cut, number)
        };
        let verdicts = decide(&node, &[it], 0);
        refused += u64::from(matches!(verdicts.outcomes[0], StepOutcome::Full(_)));
    }
    let gauges = node.gauges();
    assert!(refused > 0);
    assert_eq!(
        (gauges.counters, gauges.refused),
        (40_000 - refused, refused)
    );
    assert!(gauges.counters * 65 <= 1 << 20, "{gauges:?}");
    let mut shared = Shared::default();
    sync(&node, 0, &mut shared, 1_000);
    // They are not asked for any more: they fall asleep in their next turns.
    sync(&node, 0, &mut shared, 2_000_000);
    let verdicts = decide(&node, &[step(cut, 1 << 40)], 2_000_001);
    assert!(matches!(verdicts.outcomes[0], StepOutcome::Counted(_)));
}

/// Takes the turns of a node that are due, without an answer.
fn fail(node: &SyncedCounters, now: u64) {
    let now = Micros::new(now);
    let due = node.take_due(now, usize::MAX);
    let turns = due.iter().filter_map(|key| node.begin(*key, now));
    turns.for_each(|turn| {
        node.failed(&turn, now);
    });
}

#[test]
fn windows_that_are_over_make_room_without_the_store() {
    // Whether or not it has ever answered.
    for has_answered in [true, false] {
        let node = SyncedCounters::new(1);
        if has_answered {
            decide(&node, &[fixed(1, 1 << 41)], 0);
            sync(&node, 0, &mut Shared::default(), 0);
        }
        fill_and_wait(&node);
    }
}

fn fill_and_wait(node: &SyncedCounters) {
    let cut = limit(Algorithm::SlidingWindow, 10, Some(64));
    let is_counted = |number, now| {
        let verdicts = decide(node, &[step(cut, number)], now);
        matches!(verdicts.outcomes[0], StepOutcome::Counted(_))
    };
    let filled = (0..40_000).filter(|number| is_counted(*number, 0));
    assert!(filled.count() < 40_000);
    for second in 0..10 {
        fail(node, second * 1_000_000);
        assert!(
            !is_counted(1 << 40, second * 1_000_000),
            "all of them count"
        );
    }
    for second in 20..23 {
        fail(node, second * 1_000_000);
    }
    assert!(is_counted(1 << 40, 23_000_000));
    assert_eq!(node.next_due(), Some(Micros::new(23_000_000)), "no other");
}

/// A window that still counts is asked about: others may have used it.
#[test]
fn a_node_that_was_cut_off_asks_again_without_a_request() {
    let [one, other] = [7, 8].map(SyncedCounters::new);
    let mut shared = Shared::default();
    let it = fixed(10, 1);
    decide(&one, &[it], 0);
    decide(&other, &[Step { hits: 5, ..it }], 0);
    sync(&one, 0, &mut shared, 0);
    decide(&one, &[it], 1);
    decide(&one, &[Step { hits: -1, ..it }], 2);
    fail(&one, 1_000_000);
    sync(&other, 1, &mut shared, 1_500_000);
    fail(&one, 2_000_000);
    sync(&one, 0, &mut shared, 3_000_000);
    assert_eq!(one.known(&it, Micros::new(3_000_000)).others, 5);
}

/// The store's clock counts, whatever this node's says.
#[test]
fn windows_follow_the_stores_clock() {
    let node = SyncedCounters::new(1);
    let it = fixed(1, 1);
    assert!(decide(&node, &[it], 0).allowed);
    assert!(!decide(&node, &[it], 0).allowed);
    let key = node.take_due(Micros::ZERO, 1)[0];
    let turn = node.begin(key, Micros::ZERO).expect("it is due");
    let sums = vec![
        StoredSum {
            sum: 1,
            marked_before: 0,
            marked: 1,
        };
        turn.additions.len()
    ];
    // It is 9 s ahead.
    let at = AnsweredAt {
        store: time(9_000_000),
        sent: Micros::ZERO,
        heard: Micros::ZERO,
    };
    node.apply_answer(&turn, &sums, at);
    assert!(!decide(&node, &[it], 999_999).allowed);
    assert!(decide(&node, &[it], 1_000_000).allowed);
}

/// Steps that are charged although they are denied are no business of synced counters; these do not fail for it.
#[test]
fn a_step_that_is_always_charged_is_counted() {
    let node = SyncedCounters::new(1);
    let always = Step {
        charge: Charge::Always,
        ..fixed(1, 1)
    };
    assert!(decide(&node, &[always], 0).allowed);
    assert!(!decide(&node, &[always], 0).allowed);
    assert_eq!(node.known(&always, Micros::ZERO).own, 2);
}
