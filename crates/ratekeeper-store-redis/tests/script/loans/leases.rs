//! Leases of nodes beside shares of regions.

use super::*;

#[test]
fn a_lease_ends_before_the_first_part_of_a_share_does() {
    let until = |millis: u64| (1, Micros::new(millis * 1_000 - 1));
    let lease = |parts, generation, later| {
        let mut region = Region::new(Algorithm::SlidingWindow);
        let loans = held(parts, 0);
        let kept = loans.encode(generation, &regions()).expect("they fit");
        // What was held in another generation is not encoded as held.
        let kept = if generation == GENERATION {
            kept
        } else {
            restamped(bytes(&loans))
        };
        assert!(region.keep(kept));
        region.pass(Micros::from_millis(later));
        let (amount, usable) = region.leased(16);
        (amount.min(1), usable)
    };
    let whole = (1, LEASE_MAX);
    let seconds = LEASE_MAX.get().div_ceil(1_000_000);
    // The earlier one, in whatever order they were made; after it the other.
    for parts in [[(50, 1), (40, 2)], [(40, 2), (50, 1)]] {
        assert_eq!(lease(parts, GENERATION, 900), until(100));
        assert_eq!(lease(parts, GENERATION, 1_500), until(500));
        assert_eq!(lease(parts, GENERATION, 2_500), whole);
    }
    assert_eq!(lease([(50, 1 + seconds), (0, 0)], GENERATION, 0), whole);
    assert_eq!(lease([(50, 1), (0, 0)], 5, 900), whole, "it is over anyhow");
    // A part that is about to end leaves no time for a lease.
    let mut region = Region::new(Algorithm::SlidingWindow);
    assert!(region.keep(bytes(&held([(50, 1), (0, 0)], 0))));
    region.pass(Micros::new(999_999));
    assert_eq!(region.leased(16).0, 0);
}

/// The same loans, as of another generation.
fn restamped(mut loans: Vec<u8>) -> Vec<u8> {
    let stamp = 2 + usize::from(loans[1]) * 14 + 7;
    loans[stamp..stamp + 7].copy_from_slice(&5_u64.to_le_bytes()[..7]);
    loans
}

#[test]
fn a_share_that_would_end_before_a_lease_is_not_taken() {
    let mut region = Region::new(Algorithm::SlidingWindow);
    let (amount, usable) = region.leased(16);
    assert!(amount > 0);
    let ends = |early| {
        let mut loans = held([(50, 0), (0, 0)], 0);
        let end = NOW.after(usable).as_micros() - early;
        loans.peers[0].held.until = Timestamp::from_micros(end);
        bytes(&loans)
    };
    assert!(!region.keep(ends(1)));
    assert!(!region.keep(ends(0)), "at the same moment");
    let after = ends(0);
    let later = held([(50, 1 + LEASE_MAX.get() / 1_000_000), (0, 0)], 0);
    assert_ne!(after, bytes(&later));
    assert!(region.keep(bytes(&later)));
}

#[test]
fn a_lease_holds_a_sixteenth_of_the_share() {
    let mut windows = Region::new(Algorithm::FixedWindow);
    let mut loans = WindowLoans::new(OWNS, 3);
    loans.peers[1].held = WindowHeld {
        first: NOW_WINDOW,
        now: 60,
        next: 60,
        last: NOW_WINDOW + 1,
    };
    let kept = loans.encode(NOW_WINDOW, &regions()).expect("they fit");
    assert!(windows.keep(kept));
    assert_eq!(windows.leased(OWNS).0, 160 / 16);
    let mut log = Region::new(Algorithm::SlidingWindow);
    assert!(log.keep(bytes(&held([(60, 100), (0, 0)], 0))));
    assert_eq!(log.leased(OWNS).0, 160 / 16);
}

#[test]
fn what_a_lease_holds_counts_as_used() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let mut region = Region::new(algorithm);
        let used = |region: &mut Region| region.loans(None).expect("loans, or none").count;
        assert!(region.takes(10));
        let before = used(&mut region);
        let (amount, _) = region.leased(16);
        assert!(amount > 0);
        let after = used(&mut region);
        assert_eq!(after, before + amount, "{algorithm:?}");
        let loans = if algorithm == Algorithm::FixedWindow {
            WindowLoans::new(OWNS, 3).encode(NOW_WINDOW, &regions())
        } else {
            TimedLoans::new(OWNS, 3).encode(GENERATION, &regions())
        };
        let change = region.change(loans.expect("they fit"));
        for (most, fits) in [(after - 1, false), (after, true)] {
            let change = LoanChange {
                most,
                ..change.clone()
            };
            let changed = region.loans(Some(&change)).expect("loans, or none");
            assert_eq!(changed.is_written, fits, "{algorithm:?}");
        }
    }
}
