use ratekeeper_core::{Limit, LimitSpec};

use super::*;

const MINUTE: Micros = Micros::from_secs(60);

fn step(number: u64, algorithm: Algorithm, hits: i64) -> Step {
    let spec = LimitSpec::new(algorithm, 10, MINUTE);
    let key = CounterKey {
        subject: number,
        identity: number,
    };
    Step {
        hits,
        ..Step::new(key, Limit::try_new(spec).expect("a valid limit"))
    }
}

fn at(seconds: u64) -> Passed {
    Passed {
        now: Timestamp::from_secs(1_200_000_000 + seconds),
        boot: Micros::from_secs(1_000 + seconds),
        named_by: HashKey::from_bytes([7; 16]),
    }
}

fn all(owed: &Owed) -> Vec<Debt> {
    let mut all: Vec<Debt> = std::iter::from_fn(|| owed.take()).collect();
    all.sort_by_key(|debt| (debt.step.key, debt.latest));
    all
}

#[test]
fn hits_of_a_window_are_one_entry_up_to_the_limit_and_aged_by_the_latest() {
    let owed = Owed::default();
    let step = step(1, Algorithm::FixedWindow, 4);
    for seconds in [0, 30, 59, 60] {
        owed.add(&step, StoreError::Unavailable, &at(seconds));
    }
    let hits: Vec<_> = all(&owed)
        .iter()
        .map(|debt| (debt.step.hits, debt.latest))
        .collect();
    assert_eq!(hits, [(10, at(59).boot), (4, at(60).boot)]);
    assert_eq!(owed.counts().owed, 14);
}

#[test]
fn a_call_that_was_sent_owes_nothing_and_is_counted_as_unknown() {
    let owed = Owed::default();
    let step = step(1, Algorithm::FixedWindow, 3);
    owed.add(&step, StoreError::Timeout, &at(0));
    owed.add(&step, StoreError::Lost, &at(0));
    owed.add(&step, StoreError::Corrupt, &at(0));
    assert!(!owed.owes());
    assert_eq!((owed.counts().owed, owed.counts().unknown), (0, 6));
}

#[test]
fn it_owes_until_everything_taken_is_settled() {
    let owed = Owed::default();
    owed.add(&step(1, Algorithm::Gcra, 2), StoreError::Overloaded, &at(0));
    owed.add(&step(2, Algorithm::Gcra, 3), StoreError::Overloaded, &at(0));
    for (debt, fate) in all(&owed).iter().zip([Fate::Posted, Fate::Unknown]) {
        assert!(owed.owes());
        owed.settle(debt, fate);
    }
    owed.rest();
    assert!(!owed.owes());
    let counts = OwedCounts {
        owed: 5,
        posted: 2,
        dropped: 0,
        unknown: 3,
    };
    assert_eq!(owed.counts(), counts);
}

#[test]
fn entries_are_bounded_and_those_that_no_longer_count_make_room() {
    let owed = Owed::default();
    for number in 0..ENTRIES_MAX as u64 + 10 {
        let step = step(number, Algorithm::FixedWindow, 1);
        owed.add(&step, StoreError::Unavailable, &at(0));
    }
    assert_eq!(owed.counts().dropped, 10);
    let step = step(0, Algorithm::FixedWindow, 1);
    owed.add(&step, StoreError::Unavailable, &at(60));
    assert_eq!(owed.counts().dropped, 10 + ENTRIES_MAX as u64);
    assert_eq!(all(&owed).len(), 1);
}
