use std::io::Cursor;

use ratekeeper_core::{Algorithm, Micros, Mode, Timestamp};

use super::{decide, limit, step, store};
use crate::memory::MemoryStore;
use crate::{Execution, Extra, FullMode, Once, Request, Step, StepOutcome, Until, Verdicts};

fn once(store: &MemoryStore, id: u128, now: Timestamp, extra: Extra, step: Step) -> Verdicts {
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
        ..Request::new(&[step], Mode::default(), now)
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

/// The records of requests that gave back are not saved with the counters, so hits that an earlier
/// process took are not given back: they may have been already.
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
