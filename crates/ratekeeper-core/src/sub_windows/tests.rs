#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of tests are small"
)]

//! Examples at the edges of sub-windows, and of the lanes.

use super::ring::{get, lane_bits, set};
use crate::{
    Algorithm, Limit, LimitSpec, Micros, Moment, Outcome, Spill, State, StateMut, Timestamp,
    Verdict, Words,
};
use proptest::prelude::*;

/// The start of windows of twelve seconds, and of sub-windows of every length that divides them.
const START: u64 = 12_000_000 * 100_000;

fn limit(quota: u64, sub_windows: u32) -> Limit {
    let spec = LimitSpec::new(Algorithm::SlidingWindow, quota, Micros::from_secs(12));
    let sub_windows = Some(sub_windows);
    Limit::try_new(LimitSpec {
        sub_windows,
        ..spec
    })
    .expect("a valid limit")
}

fn at(micros: u64) -> Moment {
    Moment::at(Timestamp::from_micros(START + micros))
}

fn step(limit: &Limit, state: &mut State, hits: i64, micros: u64) -> Outcome {
    limit.step(state, hits, &at(micros))
}

#[test]
fn the_oldest_sub_window_fades_out() {
    let limit = limit(10, 1);
    let mut state = State::new(limit.shape());
    step(&limit, &mut state, 10, 0);
    // All ten count to the end of their window and at the very edge; then one leaves every
    // 1.2 seconds, and a hit that has begun to leave counts until it has left.
    let left = |state: &mut State, micros| step(&limit, state, 0, micros).remaining;
    assert_eq!(left(&mut state, 11_999_999), 0);
    assert_eq!(left(&mut state, 12_000_000), 0);
    assert_eq!(left(&mut state, 13_199_999), 0);
    assert_eq!(left(&mut state, 13_200_000), 1);
    assert_eq!(left(&mut state, 13_200_001), 1);
    assert_eq!(left(&mut state, 23_999_999), 9);
    assert_eq!(left(&mut state, 24_000_000), 10);
}

#[test]
fn a_look_tells_when_the_present_hits_are_gone() {
    let limit = limit(10, 12);
    let mut state = State::new(limit.shape());
    step(&limit, &mut state, 1, 0);
    let looked = step(&limit, &mut state, 0, 5_000_000);
    assert_eq!(looked.full_after, Micros::from_secs(8));
}

#[test]
fn a_hit_counts_whole_until_its_sub_window_is_the_oldest() {
    let limit = limit(1, 12);
    let mut state = State::new(limit.shape());
    step(&limit, &mut state, 1, 999_999);
    // Its sub-window ends at one second, is the oldest from twelve, and has faded out at
    // thirteen: the one hit counts until then, though it came just before the edge.
    let denied = step(&limit, &mut state, 1, 12_999_999);
    assert_eq!(denied.verdict, Verdict::Later);
    assert_eq!(denied.retry_after, Micros::new(1));
    assert_eq!(
        step(&limit, &mut state, 1, 13_000_000).verdict,
        Verdict::Fits
    );
}

#[test]
fn a_wait_may_end_inside_a_later_sub_window() {
    let limit = limit(10, 12);
    let mut state = State::new(limit.shape());
    step(&limit, &mut state, 4, 0);
    step(&limit, &mut state, 6, 3_500_000);
    // Seven need the four of the first second gone, and half of the six of the fourth.
    let denied = step(&limit, &mut state, 7, 4_000_000);
    assert_eq!(denied.verdict, Verdict::Later);
    assert_eq!(denied.retry_after, Micros::new(15_500_000 - 4_000_000));
}

#[test]
fn reset_is_when_the_next_hit_comes_back() {
    let limit = limit(10, 12);
    let mut state = State::new(limit.shape());
    let told = |outcome: Outcome| (outcome.reset_after, outcome.full_after);
    assert_eq!(
        told(step(&limit, &mut state, 0, 0)),
        (Micros::ZERO, Micros::ZERO)
    );
    // One hit counts until its sub-window has wholly left, two until half of it has.
    assert_eq!(
        told(step(&limit, &mut state, 1, 0)),
        (Micros::from_secs(13), Micros::from_secs(13))
    );
    assert_eq!(
        told(step(&limit, &mut state, 1, 0)),
        (Micros::from_millis(12_500), Micros::from_secs(13))
    );
    assert_eq!(
        told(step(&limit, &mut state, 1, 11_999_999)),
        (Micros::new(500_001), Micros::new(12_000_001))
    );
    assert_eq!(
        told(step(&limit, &mut state, -1, 11_999_999)),
        (Micros::new(500_001), Micros::new(1_000_001))
    );
}

#[test]
fn a_count_too_large_for_its_lane_spills_and_changes_nothing() {
    let limit = limit(1_000_000, 12);
    let mut words: Words = [0; 4];
    assert_eq!(
        limit.charge(StateMut::Words(&mut words), 65_535, &at(0)),
        Ok(())
    );
    let full = words;
    assert_eq!(
        limit.charge(StateMut::Words(&mut words), 1, &at(0)),
        Err(Spill)
    );
    assert_eq!(words, full);
    let mut heap = limit.spill(&words);
    assert_eq!(limit.charge(StateMut::Heap(&mut heap), 1, &at(0)), Ok(()));
    assert_eq!(heap.iter().skip(1).sum::<u64>(), 65_536);
}

#[test]
fn windows_too_short_to_cut_are_refused_with_what_works() {
    let spec = LimitSpec {
        sub_windows: Some(12),
        ..LimitSpec::new(Algorithm::SlidingWindow, 10, Micros::from_millis(1))
    };
    let refused = Limit::try_new(spec).expect_err("84 * 12 is 0.8 % more than 1000");
    let expected = crate::LimitError::SubWindowsTooShort {
        sub_windows: 12,
        most: 11,
    };
    assert_eq!(refused, expected);
    assert!(
        Limit::try_new(LimitSpec {
            sub_windows: Some(11),
            ..spec
        })
        .is_ok()
    );
}

/// Writes to the lanes, to be repeated on a list.
fn writes() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((0..13_usize, any::<u64>()), 1..60)
}

proptest! {
    #[test]
    fn lanes_of_every_width_hold(lanes in 2..=13_usize, writes in writes(), index in any::<u64>()) {
        let bits = lane_bits(lanes as u32);
        let index = index >> 16;
        let mut words: Words = [index, 0, 0, 0];
        let mut list = vec![0; lanes];
        for (lane, value) in writes {
            let value = match value % 3 {
                0 => (1 << bits) - 1,
                _ => value >> (64 - bits),
            };
            set(&mut words, bits, lane % lanes, value);
            list[lane % lanes] = value;
            let held: Vec<u64> = (0..lanes).map(|lane| get(&words, bits, lane)).collect();
            prop_assert_eq!(&held, &list);
            prop_assert_eq!(words[0] & ((1 << 48) - 1), index);
        }
    }

    /// A script's doubles give the same number as the integers.
    #[test]
    fn integers_stand_in_for_doubles(
        oldest in prop_oneof![0..100_u64, 0..1_u64 << 53],
        length in prop_oneof![32..100_u64, 32..1_u64 << 45],
        elapsed in any::<u64>(),
    ) {
        let oldest = oldest.min((1_u64 << 53) / length);
        let sub = super::SubWindows::try_new(Micros::new(length), 1).expect("not too short");
        let elapsed = elapsed % length;
        let product = oldest as f64 * (length - elapsed) as f64;
        let part = (product / length as f64).ceil() as u64;
        prop_assert_eq!(super::carry::carried(&sub, oldest, elapsed), part);
    }

    /// The guess is right or corrected: at the returned moment the hits fit, just before they do
    /// not.
    #[test]
    fn the_first_moment_that_fits_is_found(
        oldest in prop_oneof![2..100_u64, 2..1_u64 << 53],
        room in any::<u64>(),
        length in prop_oneof![32..100_u64, 32..1_u64 << 45],
        elapsed in any::<u64>(),
    ) {
        let sub = super::SubWindows::try_new(Micros::new(length), 1).expect("not too short");
        let room = room % oldest;
        let fits = |elapsed| super::carry::carried(&sub, oldest, elapsed) <= room;
        // At its beginning all of the oldest hits count.
        let elapsed = Some(elapsed % length).filter(|elapsed| !fits(*elapsed)).unwrap_or(0);
        match super::carry::first_fit(&sub, oldest, room, elapsed) {
            Some(first) => prop_assert!(first > elapsed && fits(first) && !fits(first - 1)),
            None => prop_assert!(!fits(length - 1)),
        }
    }
}
