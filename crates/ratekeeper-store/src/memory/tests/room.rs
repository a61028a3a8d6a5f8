//! The room that new counters and growing states get: no less than there is, and no more.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros};

use super::accounts::audit;
use super::{decide, keys, limit, step, store};
use crate::memory::table::Probe;
use crate::memory::{MemoryConfig, MemoryStore};
use crate::{FullMode, RuleSlot, Step, StepOutcome};

fn with_share(max_share_percent: u8) -> MemoryStore {
    MemoryStore::new(MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        max_share_percent,
    })
    .unwrap()
}

/// New counters of a rule in that shard.
fn new_in(shard: usize, rule: u16) -> impl Iterator<Item = Step> {
    let ten = limit(Algorithm::FixedWindow, 10, 3_600);
    keys(shard).map(move |key| Step {
        rule: RuleSlot(rule),
        ..Step::new(key, ten)
    })
}

/// The most counters of a rule in a shard, and those that the first shard has of rule 1.
fn share_of(store: &MemoryStore) -> (usize, usize) {
    let shard = store.shards[0].0.lock();
    (shard.rule_most, shard.rules.get(RuleSlot(1)) as usize)
}

fn is_counted(store: &MemoryStore, step: Step, secs: u64) -> bool {
    matches!(
        decide(store, &[step], secs).outcomes[0],
        StepOutcome::Counted(_)
    )
}

#[test]
fn a_rule_makes_room_for_as_many_new_counters_as_exceed_its_share() {
    for spare in 0..4 {
        for new in 1..5 {
            let store = with_share(10);
            let mut here = new_in(0, 1);
            let first = here.next().unwrap();
            decide(&store, &[first], 1_000);
            let most = share_of(&store).0;
            for step in here.by_ref().take(most - spare - 1) {
                assert!(decide(&store, &[step], 1_000).allowed);
            }
            // One that it has, one of another rule, and some in another shard.
            let mut steps = vec![first];
            steps.extend(new_in(0, 2).skip(1_000).take(1));
            steps.extend(new_in(1, 1).take(4));
            steps.extend(here.take(new));
            assert!(decide(&store, &steps, 1_000).allowed);
            assert_eq!(
                store.stats().evicted_live,
                new.saturating_sub(spare) as u64,
                "{new} where there is room for {spare}"
            );
            assert_eq!(share_of(&store).1, most.min(most - spare + new));
        }
    }
}

#[test]
fn a_rule_at_its_share_has_its_own_places_in_a_full_table() {
    let store = with_share(10);
    let mut steps = new_in(0, 1);
    for step in steps.by_ref().take(50) {
        // With less left than the others, they stay.
        assert!(decide(&store, &[Step { hits: 5, ..step }], 1_000).allowed);
    }
    for (rule, step) in (2..30).cycle().zip(new_in(0, 0).skip(1_000)).take(2_000) {
        let rule = RuleSlot(rule);
        decide(&store, &[Step { rule, ..step }], 1_000);
    }
    let used = {
        let table = &store.shards[0].0.lock().table;
        (table.used(), table.capacity())
    };
    assert_eq!(used.0, used.1);
    let before = share_of(&store);
    assert_eq!(before.0, before.1);
    assert!(steps.take(100).all(|step| is_counted(&store, step, 1_000)));
    assert_eq!(share_of(&store), before);
}

/// Two new counters for which there is one free place, where their rule has none of its own.
#[test]
fn new_counters_of_one_request_share_no_place() {
    let store = with_share(1);
    for step in new_in(0, 1).take(2) {
        assert!(decide(&store, &[Step { hits: 5, ..step }], 1_000).allowed);
    }
    for (rule, step) in (2..).zip(new_in(0, 0).skip(1_000)).take(2_000) {
        let rule = RuleSlot(rule);
        decide(&store, &[Step { rule, ..step }], 1_000);
    }
    let steps: Vec<_> = {
        let shard = &mut *store.shards[0].0.lock();
        assert_eq!(shard.table.used(), shard.table.capacity());
        let places = |step: &Step| shard.table.window(Probe::new(step.key)).collect::<Vec<_>>();
        let is_apart = |step: &Step| {
            let mut metas = places(step).into_iter().filter_map(|(_, meta)| meta);
            !metas.any(|meta| meta.rule() == RuleSlot(1))
        };
        let steps: Vec<_> = new_in(0, 1).skip(5_000).filter(is_apart).take(2).collect();
        let (first, second) = (places(&steps[0]), places(&steps[1]));
        let common = first.into_iter().find(|it| second.contains(it));
        shard.forget(common.expect("a place in both windows").0);
        steps
    };
    let outcomes = decide(&store, &steps, 1_000).outcomes;
    assert!(matches!(outcomes[0], StepOutcome::Counted(_)));
    assert_eq!(outcomes[1], StepOutcome::Full(FullMode::Allow));
    audit(&store, 0);
}

#[test]
fn a_new_counter_takes_a_free_place_before_that_of_an_expired_one() {
    let store = with_share(100);
    let (short, long) = (
        limit(Algorithm::FixedWindow, 10, 10),
        limit(Algorithm::FixedWindow, 10, 3_600),
    );
    for identity in 0..2_000 {
        assert!(decide(&store, &[step(&short, identity)], 1_000).allowed);
    }
    for identity in 2_000..2_100 {
        assert!(decide(&store, &[step(&long, identity)], 1_020).allowed);
    }
    let stats = store.stats();
    assert_eq!((stats.counters, stats.evicted_expired), (2_100, 0));
}

#[test]
fn logs_that_do_not_refuse_make_room_for_others() {
    let store = store();
    let ten = limit(Algorithm::SlidingLog, 10, 3_600);
    for identity in 0..4_000 {
        assert!(
            is_counted(&store, step(&ten, identity), 1_000),
            "{identity}"
        );
        let stats = store.stats();
        assert!(stats.heap_bytes <= stats.heap_bytes_max, "{stats:?}");
    }
    // One more log in a place of its own, or none at all, grows as well.
    assert!(store.stats().evicted_live > 2_000);
    let grown = (0..20).map(|second| decide(&store, &[step(&ten, 3_999)], 1_001 + second).allowed);
    assert_eq!(grown.filter(|is_allowed| *is_allowed).count(), 9);
}

/// Fills the heap with states that refuse, until there is no room for another one.
fn fill(store: &MemoryStore, limit: &Limit, secs: u64) {
    let mut new = (1_000_000..).map(|identity| Step {
        hits: limit.quota().cast_signed(),
        ..step(limit, identity)
    });
    assert!(new.any(|step| !is_counted(store, step, secs)));
}

/// A window with counts that outgrow their words.
fn spilling() -> Limit {
    let spec = LimitSpec {
        sub_windows: Some(12),
        ..LimitSpec::new(Algorithm::SlidingWindow, 100_000, Micros::from_secs(3_600))
    };
    Limit::try_new(spec).unwrap()
}

#[test]
fn heap_bytes_are_used_but_for_what_a_state_may_need() {
    let (log, window) = (limit(Algorithm::SlidingLog, 1, 3_600), spilling());
    for logs in 0..4 {
        let store = store();
        for identity in 0..logs {
            assert!(decide(&store, &[step(&log, identity)], 1_000).allowed);
        }
        for (limit, words) in [(window, 2 * 14 + 4), (log, 2 * 4 + 4)] {
            fill(&store, &limit, 1_000);
            let stats = store.stats();
            let left = stats.heap_bytes_max.checked_sub(stats.heap_bytes);
            let left = left.expect("there is a limit to them");
            assert!(left < 80 + 8 * words, "{left} after {logs} logs");
        }
    }
}

#[test]
fn without_heap_bytes_only_what_needs_more_is_refused() {
    let store = store();
    let (log, none) = (
        limit(Algorithm::SlidingLog, 10, 3_600),
        limit(Algorithm::SlidingLog, 1, 3_600),
    );
    let (window, words) = (spilling(), limit(Algorithm::SlidingWindow, 10, 3_600));
    let deny = |limit: &Limit, hits, identity| Step {
        hits,
        full_mode: FullMode::Deny,
        ..step(limit, identity)
    };
    assert!(decide(&store, &[deny(&log, 1, 1)], 1_000).allowed);
    assert!(decide(&store, &[deny(&window, 100, 2)], 3_000).allowed);
    for secs in 3_000..3_009 {
        assert!(decide(&store, &[deny(&log, 1, 1)], secs).allowed);
    }
    assert!(!decide(&store, &[deny(&log, 1, 1)], 3_009).allowed);
    fill(&store, &none, 3_010);
    let full = store.stats();
    for (limit, hits, identity, is_counted) in [
        // The first of ten hits no longer counts: a place is left in the log.
        (&log, 1, 1, true),
        (&log, 1, 3, false),
        (&words, 1, 4, true),
        // Words hold it, and then no longer.
        (&window, 100, 2, true),
        (&window, 70_000, 2, false),
        (&window, 70_000, 5, false),
        (&window, 100, 5, true),
    ] {
        let verdicts = decide(&store, &[deny(limit, hits, identity)], 4_601);
        assert_eq!(verdicts.allowed, is_counted, "{hits} on {identity}");
        assert_eq!(store.stats().heap_bytes, full.heap_bytes);
    }
}

/// Rules get other numbers when they are loaded again.
#[test]
fn a_counter_counts_for_the_rule_that_asked_for_it_last() {
    let store = with_share(10);
    let counter = new_in(0, 1).next().unwrap();
    let other = new_in(1, 3).next().unwrap();
    let asked = |steps: &[Step]| {
        assert!(decide(&store, steps, 1_000).allowed);
        audit(&store, 0);
        let shard = store.shards[0].0.lock();
        (1..4)
            .map(|rule| shard.rules.get(RuleSlot(rule)))
            .collect::<Vec<_>>()
    };
    let of = |rule| Step {
        rule: RuleSlot(rule),
        ..counter
    };
    assert_eq!(asked(&[of(1)]), [1, 0, 0]);
    assert_eq!(asked(&[of(2)]), [0, 1, 0]);
    assert_eq!(asked(&[of(3), other]), [0, 0, 1]);
}

/// The name is that of a limit with fewer parts before, as a file may have it.
#[test]
fn a_counter_of_more_parts_than_words_hold_moves_to_the_heap() {
    let [few, many] = [12, 60].map(|parts| {
        let spec = LimitSpec {
            sub_windows: Some(parts),
            ..LimitSpec::new(Algorithm::SlidingWindow, 10, Micros::from_secs(3_600))
        };
        step(&Limit::try_new(spec).unwrap(), 1)
    });
    let store = store();
    for (step, heaps) in [(few, 0), (many, 1), (many, 1)] {
        assert!(decide(&store, &[step], 1_000).allowed);
        assert_eq!(store.stats().heap_counters, heaps);
    }
}

/// Of counters that are there, and of such that are not.
#[test]
fn looks_neither_evict_a_counter_nor_keep_it() {
    let store = with_share(100);
    let steps: Vec<_> = new_in(0, 1).take(2_000).collect();
    for step in &steps {
        let steps = [*step, Step { hits: 0, ..*step }];
        assert!(decide(&store, &steps, 1_000).allowed);
    }
    let before = store.stats();
    let looks: Vec<_> = steps.iter().map(|step| Step { hits: 0, ..*step }).collect();
    for looks in looks.chunks(1).chain(looks.chunks(3)) {
        assert!(decide(&store, looks, 1_000).allowed);
    }
    assert_eq!(store.stats(), before);
    for step in new_in(0, 1).skip(2_000).take(300) {
        assert!(is_counted(&store, step, 1_000));
    }
}

#[test]
fn a_request_gives_back_to_a_counter_that_it_has_made() {
    let store = store();
    let counter = new_in(0, 1).next().unwrap();
    let steps = [3, -1].map(|hits| Step { hits, ..counter });
    assert!(decide(&store, &steps, 1_000).allowed);
    let StepOutcome::Counted(outcome) = decide(&store, &[counter], 1_000).outcomes[0] else {
        panic!("it is counted");
    };
    assert_eq!(outcome.remaining, 7);
}
