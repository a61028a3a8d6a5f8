use std::io::Cursor;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};

use super::{decide, limit, step, store};
use crate::memory::MemoryStore;
use crate::{
    Charge, Execution, Extra, FullMode, Once, Request, Step, StepOutcome, Until, Verdicts,
};

fn once(store: &MemoryStore, id: u128, now: Timestamp, extra: Extra, step: Step) -> Verdicts {
    once_all(store, id, now, extra, &[step])
}

fn once_all(
    store: &MemoryStore,
    id: u128,
    now: Timestamp,
    extra: Extra,
    steps: &[Step],
) -> Verdicts {
    let until = now.after(Micros::from_secs(60));
    let extra = Extra {
        once: Some(Once {
            id,
            until: Until::At(until),
            content: 0,
        }),
        ..extra
    };
    store.decide_now(&Request {
        extra: Some(&extra),
        ..Request::new(steps, Mode::default(), now)
    })
}

/// A request that cannot be recorded is not executed: a repeat would execute it again.
#[test]
fn a_flood_of_ids_is_refused_and_forgotten_in_time() {
    let limit = limit(Algorithm::FixedWindow, 1 << 40, 3_600);
    let store = store();
    let now = Timestamp::from_secs(1_000);
    let take = |id, now| once(&store, id, now, Extra::default(), step(&limit, 1));
    let (mut done, mut refused) = (0, 0);
    for id in 0..5_000 {
        let verdicts = take(id, now);
        match verdicts.execution {
            Execution::Now => done += 1,
            Execution::NoRoom => {
                refused += 1;
                assert!(!verdicts.allowed);
                assert_eq!(*verdicts.outcomes, [StepOutcome::Full(FullMode::Deny)]);
            }
            other => panic!("{other:?}"),
        }
    }
    let stats = store.stats();
    assert!(done > 200 && refused > 4_000, "{done} {refused}");
    assert_eq!(stats.once_records, done);
    assert!(stats.once_bytes <= stats.once_bytes_max);
    // Recorded requests stay recorded, however many follow.
    assert_eq!(take(0, now).execution, Execution::Before);
    let charged = decide(
        &store,
        &[Step {
            hits: 0,
            ..step(&limit, 1)
        }],
        1_000,
    );
    let StepOutcome::Counted(outcome) = charged.outcomes[0] else {
        panic!("it is counted");
    };
    assert_eq!(outcome.remaining, (1 << 40) - done);

    store.sweep(Timestamp::from_secs(1_060), 0);
    assert_eq!(
        (store.stats().once_records, store.stats().once_bytes),
        (0, 0)
    );
    assert_eq!(
        take(0, Timestamp::from_secs(1_061)).execution,
        Execution::Now
    );
}

/// Hits that were used before the request are charged whatever its answer: a repeat would charge them again. Other requests
/// that were denied may be allowed when they are repeated.
#[test]
fn a_denied_request_is_recorded_if_it_has_paid() {
    let plain = limit(Algorithm::FixedWindow, 10, 3_600);
    let spec = LimitSpec::new(Algorithm::FixedWindow, 10, Micros::from_secs(3_600));
    let later = Limit::try_new(LimitSpec {
        post_paid: true,
        ..spec
    })
    .unwrap();
    let denying = step(&limit(Algorithm::FixedWindow, 0, 3_600), 2);
    for (limit, hits, charge, repeated) in [
        (later, 3, Charge::Always, Execution::Before),
        (later, 0, Charge::Always, Execution::Now),
        (later, 3, Charge::IfAllowed, Execution::Now),
        (plain, 3, Charge::Always, Execution::Now),
    ] {
        let store = store();
        let paid = Step {
            hits,
            charge,
            ..step(&limit, 1)
        };
        let ask = || {
            let now = Timestamp::from_secs(1_000);
            once_all(&store, 1, now, Extra::default(), &[paid, denying])
        };
        let first = ask();
        assert!(!first.allowed && first.execution == Execution::Now);
        assert_eq!(ask().execution, repeated, "{paid:?}");
    }
}

/// Hits that an earlier process took are not given back without a record of it: they may have been
/// already, or not be in the file.
#[test]
fn hits_of_an_earlier_process_are_not_given_back() {
    let limit = limit(Algorithm::FixedWindow, 10, 3_600);
    let (old, new) = (store(), store());
    let taken = decide(
        &old,
        &[Step {
            hits: 5,
            ..step(&limit, 1)
        }],
        1_000,
    );
    let mut file = Vec::new();
    old.save(&mut file, b"", Timestamp::from_secs(1_001))
        .unwrap();
    let restart = Timestamp::from_secs(1_002);
    new.load(&mut Cursor::new(&file), restart).unwrap();
    let give = |store: &MemoryStore, id, taken_at| {
        let extra = Extra {
            taken_at: Some(taken_at),
            ..Extra::default()
        };
        let back = Step {
            hits: -5,
            ..step(&limit, 1)
        };
        once(store, id, Timestamp::from_secs(1_003), extra, back).execution
    };
    assert_eq!(give(&old, 1, taken.at), Execution::Now);
    assert_eq!(give(&new, 1, taken.at), Execution::Unknown);
    assert_eq!(give(&new, 2, restart), Execution::Now);
    assert_eq!(give(&new, 2, restart), Execution::Before);
}

/// The answer to a request of five hits on one counter, under that id.
fn take(store: &MemoryStore, id: u128, secs: u64) -> Verdicts {
    let five = Step {
        hits: 5,
        ..step(&limit(Algorithm::FixedWindow, 10, 3_600), 1)
    };
    once(
        store,
        id,
        Timestamp::from_secs(secs),
        Extra::default(),
        five,
    )
}

fn saved(store: &MemoryStore, secs: u64) -> Vec<u8> {
    let mut file = Vec::new();
    store
        .save(&mut file, b"", Timestamp::from_secs(secs))
        .unwrap();
    file
}

fn loaded(file: &[u8], secs: u64) -> MemoryStore {
    let new = store();
    new.load(&mut Cursor::new(file), Timestamp::from_secs(secs))
        .unwrap();
    new
}

#[test]
fn a_charge_of_an_earlier_process_is_not_made_again() {
    let old = store();
    let first = take(&old, 1, 1_000);
    assert!(first.allowed);
    let new = loaded(&saved(&old, 1_001), 1_002);
    assert_eq!(new.stats().once_records, 1);
    assert_eq!(new.stats().once_bytes, old.stats().once_bytes);
    let repeated = take(&new, 1, 1_003);
    assert_eq!(repeated.execution, Execution::Before);
    assert_eq!((repeated.outcomes, repeated.at), (first.outcomes, first.at));
    // Five were left, as before: another request has them.
    assert!(take(&new, 2, 1_003).allowed);
    assert!(!take(&new, 3, 1_003).allowed);
    // It is saved again, for as long as it was to be kept.
    let newer = loaded(&saved(&new, 1_004), 1_059);
    assert_eq!(take(&newer, 1, 1_059).execution, Execution::Before);
    assert_eq!(loaded(&saved(&new, 1_004), 1_060).stats().once_records, 1);
    assert_eq!(loaded(&saved(&new, 1_070), 1_071).stats().once_records, 0);
}

#[test]
fn a_smaller_store_takes_as_many_records_as_it_has_room_for() {
    let old = MemoryStore::new(crate::memory::MemoryConfig {
        memory_limit: 4 << 20,
        max_share_percent: 100,
    })
    .unwrap();
    let allowed = Step {
        hits: 0,
        ..step(&limit(Algorithm::FixedWindow, 10, 3_600), 1)
    };
    let now = Timestamp::from_secs(1_000);
    for id in 0..800 {
        once(&old, id, now, Extra::default(), allowed);
    }
    assert_eq!(old.stats().once_records, 800);
    let (new, file) = (store(), saved(&old, 1_001));
    let loaded = new.load(&mut Cursor::new(file), Timestamp::from_secs(1_002));
    let (loaded, stats) = (loaded.unwrap(), new.stats());
    assert!((100..800).contains(&stats.once_records), "{stats:?}");
    assert_eq!(loaded.records, stats.once_records);
    assert_eq!(loaded.records + loaded.records_dropped, 800);
    assert!(stats.once_bytes <= stats.once_bytes_max, "{stats:?}");
}

/// Records are written by a hundred or so under one lock, and in blocks of a mebibyte.
#[test]
fn every_record_of_many_is_saved() {
    let config = crate::memory::MemoryConfig {
        memory_limit: 64 << 20,
        max_share_percent: 100,
    };
    let look = Step {
        hits: 0,
        ..step(&limit(Algorithm::FixedWindow, 10, 3_600), 1)
    };
    let now = Timestamp::from_secs(1_000);
    // Some in one part, and large ones in all of them.
    for (records, distance, steps) in [(127, 8, 1), (128, 8, 1), (129, 8, 1), (800, 1, 40)] {
        let [old, new] = [config; 2].map(|config| MemoryStore::new(config).unwrap());
        for id in 0..records {
            let (id, steps) = (u128::from(id * distance), vec![look; steps]);
            once_all(&old, id, now, Extra::default(), &steps);
        }
        let mut file = Vec::new();
        let saved = old.save(&mut file, b"", now).unwrap();
        assert_eq!(saved.records, records);
        assert!(steps == 1 || file.len() > 3 << 19, "{}", file.len());
        let loaded = new.load(&mut Cursor::new(file), now).unwrap();
        assert_eq!(loaded.records, records);
    }
}
