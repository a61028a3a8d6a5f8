//! Synced counters of several nodes on one store, by the hands of the test.

mod room;

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
        // As spread as a hash.
        identity: number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32),
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
    sync_within(node, number, shared, at(now))
}

/// Carries out the turns of a node that are due when it sends them.
fn sync_within(
    node: &SyncedCounters,
    number: usize,
    shared: &mut Shared,
    times: AnsweredAt,
) -> usize {
    let due = node.take_due(times.sent, usize::MAX);
    let turns = due.iter().filter_map(|key| node.begin(*key, times.sent));
    let turns: Vec<SyncTurn> = turns.collect();
    for turn in &turns {
        let answers = shared.add(number, turn);
        node.apply_answer(turn, &answers, times);
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

/// Nodes that start at one time do not call the store at one time for ever.
#[test]
fn a_node_has_its_turns_at_a_time_of_its_own_in_each_interval() {
    for (seed, first) in [
        (300_000, 300_000),
        (7_300_000, 300_000),
        (u64::MAX, 551_615),
    ] {
        let node = SyncedCounters::new(seed);
        let mut shared = Shared::default();
        // At once, in time, and late.
        for (now, next) in [
            (0, first),
            (first, first + 1_000_000),
            (first + 1_400_000, first + 2_000_000),
        ] {
            decide(&node, &[fixed(10, 1)], now);
            assert_eq!(sync(&node, 0, &mut shared, now), 1);
            assert_eq!(node.next_due(), Some(Micros::new(next)), "{seed}");
        }
    }
}

#[test]
fn no_more_counters_are_taken_than_are_wanted() {
    let node = SyncedCounters::new(1);
    for tenant in 0..5 {
        decide(&node, &[fixed(10, tenant)], 0);
    }
    let taken = [2; 3].map(|most| node.take_due(Micros::ZERO, most).len());
    assert_eq!(taken, [2, 2, 1]);
}

/// A waiter for the next turn sleeps on if another counter has its turn no sooner.
#[test]
fn a_counter_that_is_due_before_all_others_wakes() {
    let node = SyncedCounters::new(500_000);
    let wakes = |number, now| {
        let steps = [fixed(10, number)];
        let request = Request::new(&steps, Mode::default(), time(now));
        node.decide(&request, Micros::new(now)).wakes
    };
    assert!(wakes(1, 0));
    assert!(!wakes(2, 1), "the first is due before");
    sync(&node, 0, &mut Shared::default(), 1);
    assert!(wakes(3, 2), "the others wait for half a second");
    assert!(!wakes(3, 3), "it is in line");
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
        assert_eq!(known.interval, INTERVAL);
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

/// Keys that are made up cost nothing where another limit denies the request: no counter, and no question to the store.
#[test]
fn a_request_that_another_limit_denies_makes_no_counter_and_asks_for_none() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    decide(&node, &[fixed(1, 0)], 0);
    decide(&node, &[fixed(9, 1)], 0);
    for now in [0, 1_000_000, 2_000_000] {
        sync(&node, 0, &mut shared, now);
    }
    assert_eq!(node.next_due(), None, "all are asleep");
    for made_up in [1, 2, 3] {
        let steps = [fixed(1, 0), fixed(9, made_up)];
        assert!(!decide(&node, &steps, 2_500_000).allowed);
    }
    assert_eq!(node.gauges().counters, 2);
    assert_eq!(node.take_due(Micros::new(2_500_000), 9), [fixed(1, 0).key]);
    // Nor does one that could never pass.
    assert!(
        !decide(
            &node,
            &[Step {
                hits: 10,
                ..fixed(9, 4)
            }],
            2_500_000
        )
        .allowed
    );
    assert_eq!(node.gauges().counters, 2);
}

/// A counter that a request names twice is taken from by what is charged, and by nothing else.
#[test]
fn a_later_step_of_a_counter_sees_what_an_earlier_one_takes() {
    let node = SyncedCounters::new(1);
    let [three, one] = [3, 1].map(|hits| Step {
        hits,
        ..fixed(2, 1)
    });
    let left = |first| match decide(&node, &[first, one], 0).outcomes[1] {
        StepOutcome::Counted(outcome) => (outcome.fits(), outcome.remaining),
        other => panic!("{other:?}"),
    };
    assert_eq!(left(three), (true, 1), "three of two do not fit");
    let always = Step {
        charge: Charge::Always,
        ..three
    };
    assert_eq!(left(always), (false, 0));
}

#[test]
fn a_request_with_several_new_counters_wakes_for_the_first() {
    let node = SyncedCounters::new(1);
    let decide = |steps: &[Step]| {
        let request = Request::new(steps, Mode::default(), time(0));
        node.decide(&request, Micros::ZERO).wakes
    };
    assert!(decide(&[fixed(10, 1), fixed(10, 2)]));
    assert!(!decide(&[fixed(10, 1), fixed(10, 2)]));
}

#[test]
fn hits_that_a_request_of_several_limits_finds_past_are_dropped() {
    let node = SyncedCounters::new(1);
    let [one, other] = [1, 2].map(|number| fixed(10, number));
    decide(
        &node,
        &[Step { hits: 3, ..one }, Step { hits: 4, ..other }],
        0,
    );
    decide(&node, &[one, other], 10_000_000);
    assert_eq!(node.gauges().dropped, 7);
}

/// A look at a limit costs the store nothing, whatever it finds.
#[test]
fn a_look_asks_the_store_for_nothing() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    decide(
        &node,
        &[Step {
            hits: 2,
            ..fixed(2, 1)
        }],
        0,
    );
    for now in [0, 1_000_000] {
        sync(&node, 0, &mut shared, now);
    }
    for quota in [1, 2, 3] {
        decide(
            &node,
            &[Step {
                hits: 0,
                ..fixed(quota, 1)
            }],
            1_000_001,
        );
        assert_eq!(node.next_due(), None, "{quota}");
    }
}

/// A budget is asked about without hits of its own; not where another limit denies the request.
#[test]
fn a_budget_is_asked_about_where_the_request_is_allowed() {
    let node = SyncedCounters::new(1);
    let spec = LimitSpec::new(Algorithm::FixedWindow, 10, Micros::from_secs(10));
    let post_paid = LimitSpec {
        post_paid: true,
        ..spec
    };
    let budget = |number| Step {
        hits: 0,
        ..step(Limit::try_new(post_paid).expect("a valid limit"), number)
    };
    decide(&node, &[fixed(1, 0)], 0);
    assert!(!decide(&node, &[fixed(1, 0), budget(1)], 0).allowed);
    assert_eq!(node.gauges().counters, 1);
    assert!(decide(&node, &[fixed(10, 2), budget(1)], 0).allowed);
    assert_eq!(node.gauges().counters, 3);
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
    let gauges = node.gauges();
    assert_eq!((gauges.pending, gauges.failed, gauges.synced), (50, 5, 0));
    assert_eq!(sync(&node, 0, &mut shared, 6_000_000), 1);
    let gauges = node.gauges();
    assert_eq!((gauges.pending, gauges.applied, gauges.dropped), (0, 50, 0));
    assert_eq!((gauges.failed, gauges.synced), (5, 1));
    decide(&node, &[Step { hits: 7, ..it }], 6_500_000);
    decide(&node, &[Step { hits: 1, ..it }], 10_000_000);
    assert_eq!(node.gauges().dropped, 7, "that window is over");
}

#[test]
fn hits_whose_turn_comes_after_their_window_are_dropped() {
    let node = SyncedCounters::new(1);
    decide(
        &node,
        &[Step {
            hits: 7,
            ..fixed(10, 1)
        }],
        9_999_999,
    );
    sync(&node, 0, &mut Shared::default(), 10_000_000);
    let gauges = node.gauges();
    assert_eq!((gauges.pending, gauges.applied, gauges.dropped), (0, 0, 7));
}

#[test]
fn a_node_that_stops_makes_everything_due_at_once() {
    let node = SyncedCounters::new(500_000);
    let mut shared = Shared::default();
    let (pending, added) = (fixed(10, 1), fixed(10, 2));
    decide(&node, &[pending, added], 0);
    assert_eq!(sync(&node, 0, &mut shared, 0), 2);
    decide(&node, &[pending], 1);
    assert_eq!(node.next_due(), Some(Micros::new(500_000)));
    node.close();
    let due = node.take_due(Micros::new(2), usize::MAX);
    assert_eq!(due, [pending.key]);
    let turn = node.begin(pending.key, Micros::new(2)).expect("it is due");
    // It has no time to wait for another turn.
    assert!(node.failed(&turn, Micros::new(3)));
    assert_eq!(sync(&node, 0, &mut shared, 3), 1);
    assert_eq!(node.gauges().pending, 0);
}

#[test]
fn counters_of_windows_that_are_over_are_forgotten() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    for tenant in 0..200 {
        decide(&node, &[fixed(10, tenant)], 0);
    }
    assert_eq!(sync(&node, 0, &mut shared, 0), 200);
    // Nobody asks any more.
    assert_eq!(sync(&node, 0, &mut shared, 1_000_000), 0);
    let left = |now| {
        // Each turn goes through one of 64 parts, whichever is the first.
        (100..164).for_each(|turn| node.sweep(turn, Micros::new(now)));
        node.gauges().counters
    };
    assert_eq!(left(9_999_999), 200);
    assert_eq!(left(10_000_000), 0);
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
    let windows = gauges.counters * 65;
    assert!((1_000_000..=1 << 20).contains(&windows), "{gauges:?}");
    let mut shared = Shared::default();
    sync(&node, 0, &mut shared, 1_000);
    // They are not asked for any more: they fall asleep in their next turns.
    sync(&node, 0, &mut shared, 2_000_000);
    let before = node.gauges().counters;
    let verdicts = decide(&node, &[step(cut, 1 << 40)], 2_000_001);
    assert!(matches!(verdicts.outcomes[0], StepOutcome::Counted(_)));
    // One of 64 parts had no room: half of it goes, not all.
    let gone = before + 1 - node.gauges().counters;
    assert!((1..=before / 64 / 2 + 2).contains(&gone), "{gone}");
}

/// With room for one more, a request is not let pass by two new counters of which one is never made.
#[test]
fn room_that_one_step_of_a_request_takes_is_none_for_another() {
    let it = |number: u64| {
        let mut it = fixed(10, 0);
        // All in one part, which the low bits tell.
        (it.key, it.full_mode) = (
            CounterKey {
                subject: 0,
                identity: number << 6,
            },
            FullMode::Deny,
        );
        it
    };
    let is_counted = |node: &SyncedCounters, number| {
        let verdicts = decide(node, &[it(number)], 0);
        matches!(verdicts.outcomes[0], StepOutcome::Counted(_))
    };
    let full = SyncedCounters::new(1);
    let room = (0..1 << 20).take_while(|number| is_counted(&full, *number));
    let room = room.last().expect("there is room for some");
    let node = SyncedCounters::new(1);
    assert!((0..room).all(|number| is_counted(&node, number)));

    let [one, other] = [1 << 30, 1 << 31].map(it);
    let verdicts = decide(&node, &[one, other], 0);
    assert!(!verdicts.allowed);
    assert!(matches!(
        verdicts.outcomes[..],
        [StepOutcome::Counted(_), StepOutcome::Full(_)]
    ));
    // A look before the hit makes no counter, and the hit still does.
    let look = Step { hits: 0, ..one };
    let verdicts = decide(&node, &[look, one, other], 0);
    assert!(!verdicts.allowed);
    assert!(matches!(verdicts.outcomes[2], StepOutcome::Full(_)));
    // It has taken no room, and two steps of one counter need no more than one.
    let verdicts = decide(&node, &[one, one], 0);
    assert!(verdicts.allowed);
    assert_eq!(node.gauges().counters, room + 1);
    assert_eq!(remaining(&decide(&node, &[one], 0)), 7);
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

#[test]
fn a_node_that_was_cut_off_asks_again_for_the_hits_of_others_alone() {
    let [one, other] = [7, 8].map(SyncedCounters::new);
    let mut shared = Shared::default();
    let it = fixed(10, 1);
    let ask = |node, hits, now| decide(node, &[Step { hits, ..it }], now).allowed;
    assert!(ask(&one, 1, 0) && ask(&one, -1, 0) && ask(&other, 10, 0));
    sync(&other, 1, &mut shared, 0);
    sync(&one, 0, &mut shared, 0);
    assert!(!ask(&one, 1, 1), "the other took all");
    fail(&one, 1_000_000);
    ask(&other, -4, 1_100_000);
    sync(&other, 1, &mut shared, 1_500_000);
    sync(&one, 0, &mut shared, 3_000_000);
    let known = one.known(&it, Micros::new(3_000_000));
    assert_eq!((known.own, known.others), (0, 6));
}

/// The store's clock counts, whatever this node's says.
#[test]
fn windows_follow_the_stores_clock() {
    let node = SyncedCounters::new(1);
    let it = fixed(1, 1);
    assert!(decide(&node, &[it], 0).allowed);
    assert!(!decide(&node, &[it], 0).allowed);
    // It is 9 s ahead.
    let ahead = AnsweredAt {
        store: time(9_000_000),
        ..at(0)
    };
    assert_eq!(sync_within(&node, 0, &mut Shared::default(), ahead), 1);
    assert!(!decide(&node, &[it], 999_999).allowed);
    assert!(decide(&node, &[it], 1_000_000).allowed);
    let unheard_of = decide(&node, &[fixed(1, 2)], 1_000_000);
    assert_eq!(unheard_of.at, time(10_000_000));
}

/// The store answered at some time between the two ends of a call.
#[test]
fn the_stores_clock_moves_only_where_an_answer_contradicts_it() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    let it = fixed(100, 1);
    // The store's clock, the ends of the call, and the time by which the store is then thought to be ahead.
    for (store, sent, heard, ahead) in [
        // 3 to 5 s.
        (5_000_000, 0, 2_000_000, 4_000_000),
        // 1.5 to 4.5 s: it may still be 4.
        (7_500_000, 3_000_000, 6_000_000, 4_000_000),
        // 7 to 9 s.
        (16_000_000, 7_000_000, 9_000_000, 8_000_000),
    ] {
        decide(&node, &[it], sent);
        let times = AnsweredAt {
            store: time(store),
            sent: Micros::new(sent),
            heard: Micros::new(heard),
        };
        assert_eq!(sync_within(&node, 0, &mut shared, times), 1);
        let verdicts = decide(&node, &[it], heard);
        assert_eq!(verdicts.at, time(heard + ahead));
    }
}

/// A counter of a window that has not begun by a clock that was set back is of the present one, and is over with it.
#[test]
fn a_clock_that_was_set_back_by_more_than_a_window_denies_for_one_window() {
    let node = SyncedCounters::new(1);
    let mut shared = Shared::default();
    let it = fixed(1, 1);
    let told = |store, now| AnsweredAt {
        store: time(store),
        ..at(now)
    };
    assert!(decide(&node, &[fixed(1, 2)], 0).allowed);
    sync_within(&node, 0, &mut shared, told(100_000_000, 0));
    assert!(decide(&node, &[it], 0).allowed);
    sync_within(&node, 0, &mut shared, told(100_000_000, 0));
    assert!(!decide(&node, &[it], 1).allowed);
    sync_within(&node, 0, &mut shared, told(1_000_000, 1_000_000));
    assert!(!decide(&node, &[it], 1_000_000).allowed);
    assert!(!decide(&node, &[it], 9_999_999).allowed);
    assert!(decide(&node, &[it], 10_000_000).allowed);
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
