use ratekeeper_core::{Limit, LimitSpec};

use super::*;
use crate::identity::Unhasher;

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
    let mut all = owed.take(usize::MAX);
    all.sort_by_key(|debt| (debt.step.key, debt.latest));
    all
}

fn named(bytes: usize) -> UnhashedName {
    named_in("d", bytes)
}

fn named_in(domain: &str, bytes: usize) -> UnhashedName {
    let value = "v".repeat(bytes);
    let entry = ratekeeper_rules::Entry {
        key: "k",
        value: &value,
    };
    let mut unhasher = Unhasher::new("d", &entry, None);
    unhasher.add(&entry, None);
    unhasher.name(0, domain, &step(0, Algorithm::Gcra, 1).limit, None)
}

#[test]
fn hits_of_a_window_are_one_entry_up_to_the_limit_and_aged_by_the_latest() {
    let owed = Owed::default();
    let step = step(1, Algorithm::FixedWindow, 4);
    for seconds in [0, 30, 59, 60] {
        owed.add(&step, None, StoreError::Unavailable, &at(seconds));
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
    owed.add(&step, None, StoreError::Timeout, &at(0));
    owed.add(&step, None, StoreError::Lost, &at(0));
    owed.add(&step, None, StoreError::Corrupt, &at(0));
    assert!(!owed.owes());
    assert_eq!((owed.counts().owed, owed.counts().unknown), (0, 6));
}

#[test]
fn it_owes_until_everything_taken_is_settled() {
    let owed = Owed::default();
    owed.add(
        &step(1, Algorithm::Gcra, 2),
        None,
        StoreError::Overloaded,
        &at(0),
    );
    owed.add(
        &step(2, Algorithm::Gcra, 3),
        None,
        StoreError::Overloaded,
        &at(0),
    );
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
        expired: 0,
        unknown: 3,
    };
    assert_eq!(owed.counts(), counts);
}

#[test]
fn entries_are_bounded_and_those_that_no_longer_count_make_room() {
    let owed = Owed::default();
    for number in 0..ENTRIES_MAX as u64 + 10 {
        let step = step(number, Algorithm::FixedWindow, 1);
        owed.add(&step, None, StoreError::Unavailable, &at(0));
    }
    assert_eq!(owed.counts().dropped, 10);
    let step = step(0, Algorithm::FixedWindow, 1);
    owed.add(&step, None, StoreError::Unavailable, &at(60));
    assert_eq!(owed.counts().dropped, 10 + ENTRIES_MAX as u64);
    assert_eq!(owed.counts().expired, ENTRIES_MAX as u64);
    assert_eq!(all(&owed).len(), 1);
}

/// Their size is chosen by callers.
#[test]
fn unhashed_names_are_bounded_one_by_one_and_in_sum() {
    let owed = Owed::default();
    let add = |number, name: &UnhashedName| {
        let step = step(number, Algorithm::FixedWindow, 1);
        owed.add(&step, Some(name), StoreError::Unavailable, &at(0));
    };
    add(0, &named(UNHASHED_MAX));
    assert_eq!((owed.counts().owed, owed.counts().dropped), (1, 1));
    let name = named(UNHASHED_MAX / 4);
    let fits = (UNHASHED_SUM_MAX / name.size()) as u64;
    (1..=fits + 5).for_each(|number| add(number, &name));
    assert_eq!(owed.counts().dropped, 6);
    // An entry that is there takes no more room, and what is taken makes some.
    add(1, &name);
    assert_eq!(owed.counts().dropped, 6);
    assert_eq!(owed.take(1).len(), 1);
    add(fits + 1, &name);
    assert_eq!(owed.counts().dropped, 6);
}

#[test]
fn a_name_as_long_as_allowed_is_kept() {
    // Eight bytes of a value are a word of the subject and one of the entries.
    let domains = (1..=16).map(|length| "d".repeat(length));
    let left = |domain: &str| UNHASHED_MAX - named_in(domain, 0).size();
    let mut domains = domains.filter(|domain| left(domain).is_multiple_of(16));
    let domain = domains.next().expect("one of 16 lengths fits");
    let name = named_in(&domain, left(&domain) / 2);
    assert_eq!(name.size(), UNHASHED_MAX);
    let owed = Owed::default();
    let step = step(0, Algorithm::Gcra, 1);
    owed.add(&step, Some(&name), StoreError::Unavailable, &at(0));
    assert_eq!(owed.counts().dropped, 0);
}

#[test]
fn names_that_no_longer_count_make_room() {
    let name = named(UNHASHED_MAX / 4);
    let owed = Owed::default();
    let fits = (UNHASHED_SUM_MAX / name.size()) as u64;
    let add = |number, seconds| {
        let step = step(number, Algorithm::FixedWindow, 1);
        owed.add(&step, Some(&name), StoreError::Unavailable, &at(seconds));
    };
    (0..fits).for_each(|number| add(number, 0));
    assert_eq!(owed.counts().dropped, 0);
    (0..fits).for_each(|number| add(number, 60));
    assert_eq!(owed.counts().dropped, fits, "the old ones alone");
    assert_eq!(all(&owed).len() as u64, fits);
}

/// Hits that are being posted may have to be kept again.
#[test]
fn entries_that_are_taken_keep_their_room_until_they_are_settled() {
    let owed = Owed::default();
    let add = |number| {
        let step = step(number, Algorithm::FixedWindow, 1);
        owed.add(&step, None, StoreError::Unavailable, &at(0));
    };
    (0..ENTRIES_MAX as u64).for_each(add);
    let taken = owed.take(10);
    assert_eq!(taken.len(), 10);
    add(ENTRIES_MAX as u64);
    assert_eq!(owed.counts().dropped, 1);
    taken
        .iter()
        .for_each(|debt| owed.settle(debt, Fate::Posted));
    add(ENTRIES_MAX as u64);
    assert_eq!(owed.counts().dropped, 1);
}

#[test]
fn hits_of_two_calendar_windows_are_two_entries() {
    let [start, end, next_end] = [0, 3_600, 7_200].map(|seconds| at(seconds).now);
    let bounds = ratekeeper_core::Bounds {
        start,
        end,
        next_end,
    };
    let step = Step {
        calendar: Some(bounds),
        ..step(1, Algorithm::FixedWindow, 1)
    };
    let owed = Owed::default();
    for seconds in [0, 1_800, 3_599, 3_600, 5_400] {
        owed.add(&step, None, StoreError::Unavailable, &at(seconds));
    }
    let hits: Vec<_> = all(&owed).iter().map(|debt| debt.step.hits).collect();
    assert_eq!(hits, [3, 2]);
}

fn of_limit(spec: LimitSpec, hits: i64) -> Step {
    Step {
        limit: Limit::try_new(spec).expect("a valid limit"),
        ..step(1, spec.algorithm, hits)
    }
}

/// A bucket that takes a minute to fill at ten hits a second.
fn deep_bucket() -> LimitSpec {
    LimitSpec {
        burst: Some(600),
        ..LimitSpec::new(Algorithm::Gcra, 10, Micros::from_secs(1))
    }
}

#[test]
fn hits_of_a_bucket_are_owed_until_it_and_its_debt_are_refilled() {
    let in_debt = LimitSpec {
        post_paid: true,
        max_debt: Some(600),
        ..LimitSpec::new(Algorithm::TokenBucket, 60, MINUTE)
    };
    for (spec, refilled) in [(deep_bucket(), 60), (in_debt, 660)] {
        let left = |seconds| {
            let owed = Owed::default();
            let step = of_limit(spec, 7);
            owed.add(&step, None, StoreError::Unavailable, &at(0));
            let other = self::step(2, Algorithm::FixedWindow, 1);
            owed.add(&other, None, StoreError::Unavailable, &at(seconds));
            let hits = all(&owed).iter().map(|debt| debt.step.hits).sum::<i64>();
            (hits - 1, owed.counts().expired)
        };
        assert_eq!(left(refilled - 1), (7, 0), "{spec:?}");
        assert_eq!(left(refilled), (0, 7), "{spec:?}");
    }
}

/// Each entry takes room that other counters need.
#[test]
fn a_bucket_that_takes_long_to_fill_has_a_few_entries() {
    let owed = Owed::default();
    let step = of_limit(deep_bucket(), 5);
    for seconds in 0..60 {
        owed.add(&step, None, StoreError::Unavailable, &at(seconds));
    }
    let entries = all(&owed);
    let hits: i64 = entries.iter().map(|debt| debt.step.hits).sum();
    assert_eq!(hits, 300);
    assert!(entries.len() <= 5, "{}", entries.len());
}
