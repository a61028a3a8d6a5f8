//! A store without room.

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Timestamp};

use super::{decide, limit, step, store};
use crate::memory::{MEMORY_SHARDS, MemoryConfig, MemoryError, MemoryStore};
use crate::{Charge, FullMode, RuleSlot, Step, StepOutcome};

fn of_rule(rule: u16, limit: &Limit, identity: u64) -> Step {
    Step {
        rule: RuleSlot(rule),
        ..step(limit, identity)
    }
}

fn without_share() -> MemoryStore {
    let config = MemoryConfig {
        max_share_percent: 100,
        ..small()
    };
    MemoryStore::new(config).unwrap()
}

fn small() -> MemoryConfig {
    MemoryConfig {
        memory_limit: MemoryConfig::LEAST,
        ..MemoryConfig::default()
    }
}

/// Resident bytes by the store's own account.
fn bytes(store: &MemoryStore) -> u64 {
    store.stats().table_bytes + store.stats().heap_bytes
}

#[test]
fn sizes_that_make_no_sense_are_refused() {
    let new = |memory_limit, max_share_percent| {
        let config = MemoryConfig {
            memory_limit,
            max_share_percent,
        };
        MemoryStore::new(config).map(|_| ()).unwrap_err()
    };
    assert_eq!(new(0, 50), MemoryError::TooSmall);
    assert_eq!(new(MemoryConfig::LEAST - 1, 50), MemoryError::TooSmall);
    assert_eq!(new(usize::MAX, 50), MemoryError::TooLarge);
    assert_eq!(new(1 << 30, 0), MemoryError::ShareOutOfRange);
    assert_eq!(new(1 << 30, 101), MemoryError::ShareOutOfRange);
}

/// In a process of its own, which may not have the memory: zeroing it would end that.
#[cfg(target_os = "linux")]
#[test]
fn a_store_that_there_is_no_memory_for_is_refused() {
    use super::{in_a_child, is_child};
    if !is_child() {
        let name = "bounded::a_store_that_there_is_no_memory_for_is_refused";
        return in_a_child(name, "ulimit -v 2000000");
    }
    let config = MemoryConfig {
        memory_limit: 4 << 30,
        ..small()
    };
    let refused = MemoryStore::new(config).map(|_| ()).unwrap_err();
    assert_eq!(refused, MemoryError::TooLarge);
}

#[test]
fn the_limit_is_used_and_never_passed() {
    for memory_limit in [1 << 20, 3_333_333, 10 << 20] {
        let store = MemoryStore::new(MemoryConfig {
            memory_limit,
            ..small()
        })
        .unwrap();
        let stats = store.stats();
        let most = memory_limit as u64;
        let bytes = stats.table_bytes_max + stats.heap_bytes_max + stats.once_bytes_max;
        assert!(bytes <= most);
        assert!(bytes > most * 9 / 10);
        assert!(stats.table_bytes_max / stats.capacity <= 57);
    }
}

#[test]
fn a_flood_of_new_keys_evicts_no_counter_that_refuses() {
    let store = without_share();
    let (once, ten) = (
        limit(Algorithm::Gcra, 1, 3_600),
        limit(Algorithm::SlidingWindow, 10, 3_600),
    );
    for identity in 0..3_000 {
        assert!(decide(&store, &[of_rule(1, &once, identity)], 1_000).allowed);
    }
    for identity in 10_000..100_000 {
        assert!(decide(&store, &[of_rule(2, &ten, identity)], 1_000).allowed);
    }
    let stats = store.stats();
    assert!(stats.evicted_live > 70_000, "{stats:?}");
    assert!(stats.counters <= stats.capacity);
    assert_eq!(stats.refused_full, 0);
    for identity in 0..3_000 {
        assert!(!decide(&store, &[of_rule(1, &once, identity)], 1_000).allowed);
    }
}

#[test]
fn the_least_used_counter_goes_first() {
    let store = without_share();
    let ten = limit(Algorithm::FixedWindow, 10, 3_600);
    let nine = |identity| Step {
        hits: 9,
        ..of_rule(1, &ten, identity)
    };
    for identity in 0..2_000 {
        assert!(decide(&store, &[nine(identity)], 1_000).allowed);
    }
    for identity in 10_000..60_000 {
        decide(&store, &[of_rule(2, &ten, identity)], 1_000);
    }
    let kept = (0..2_000).filter(|identity| !decide(&store, &[nine(*identity)], 1_000).allowed);
    assert_eq!(kept.count(), 2_000);
}

#[test]
fn expired_counters_go_before_live_ones() {
    let store = without_share();
    let (short, long) = (
        limit(Algorithm::FixedWindow, 10, 10),
        limit(Algorithm::FixedWindow, 10, 3_600),
    );
    let capacity = store.stats().capacity;
    let live = capacity / 2;
    for identity in 0..live {
        decide(&store, &[of_rule(1, &long, identity)], 1_000);
        decide(&store, &[of_rule(2, &short, 1_000_000 + identity)], 1_000);
    }
    let before = store.stats();
    for identity in 0..before.counters / 3 {
        decide(&store, &[of_rule(3, &long, 2_000_000 + identity)], 1_011);
    }
    let after = store.stats();
    assert!(after.evicted_expired > before.evicted_expired, "{after:?}");
    assert_eq!(after.evicted_live, before.evicted_live);
}

#[test]
fn the_full_mode_answers_if_only_denying_counters_are_left() {
    let store = without_share();
    let once = limit(Algorithm::TokenBucket, 1, 3_600);
    let full = |identity, full_mode| Step {
        full_mode,
        ..of_rule(1, &once, identity)
    };
    let mut refused = 0;
    for identity in 0..30_000 {
        let allowed = decide(&store, &[full(identity, FullMode::Deny)], 1_000);
        match allowed.outcomes[0] {
            StepOutcome::Counted(outcome) => assert!(outcome.fits() && allowed.allowed),
            other @ (StepOutcome::OnThisNode(_)
            | StepOutcome::Leased(_)
            | StepOutcome::Unanswered(_)) => panic!("{other:?}"),
            StepOutcome::Full(mode) => {
                assert_eq!(mode, FullMode::Deny);
                assert!(!allowed.allowed);
                refused += 1;
                let verdicts = decide(&store, &[full(identity, FullMode::Allow)], 1_000);
                assert!(verdicts.allowed);
            }
        }
    }
    let stats = store.stats();
    assert_eq!(stats.refused_full, 2 * refused);
    assert!(
        refused > 10_000 && stats.counters > stats.capacity * 19 / 20,
        "{stats:?}"
    );
    assert_eq!(stats.evicted_live, 0);
    // Looking and giving back need no room.
    let peek = Step {
        hits: 0,
        ..full(29_999, FullMode::Deny)
    };
    assert!(decide(&store, &[peek], 1_000).allowed);
    let refund = Step { hits: -1, ..peek };
    assert!(decide(&store, &[refund], 1_000).allowed);
}

#[test]
fn one_rule_holds_no_more_than_its_share() {
    let store = MemoryStore::new(MemoryConfig {
        max_share_percent: 25,
        ..small()
    })
    .unwrap();
    let ten = limit(Algorithm::FixedWindow, 10, 3_600);
    let capacity = store.stats().capacity;
    for identity in 0..50_000 {
        assert!(decide(&store, &[of_rule(1, &ten, identity)], 1_000).allowed);
    }
    let held = store.stats().counters;
    assert!(
        held <= capacity / 4 && held > capacity / 5,
        "{held} of {capacity}"
    );
    for identity in 0..1_000 {
        decide(&store, &[of_rule(2, &ten, 100_000 + identity)], 1_000);
    }
    // The other rule took free places, and evicted no counter.
    assert_eq!(store.stats().counters, held + 1_000);
    for identity in 50_000..60_000 {
        assert!(decide(&store, &[of_rule(1, &ten, identity)], 1_000).allowed);
    }
    let others = (100_000..101_000).map(|identity| {
        let verdicts = decide(&store, &[of_rule(2, &ten, identity)], 1_000);
        matches!(verdicts.outcomes[0], StepOutcome::Counted(it) if it.remaining == 8)
    });
    let kept = others.filter(|is_kept| *is_kept).count();
    assert_eq!(kept, 1_000, "a full rule makes room among its own");
}

#[test]
fn a_full_rule_of_refusing_counters_leaves_the_others_alone() {
    let store = MemoryStore::new(MemoryConfig {
        max_share_percent: 10,
        ..small()
    })
    .unwrap();
    let (once, ten) = (
        limit(Algorithm::Gcra, 1, 3_600),
        limit(Algorithm::Gcra, 10, 3_600),
    );
    for identity in 0..20_000 {
        decide(&store, &[of_rule(1, &once, identity)], 1_000);
    }
    let stats = store.stats();
    assert!(
        stats.refused_full > 15_000 && stats.counters <= stats.capacity / 10,
        "{stats:?}"
    );
    for identity in 20_000..21_000 {
        let verdicts = decide(&store, &[of_rule(2, &ten, identity)], 1_000);
        assert!(matches!(verdicts.outcomes[0], StepOutcome::Counted(_)));
    }
}

#[test]
fn a_denied_request_evicts_no_counter() {
    let store = without_share();
    let (ten, none) = (
        limit(Algorithm::Gcra, 10, 3_600),
        limit(Algorithm::Gcra, 0, 3_600),
    );
    for identity in 0..40_000 {
        decide(&store, &[of_rule(1, &ten, identity)], 1_000);
    }
    let before = store.stats();
    for identity in 40_000..50_000 {
        let steps = [of_rule(1, &ten, identity), of_rule(2, &none, 1)];
        assert!(!decide(&store, &steps, 1_000).allowed);
    }
    assert_eq!(store.stats(), before);
}

#[test]
fn sweeping_forgets_what_has_expired_and_frees_the_heap() {
    let store = store();
    let (log, fine) = (
        limit(Algorithm::SlidingLog, 10, 60),
        limit(Algorithm::FixedWindow, 10, 3_600),
    );
    for identity in 0..500 {
        assert!(decide(&store, &[of_rule(1, &log, identity)], 1_000).allowed);
        assert!(decide(&store, &[of_rule(2, &fine, 1_000 + identity)], 1_000).allowed);
    }
    assert!(store.stats().heap_bytes > 0);
    let now = |secs| ratekeeper_core::Timestamp::from_secs(secs);
    let all = usize::MAX;
    assert_eq!(store.sweep(now(1_059), all), 0);
    let capacity = usize::try_from(store.stats().capacity).unwrap();
    let swept: usize = (0..64)
        .map(|_| store.sweep(now(1_061), capacity / 60))
        .sum();
    assert_eq!(swept, 500);
    let stats = store.stats();
    assert_eq!(
        (stats.counters, stats.heap_counters, stats.heap_bytes),
        (500, 0, 0)
    );
    assert_eq!(store.sweep(now(10_000), all), 500);
}

#[test]
fn heap_states_stay_within_their_part_of_the_limit() {
    let store = without_share();
    let log = limit(Algorithm::SlidingLog, 50, 3_600);
    for round in 0..30 {
        for identity in 0..500 {
            let seconds = 1_000 + round;
            let verdicts = decide(&store, &[of_rule(1, &log, identity)], seconds);
            assert!(verdicts.allowed);
            assert!(bytes(&store) <= MemoryConfig::LEAST as u64);
            let stats = store.stats();
            assert!(stats.heap_bytes <= stats.heap_bytes_max, "{stats:?}");
        }
    }
    let stats = store.stats();
    assert!(
        stats.heap_bytes > stats.heap_bytes_max * 9 / 10,
        "{stats:?}"
    );
    assert!(
        stats.evicted_live > 0 || stats.refused_full > 0,
        "{stats:?}"
    );
    store.clear();
    assert_eq!((store.stats().counters, store.stats().heap_bytes), (0, 0));
}

/// Decisions go on while it is cleared, so that what they count is either removed and told, or stays.
#[test]
fn clearing_tells_what_it_removes_while_counters_are_made() {
    const EACH: u64 = 20_000;
    let store = MemoryStore::new(MemoryConfig::default()).unwrap();
    let log = limit(Algorithm::SlidingLog, 50, 3_600);
    let fill = |from: u64| {
        for identity in from..from + EACH {
            assert!(decide(&store, &[of_rule(1, &log, identity)], 1_000).allowed);
        }
    };
    fill(0);
    let removed = std::thread::scope(|scope| {
        let filled = scope.spawn(|| fill(EACH));
        let mut removed = store.clear();
        while !filled.is_finished() {
            removed += store.clear();
        }
        removed
    });
    assert_eq!(removed + store.stats().counters, 2 * EACH);
    assert!(removed >= EACH, "{removed}");
    store.clear();
    assert_eq!((store.stats().counters, store.stats().heap_bytes), (0, 0));
}

#[test]
fn counts_that_outgrow_their_words_are_accounted_for() {
    let store = without_share();
    let spec = LimitSpec::new(Algorithm::SlidingWindow, 1 << 40, Micros::from_secs(60));
    let bytes_a_day = Limit::try_new(spec).unwrap();
    let large = |identity| Step {
        hits: 100_000,
        ..of_rule(1, &bytes_a_day, identity)
    };
    for identity in 0..20_000 {
        assert!(decide(&store, &[large(identity)], 1_000).allowed);
        assert!(bytes(&store) <= MemoryConfig::LEAST as u64);
    }
    let stats = store.stats();
    assert!(stats.heap_counters > 500, "{stats:?}");
    assert_eq!(stats.counters, stats.heap_counters);
    assert!(stats.heap_bytes / stats.heap_counters < 400, "{stats:?}");
}

#[test]
fn counters_are_spread_over_all_shards_even_of_one_subject() {
    let store = without_share();
    let ten = limit(Algorithm::Gcra, 10, 3_600);
    let fits = store.stats().capacity * 8 / 10;
    for identity in 0..fits {
        assert!(decide(&store, &[of_rule(1, &ten, identity)], 1_000).allowed);
    }
    assert!(
        store.stats().counters > fits * 99 / 100,
        "{:?}",
        store.stats()
    );
    assert!(MEMORY_SHARDS.is_power_of_two());
}

#[test]
fn counted_denials_stay_within_the_heap_budget() {
    let store = without_share();
    let spec = LimitSpec {
        sub_windows: Some(12),
        ..LimitSpec::new(Algorithm::SlidingWindow, 100, Micros::from_secs(3_600))
    };
    let limit = Limit::try_new(spec).unwrap();
    for identity in 0..20_000 {
        let step = Step {
            hits: 40_000,
            charge: Charge::Always,
            ..step(&limit, identity)
        };
        decide(&store, &[step], 1_000);
        decide(&store, &[step], 1_000);
    }
    let stats = store.stats();
    assert!(
        stats.heap_counters > 0,
        "counts above a lane go to the heap"
    );
    assert!(stats.heap_bytes <= stats.heap_bytes_max, "{stats:?}");
}

/// Before a rule's new counters find no room any more, there is time to say so.
#[test]
fn counters_that_refuse_are_told_before_they_fill_their_part() {
    let store = MemoryStore::new(small()).unwrap();
    let (once, many) = (
        limit(Algorithm::Gcra, 1, 3_600),
        limit(Algorithm::Gcra, 1_000, 3_600),
    );
    let refusing = |now_secs| {
        store.sweep(Timestamp::from_secs(now_secs), usize::MAX);
        store.stats().refusing
    };
    assert_eq!(refusing(1_000), None);
    for identity in 0..2_000 {
        assert!(decide(&store, &[of_rule(2, &many, identity)], 1_000).allowed);
    }
    assert_eq!(refusing(1_000), None, "those that do not refuse may go");
    let mut told = 0;
    let mut identity = 10_000;
    while store.stats().refused_full == 0 {
        assert!(identity < 1_000_000, "it is full some time");
        for _ in 0..100 {
            decide(&store, &[of_rule(1, &once, identity)], 1_000);
            identity += 1;
        }
        let seen = refusing(1_000).unwrap();
        assert_eq!(seen.rule, RuleSlot(1));
        assert!(seen.permille >= told, "it grows");
        // All of the others have room, so the rule may hold half of the places.
        let stats = store.stats();
        let held = (stats.counters - 2_000) * 2_000 / stats.capacity;
        let off = i64::from(seen.permille) - held.cast_signed();
        assert!((-50..150).contains(&off), "{off} thousandths from {held}");
        if store.stats().refused_full == 0 {
            told = seen.permille;
        }
    }
    assert!(
        told >= 800,
        "{told}: no warning before the first one is refused"
    );
    // An hour later nothing refuses any more.
    assert_eq!(refusing(1_000 + 7_200), None);
}
