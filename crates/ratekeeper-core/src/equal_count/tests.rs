//! Examples at the edges of groups and ticks.

use crate::{
    Algorithm, Ask, Limit, LimitError, LimitSpec, Micros, Moment, Outcome, Spill, State, StateMut,
    Timestamp, Verdict, Words,
};

/// A multiple of the ticks that windows of 2,045 seconds have: a second, and 487.6 us.
const START: u64 = 1_000_000_000_000;

fn spec(quota: u64) -> LimitSpec {
    LimitSpec::new(Algorithm::SlidingWindow, quota, Micros::from_secs(2_045))
}

fn limit(quota: u64) -> Limit {
    Limit::try_new(spec(quota)).expect("a valid limit")
}

fn at(secs: u64) -> Moment {
    Moment::at(Timestamp::from_micros(START + secs * 1_000_000))
}

fn step(limit: &Limit, state: &mut State, hits: i64, secs: u64) -> Outcome {
    limit.step(state, hits, &at(secs))
}

#[test]
fn a_group_leaves_when_its_first_hit_does() {
    // Groups of two.
    let limit = limit(30);
    let mut state = State::new(limit.shape());
    for secs in [0, 10, 20, 30] {
        assert!(step(&limit, &mut state, 1, secs).fits());
    }
    let left = |state: &mut State, secs| step(&limit, state, 0, secs).remaining;
    assert_eq!(left(&mut state, 2_044), 26);
    // The hit at 0 leaves and takes the one at 10 along: half a group is not counted any more.
    assert_eq!(left(&mut state, 2_045), 28);
    assert_eq!(left(&mut state, 2_064), 28);
    assert_eq!(left(&mut state, 2_065), 30);
}

#[test]
fn a_counter_is_ahead_once_the_clock_went_back_by_more_than_a_window() {
    let limit = limit(30);
    let mut state = State::new(limit.shape());
    assert!(step(&limit, &mut state, 1, 5_000).fits());
    let is_ahead = |secs| limit.is_ahead(state.as_ref(), at(secs).now);
    assert!(!is_ahead(5_000));
    assert!(!is_ahead(4_000));
    assert!(is_ahead(2_000));
}

#[test]
fn up_to_23_every_hit_leaves_by_itself() {
    let limit = limit(23);
    let mut state = State::new(limit.shape());
    // Ticks of 2,045 / 253 seconds, rounded up to whole microseconds.
    let tick = 2_045_000_000_u64.div_ceil(253);
    let mut now = START.div_ceil(tick) * tick;
    let first = now;
    for _ in 0..23 {
        let moment = Moment::at(Timestamp::from_micros(now));
        assert!(limit.step(&mut state, 1, &moment).fits());
        now += 10 * tick;
    }
    let moment = |micros| Moment::at(Timestamp::from_micros(micros));
    let wait = limit.step(&mut state, 1, &moment(now));
    assert_eq!(wait.verdict, Verdict::Later);
    assert_eq!(now + wait.retry_after.get(), first + 2_045_000_000);
    assert_eq!(wait.retry_after, wait.reset_after);
    let then = limit.step(&mut state, 1, &moment(first + 2_045_000_000));
    assert_eq!((then.verdict, then.remaining), (Verdict::Fits, 0));
}

#[test]
fn reset_is_when_the_next_hit_comes_back() {
    let limit = limit(30);
    let mut state = State::new(limit.shape());
    let untouched = step(&limit, &mut state, 0, 0);
    assert_eq!(untouched.reset_after, Micros::ZERO);
    let first = step(&limit, &mut state, 3, 0);
    assert_eq!(first.reset_after, Micros::from_secs(2_045));
    // A hit of another group does not move the oldest.
    let second = step(&limit, &mut state, 3, 45);
    assert_eq!(second.reset_after, Micros::from_secs(2_000));
    // The newest three are given back; the oldest three remain.
    let given = step(&limit, &mut state, -3, 45);
    assert_eq!(
        (given.remaining, given.reset_after),
        (27, Micros::from_secs(2_000))
    );
    assert_eq!(step(&limit, &mut state, -3, 45).reset_after, Micros::ZERO);
}

#[test]
fn a_limit_raised_beyond_its_groups_regroups_what_counts() {
    let (small, large) = (limit(100), limit(10_000));
    let mut state = State::new(small.shape());
    for secs in 0..100 {
        assert!(step(&small, &mut state, 1, secs).fits());
    }
    assert_eq!(step(&large, &mut state, 1, 100).remaining, 9_899);
    // Groups of 7 became one of 625 that began with the oldest of them.
    assert_eq!(step(&large, &mut state, 0, 2_044).remaining, 9_899);
    assert_eq!(step(&large, &mut state, 0, 2_045).remaining, 10_000);
}

#[test]
fn a_limit_lowered_far_is_held_with_groups_of_its_own() {
    let (large, small) = (limit(10_000), limit(100));
    let mut state = State::new(large.shape());
    step(&large, &mut state, 50, 0);
    assert_eq!(step(&small, &mut state, 1, 10).remaining, 49);
    for secs in 11..60 {
        assert!(step(&small, &mut state, 1, secs).fits());
    }
    assert!(!step(&small, &mut state, 1, 60).fits());
    // What was charged before the change began at 0, and leaves first.
    let denied = step(&small, &mut state, 1, 2_044);
    assert_eq!(denied.retry_after, Micros::from_secs(1));
    let left = step(&small, &mut state, 0, 2_045).remaining;
    assert!((50..=56).contains(&left), "{left}");
}

#[test]
fn a_group_too_large_for_its_words_spills_and_changes_nothing() {
    let (fits, large) = (limit(1_048_513), limit(1_048_514));
    assert_eq!(fits.shape(), crate::Shape::Words);
    assert_eq!(large.shape(), crate::Shape::Heap);
    let mut words: Words = [0; 4];
    assert_eq!(
        fits.charge(StateMut::Words(&mut words), 1_000_000, &at(0)),
        Ok(())
    );
    let full = words;
    assert_eq!(
        large.charge(StateMut::Words(&mut words), 1, &at(0)),
        Err(Spill)
    );
    assert_eq!(words, full);
    let mut state = State::Heap(large.spill(&words));
    assert_eq!(step(&large, &mut state, 1, 0).remaining, 48_513);
    assert_eq!(step(&fits, &mut state, 0, 0).remaining, 48_512);
}

#[test]
fn forced_hits_fill_the_counter_and_leave_with_its_window() {
    let limit = limit(100);
    let mut state = State::new(limit.shape());
    assert_eq!(limit.charge(state.as_mut(), i64::MAX, &at(0)), Ok(()));
    let denied = limit.test(state.as_ref(), Ask::hits(1), &at(2_044));
    assert_eq!(denied.retry_after, Micros::from_secs(1));
    assert_eq!(step(&limit, &mut state, 100, 2_045).verdict, Verdict::Fits);
}

#[test]
fn windows_shorter_than_their_ticks_bear_are_refused() {
    let spec = |micros| LimitSpec {
        window: Micros::new(micros),
        ..spec(10)
    };
    assert_eq!(Limit::try_new(spec(7_999)), Err(LimitError::WindowTooShort));
    assert!(Limit::try_new(spec(8_000)).is_ok());
    let cut = LimitSpec {
        sub_windows: Some(11),
        ..spec(1_000)
    };
    assert!(Limit::try_new(cut).is_ok());
}
