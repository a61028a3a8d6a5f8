//! The table beside a `HashMap`.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::memory::meta::Meta;
use crate::memory::table::{Place, Probe, Table, WINDOW};
use crate::{CounterKey, RuleSlot};

fn probe(number: u64) -> Probe {
    Probe::new(CounterKey {
        subject: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        identity: number,
    })
}

fn insert(table: &mut Table, number: u64) -> Option<Place> {
    let probe = probe(number);
    let place = table.free_place(probe)?;
    table.insert(place, probe, Meta::new(RuleSlot(3), false));
    table.state_mut(place)[3] = number;
    Some(place)
}

proptest! {
    /// Whatever comes and goes, what is in the table is found where it was put, and nothing
    /// else is; a key is turned away only if all of its window is taken.
    #[test]
    fn equals_a_map(
        buckets in prop::sample::select(vec![2_usize, 3, 5, 13, 31, 101]),
        actions in prop::collection::vec((any::<bool>(), 0..400_u64), 1..800),
    ) {
        let mut table = Table::new(buckets);
        let mut model: HashMap<u64, Place> = HashMap::new();
        for (add, number) in actions {
            match (add, model.get(&number)) {
                (true, None) => match insert(&mut table, number) {
                    Some(place) => {
                        model.insert(number, place);
                    }
                    None => {
                        let taken = table.window(probe(number)).filter(|(_, meta)| meta.is_some());
                        prop_assert_eq!(taken.count(), 7 * WINDOW.min(buckets));
                    }
                },
                (false, Some(place)) => {
                    table.remove(*place);
                    model.remove(&number);
                }
                _ => {}
            }
            prop_assert_eq!(table.used(), model.len());
        }
        for number in 0..400 {
            let found = table.find(probe(number));
            prop_assert_eq!(found, model.get(&number).copied());
            if let Some(place) = found {
                prop_assert_eq!(table.state(place)[3], number);
                prop_assert!(table.is_at(place, probe(number).key));
                prop_assert_eq!(table.meta(place).rule(), RuleSlot(3));
            }
        }
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
    let turned_away = (0..wanted).filter(|number| insert(&mut table, *number).is_none());
    assert!(turned_away.count() < 20);
}

#[test]
fn a_bucket_that_overflowed_too_often_still_finds_everything() {
    let mut table = Table::new(2);
    // Two buckets, and many more than 255 that pass the first one by.
    for round in 0..100_u64 {
        let numbers = round * 14..round * 14 + 14;
        let places: Vec<_> = numbers
            .clone()
            .filter_map(|number| insert(&mut table, number))
            .collect();
        assert_eq!(places.len(), 14);
        assert!(
            numbers
                .zip(&places)
                .all(|(n, place)| table.find(probe(n)) == Some(*place))
        );
        places.into_iter().for_each(|place| table.remove(place));
    }
    assert_eq!(table.used(), 0);
}
