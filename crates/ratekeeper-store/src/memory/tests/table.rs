//! Compares the table with a `HashSet`.

use std::collections::HashSet;

use proptest::prelude::*;
use ratekeeper_core::Micros;

use crate::memory::meta::Meta;
use crate::memory::table::{Probe, Table};
use crate::{CounterKey, RuleSlot};

fn probe(number: u64) -> Probe {
    Probe::new(CounterKey {
        subject: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        identity: number,
    })
}

/// Adds a counter as a store does: a segment that it crowds is split at once.
fn insert(table: &mut Table, number: u64) -> bool {
    let probe = probe(number);
    let Some(place) = table.free_place(probe) else {
        return false;
    };
    table.insert(place, probe, Meta::new(RuleSlot(3), Micros::from_secs(1)));
    table.state_mut(place)[3] = number;
    if let Some(segment) = table.take_crowded() {
        assert!(table.split(segment).is_empty());
    }
    true
}

proptest! {
    /// After any insertions and removals, however often the table grew meanwhile, exactly the
    /// counters in the table are found, with their states; a key is refused only if its whole
    /// window is taken.
    #[test]
    fn equals_a_map(
        (depth_max, buckets) in prop::sample::select(vec![
            (0, 1), (0, 3), (0, 13), (0, 101), (1, 5), (2, 17), (3, 3), (5, 1), (9, 1),
        ]),
        actions in prop::collection::vec((any::<bool>(), 0..400_u64), 1..800),
    ) {
        let mut table = Table::growing(depth_max, buckets);
        let mut model = HashSet::new();
        for (add, number) in actions {
            match (add, model.contains(&number)) {
                (true, false) => {
                    if insert(&mut table, number) {
                        model.insert(number);
                    } else {
                        prop_assert!(table.window(probe(number)).all(|(_, meta)| meta.is_some()));
                    }
                }
                (false, true) => {
                    let place = table.find(probe(number));
                    table.remove(place.unwrap());
                    model.remove(&number);
                }
                _ => {}
            }
            prop_assert_eq!(table.used(), model.len());
        }
        for number in 0..400 {
            let found = table.find(probe(number));
            prop_assert_eq!(found.is_some(), model.contains(&number));
            if let Some(place) = found {
                prop_assert_eq!(table.state(place)[3], number);
                prop_assert!(table.is_at(place, probe(number).key));
                prop_assert_eq!(table.meta(place).rule(), RuleSlot(3));
            }
        }
        let all = (0..table.buckets()).flat_map(|bucket| table.places(bucket));
        prop_assert_eq!(all.filter(|(_, meta)| meta.is_some()).count(), model.len());
    }
}

#[test]
fn a_key_of_zeros_is_absent_until_it_is_inserted() {
    let mut table = Table::new(7);
    let zero = Probe::new(CounterKey {
        subject: 0,
        identity: 0,
    });
    assert_eq!(table.find(zero), None);
    let place = table.free_place(zero).unwrap();
    table.insert(place, zero, Meta::default());
    assert_eq!(table.find(zero), Some(place));
    table.remove(place);
    assert_eq!(table.find(zero), None);
}

#[test]
fn a_table_fills_to_nine_tenths_and_hardly_turns_anybody_away() {
    let mut table = Table::new(10_007);
    let wanted = table.capacity() as u64 * 9 / 10;
    let turned_away = (0..wanted).filter(|number| !insert(&mut table, *number));
    assert!((turned_away.count() as u64) < wanted / 3_000);
}

#[test]
fn a_table_is_as_large_as_its_counters_need() {
    let mut table = Table::new(10_007);
    let largest = table.buckets_max();
    assert!(largest > 9_700 && largest <= 10_007, "{largest}");
    for number in 0..table.capacity() as u64 / 2 {
        assert!(
            insert(&mut table, number),
            "no counter is turned away from a table that can grow"
        );
        let places = table.buckets() * 7;
        assert!(
            places < 2_000 || places < 3 * table.used(),
            "{places} for {}",
            table.used()
        );
    }
}

#[test]
fn a_bucket_that_overflowed_too_often_still_finds_everything() {
    let mut table = Table::growing(0, 3);
    // Three buckets, and many more than 255 counters that pass the first one.
    for round in 0..100_u64 {
        let numbers = round * 21..round * 21 + 21;
        let there: Vec<_> = numbers
            .filter(|number| insert(&mut table, *number))
            .collect();
        assert!(there.len() > 18);
        for number in there {
            let place = table.find(probe(number)).unwrap();
            assert_eq!(table.state(place)[3], number);
            table.remove(place);
        }
    }
    assert_eq!(table.used(), 0);
}
