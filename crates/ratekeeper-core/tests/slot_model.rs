//! The word of a lease and what lies beside it, in every order in which threads can meet: `cargo xtask loom`.

#![cfg(ratekeeper_loom)]

use std::cell::Cell;

use loom::sync::Arc;
use loom::thread;
use ratekeeper_core::Micros;
use ratekeeper_core::lease::{Facts, Slot};

const NOW: Micros = Micros::new(5);

/// A lease whose every part says which it is.
fn facts(lease: u64) -> Facts {
    Facts {
        key: (lease, lease),
        limit: lease,
        from: Micros::ZERO,
        deadline: Micros::new(10 + lease),
    }
}

/// Takes from that lease, and says whether what it saw was wholly of that one.
fn spend(slot: &Slot, lease: u64, hits: u64) -> Option<ratekeeper_core::lease::Credit> {
    let seen = Cell::new(None);
    let is_meant = |facts: &Facts| {
        seen.set(Some(*facts));
        facts.key == (lease, lease)
    };
    let credit = slot.spend(is_meant, hits, NOW).ok()?;
    assert_eq!(seen.get(), Some(facts(lease)));
    assert!(credit.left < 5, "{credit:?}");
    Some(credit)
}

/// Closes the slot and opens it with lease 2 of five hits, in a thread of its own; the hits that were left.
fn renewed(slot: &Arc<Slot>) -> thread::JoinHandle<Option<u64>> {
    let slot = Arc::clone(slot);
    thread::spawn(move || {
        let left = slot.close();
        assert!(slot.open(&facts(2), 5));
        left
    })
}

#[test]
fn each_hit_leaves_the_word_once() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        assert!(slot.open(&facts(1), 3));
        let spender = || {
            let slot = Arc::clone(&slot);
            thread::spawn(move || spend(&slot, 1, 2).map_or(0, |credit| credit.hits))
        };
        let (first, second) = (spender(), spender());
        let closed = slot.close().unwrap_or(0);
        let spent = first.join().unwrap() + second.join().unwrap();
        assert_eq!(spent + closed, 3);
        assert_eq!(slot.close(), None);
    });
}

#[test]
fn what_is_left_is_got_once() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        assert!(slot.open(&facts(1), 3));
        let other = Arc::clone(&slot);
        let closer = thread::spawn(move || other.close());
        let here = slot.close();
        let closed = [closer.join().unwrap(), here];
        let left: Vec<u64> = closed.into_iter().flatten().collect();
        assert_eq!(left, [3]);
    });
}

#[test]
fn what_is_put_back_finds_its_own_lease_or_none() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        assert!(slot.open(&facts(1), 2));
        let renewing = renewed(&slot);
        let burned = match spend(&slot, 1, 1) {
            None => 0,
            Some(credit) => slot
                .put_back(credit)
                .map_or_else(|credit| credit.hits, |()| 0),
        };
        assert_eq!(renewing.join().unwrap().unwrap_or(0) + burned, 2);
        assert_eq!(slot.look(), Some((facts(2), 5)));
    });
}

#[test]
fn two_that_open_do_not_mix_their_leases() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        let opener = |lease| {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.open(&facts(lease), 4))
        };
        let (first, second) = (opener(1), opener(2));
        let spent = spend(&slot, 2, 1).map_or(0, |credit| credit.hits);
        let opened = (first.join().unwrap(), second.join().unwrap());
        let lease = match opened {
            (true, false) => 1,
            (false, true) => 2,
            other => panic!("{other:?} have one slot"),
        };
        assert_eq!(slot.look(), Some((facts(lease), 4 - spent)));
    });
}

#[test]
fn one_who_means_the_next_lease_takes_nothing_of_the_one_before() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        assert!(slot.open(&facts(1), 2));
        let renewing = renewed(&slot);
        let spent = spend(&slot, 2, 1).map_or(0, |credit| credit.hits);
        assert_eq!(renewing.join().unwrap(), Some(2));
        assert_eq!(slot.look(), Some((facts(2), 5 - spent)));
    });
}

/// Each hit is either reported by the call, or part of what its answer leaves.
#[test]
fn what_is_spent_around_a_call_is_counted_once() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        assert!(slot.open(&facts(1), 3));
        let other = Arc::clone(&slot);
        let spender = thread::spawn(move || spend(&other, 1, 1).map_or(0, |credit| credit.hits));
        let called = slot.begin_call(false).unwrap();
        let mut answered = 0;
        assert!(slot.refill(&facts(1), |left| {
            answered = left;
            left
        }));
        let spent = spender.join().unwrap();
        let (before, since) = (3 - called, called - answered);
        let after = answered - slot.look().unwrap().1;
        assert_eq!(before + since + after, spent);
    });
}
