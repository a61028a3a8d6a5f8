//! Compares the equal-count log with a list of every hit and its time: the hits above the limit
//! that pass, and the callers below the limit that are denied.

use proptest::prelude::*;
use ratekeeper_core::{
    Algorithm, Arithmetic, Ask, Groups, Limit, LimitSpec, Micros, Moment, State, Timestamp,
};
use ratekeeper_testkit::model::history::{Gap, Hits, gaps, hits, quotas, starts, takes, windows};

/// Every hit that was taken, oldest first.
#[derive(Default)]
struct Hit(Vec<(u64, u64)>);

impl Hit {
    /// Hits less than `span` before `now`.
    fn within(&self, now: Timestamp, span: u64) -> u64 {
        let hits = self.0.iter().rev();
        let hits = hits.take_while(|(time, _)| time + span > now.as_micros());
        hits.map(|(_, hits)| *hits).sum()
    }

    fn take(&mut self, hits: u64, now: Timestamp) {
        self.0.push((now.as_micros(), hits));
    }

    /// The newest come back first.
    fn give_back(&mut self, mut hits: u64) {
        while let Some((_, newest)) = self.0.last_mut().filter(|_| hits > 0) {
            let given = hits.min(*newest);
            *newest -= given;
            hits -= given;
            if *newest == 0 {
                self.0.pop();
            }
        }
    }
}

fn groups(limit: &Limit) -> Groups {
    match limit.arithmetic() {
        Arithmetic::EqualCount(groups) => groups,
        other => panic!("{other:?} is not an equal-count log"),
    }
}

/// The counted hits at `now`, capped at the capacity.
fn counted(limit: &Limit, state: &State, now: Timestamp) -> u64 {
    let peek = limit.test(state.as_ref(), Ask::hits(0), &Moment::at(now));
    limit.capacity() - peek.remaining
}

/// Limits around each change of the form, and some of every size.
fn limits() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => prop::sample::select(vec![1_u64, 5, 8, 9, 10, 12, 13, 17, 18, 22, 23, 24, 33, 34, 100, 1_000]),
        1 => quotas().prop_map(|quota| quota.min(1 << 40)),
    ]
}

fn spec(quota: u64, window: Micros, strict: bool) -> LimitSpec {
    LimitSpec {
        strict,
        ..LimitSpec::new(Algorithm::SlidingWindow, quota, window)
    }
}

fn long_enough() -> impl Strategy<Value = Micros> {
    windows().prop_map(|window| window.max(ratekeeper_core::equal_count::SHORTEST_WINDOW))
}

type Moves = Vec<(Gap, Hits)>;

fn moves(hits: impl Strategy<Value = Hits>) -> impl Strategy<Value = Moves> {
    prop::collection::vec((gaps(), hits), 1..120)
}

proptest! {
    /// Takes, refunds and peeks: the counted hits are those in the window, give or take a group
    /// that has begun to leave, and a tick.
    #[test]
    fn counts_what_came(
        quota in limits(),
        window in long_enough(),
        strict in any::<bool>(),
        start in starts(),
        moves in moves(hits()),
    ) {
        let limit = Limit::try_new(spec(quota, window, strict)).expect("a valid limit");
        let Groups { size, tick, .. } = groups(&limit);
        let (mut state, mut list) = (State::new(limit.shape()), Hit::default());
        let (mut now, mut last) = (start, None);
        let window = window.get();
        for (gap, hits) in moves {
            now = gap.after(now, &limit, last.as_ref());
            prop_assume!(now.as_micros() < 1 << 52);
            let hits = hits.number(&limit, last.as_ref());
            let answer = limit.step(&mut state, hits, &Moment::at(now));
            let before = list.within(now, window + tick.get());
            if answer.fits() && hits > 0 {
                list.take(hits.unsigned_abs(), now);
                let most = limit.most_in_any_window().unwrap_or(0);
                prop_assert!(most <= quota.max(quota + size - 1) && (!strict || most <= quota));
                prop_assert!(list.within(now, window) <= most, "{most}");
            } else if !answer.fits() {
                prop_assert!(before.saturating_add(hits.unsigned_abs()) > limit.capacity());
            } else {
                list.give_back(hits.unsigned_abs());
            }
            let counted = counted(&limit, &state, now);
            prop_assert!(counted <= list.within(now, window + tick.get()));
            prop_assert!(counted + size > list.within(now, window));
            last = Some(answer);
        }
    }

    /// Logs have whole seconds, and so do callers that follow a timetable. With limits up to 23
    /// each of their requests is decided as by a log of all hits, also one exactly a window after a
    /// hit.
    #[test]
    fn decides_whole_seconds_exactly(
        quota in 1..=23_u64,
        secs in 1..=250_u64,
        steps in prop::collection::vec((0..40_u64, 1..3_i64), 1..200),
    ) {
        let window = Micros::from_secs(secs);
        let log = LimitSpec::new(Algorithm::SlidingLog, quota, window);
        let limits = [spec(quota, window, false), log];
        let limits = limits.map(|spec| Limit::try_new(spec).expect("a valid limit"));
        let mut states = [&limits[0], &limits[1]].map(|limit| State::new(limit.shape()));
        let mut now = 1_800_000_007;
        for (gap, hits) in steps {
            now += gap * secs / 20;
            let at = Moment::at(Timestamp::from_secs(now));
            let answers = [0, 1].map(|one| limits[one].step(&mut states[one], hits, &at));
            prop_assert_eq!(answers[0].verdict, answers[1].verdict);
            prop_assert_eq!(answers[0].remaining, answers[1].remaining);
            prop_assert_eq!(answers[0].retry_after, answers[1].retry_after);
        }
    }

    /// Hits charged although they were denied: nothing is admitted while the limit's worth of hits,
    /// give or take a group, is in the window.
    #[test]
    fn counts_what_is_forced(
        quota in limits(),
        window in long_enough(),
        start in starts(),
        moves in moves(takes()),
    ) {
        let limit = Limit::try_new(spec(quota, window, false)).expect("a valid limit");
        let Groups { size, tick, .. } = groups(&limit);
        let (mut state, mut list) = (State::new(limit.shape()), Hit::default());
        let (mut now, mut last) = (start, None);
        let window = window.get();
        for (gap, hits) in moves {
            now = gap.after(now, &limit, last.as_ref());
            prop_assume!(now.as_micros() < 1 << 52);
            let hits = hits.number(&limit, last.as_ref()).min(1 << 42);
            last = Some(limit.test(state.as_ref(), Ask::hits(hits), &Moment::at(now)));
            crate::charge(&limit, &mut state, hits, now);
            list.take(hits.unsigned_abs(), now);
            let counted = counted(&limit, &state, now);
            prop_assert!(counted <= list.within(now, window + tick.get()));
            let truth = list.within(now, window);
            prop_assert!(counted >= (truth + 1).saturating_sub(size).min(limit.capacity()));
        }
    }

    /// After a change of limit no hit counts twice, and all but a group of each limit count.
    #[test]
    fn counts_through_a_change(
        quotas in (limits(), limits()),
        window in long_enough(),
        start in starts(),
        first in moves(takes()),
        second in moves(takes()),
    ) {
        let limits = [quotas.0, quotas.1]
            .map(|quota| Limit::try_new(spec(quota, window, false)).expect("a valid limit"));
        let sizes = limits.map(|limit| groups(&limit).size);
        let ticks = limits.map(|limit| groups(&limit).tick.get());
        let (mut state, mut list) = (State::new(limits[0].shape()), Hit::default());
        let (mut now, mut last) = (start, None);
        let window = window.get();
        let moves = first.into_iter().map(|each| (0, each));
        for (which, (gap, hits)) in moves.chain(second.into_iter().map(|each| (1, each))) {
            let limit = &limits[which];
            now = gap.after(now, limit, last.as_ref());
            prop_assume!(now.as_micros() < 1 << 52);
            let hits = hits.number(limit, last.as_ref()).min(1 << 42);
            let before = counted(limit, &state, now);
            let at = Moment::at(now);
            let answer = limit.test(state.as_ref(), Ask::hits(hits), &at);
            if answer.fits() {
                crate::charge(limit, &mut state, hits, now);
                list.take(hits.unsigned_abs(), now);
                prop_assert_eq!(counted(limit, &state, now), before + hits.unsigned_abs());
            }
            let counted = counted(limit, &state, now);
            prop_assert!(counted <= list.within(now, window + ticks[0] + ticks[1]));
            let truth = list.within(now, window).min(limit.capacity());
            let unknown = match which {
                0 => sizes[0] - 1,
                _ => sizes[0].max(sizes[1]) - 1 + sizes[1] - 1,
            };
            prop_assert!(counted + unknown >= truth, "{} for {}", counted, truth);
            last = Some(answer);
        }
    }
}

#[test]
fn the_bound_is_a_sixteenth_and_strict_is_none() {
    let limit = |quota, strict| {
        Limit::try_new(spec(quota, Micros::from_secs(60), strict)).expect("a valid limit")
    };
    let most = |quota, strict| limit(quota, strict).most_in_any_window();
    for quota in 0..=23 {
        assert_eq!(most(quota, false), Some(quota));
        assert_eq!(limit(quota, true).capacity(), quota);
    }
    assert_eq!(most(24, false), Some(25));
    assert_eq!(most(100, false), Some(106));
    assert_eq!(most(1_000, false), Some(1_062));
    assert_eq!(most(30_000, false), Some(31_874));
    for quota in 24..100_000 {
        let over = most(quota, false).unwrap_or(0) - quota;
        assert!(over * 16 < quota);
        let strict = limit(quota, true);
        let next = limit(strict.capacity() + 1, false);
        assert!(strict.most_in_any_window() <= Some(quota));
        assert!(next.most_in_any_window() > Some(quota), "{quota}");
        assert!(strict.capacity() > quota * 16 / 17);
    }
}

/// A burst at the end of a time step, then constant requests: twelve sub-windows would let nearly
/// twice the limit pass.
#[test]
fn a_burst_does_not_pass_twice() {
    let passed = |sub_windows| {
        let limit = Limit::try_new(LimitSpec {
            sub_windows,
            ..spec(1_000, Micros::from_secs(12), false)
        })
        .expect("a valid limit");
        let mut state = State::new(limit.shape());
        let mut list = Hit::default();
        let mut worst = 0;
        for millis in 930..26_000_u64 {
            let now = Timestamp::from_micros(1_200_000_000_000_000 + millis * 1_000);
            let tries = if millis == 930 { 1_000 } else { 3 };
            for _ in 0..tries {
                if limit.step(&mut state, 1, &Moment::at(now)).fits() {
                    list.take(1, now);
                }
            }
            worst = worst.max(list.within(now, 12_000_000));
        }
        worst
    };
    assert!(passed(Some(12)) > 1_900, "{}", passed(Some(12)));
    assert!(passed(None) <= 1_062, "{}", passed(None));
}

#[test]
fn a_counter_ahead_by_more_than_a_window_is_moved_and_counts_on() {
    let limit = Limit::try_new(spec(10, Micros::from_secs(60), false)).expect("a valid limit");
    let mut state = State::new(limit.shape());
    let hour = 3_600_000_000;
    let at = |micros| Moment::at(Timestamp::from_micros(1_700_000_000_000_000 + micros));
    for _ in 0..10 {
        assert!(limit.step(&mut state, 1, &at(hour)).fits());
    }
    // The clock is set back an hour: all ten still count, for a window and no longer.
    let denied = limit.step(&mut state, 1, &at(0));
    assert!(!denied.fits());
    assert!(
        denied.retry_after <= Micros::from_millis(60_001),
        "{denied:?}"
    );
    let wait = denied.retry_after.get();
    assert!(!limit.step(&mut state, 1, &at(wait - 1)).fits());
    assert!(limit.step(&mut state, 1, &at(wait)).fits());
    // By less than a window: the later time is kept.
    let mut state = State::new(limit.shape());
    for _ in 0..10 {
        assert!(limit.step(&mut state, 1, &at(30_000_000)).fits());
    }
    let denied = limit.step(&mut state, 1, &at(0));
    assert!(denied.retry_after >= Micros::from_secs(90), "{denied:?}");
}

/// Windows at both sides of every step of the tick's length, and some that people write.
fn edges_of_ticks() -> impl Iterator<Item = u64> {
    let divisors = (0..=6_u32).flat_map(|fives| {
        let twos = 0..=6_u32;
        twos.map(move |twos| 5_u64.pow(fives) * 2_u64.pow(twos))
    });
    let steps = divisors.flat_map(|tick| {
        let slots = [253, 2_045, 65_533, 4_194_301_u64];
        slots.into_iter().flat_map(move |slots| {
            let edge = tick * slots;
            [edge - 1, edge, edge + 1, edge + edge / 3]
        })
    });
    let written = [1, 10, 60, 127, 130, 253, 300, 3_600, 86_400, 2_592_000];
    let written = written.map(|secs: u64| secs * 1_000_000);
    steps.chain(written).filter(|window| *window >= 8_000)
}

/// The latest that a hit leaves a window after its end, as a part of the window and in microseconds.
const LATE: [(std::ops::RangeInclusive<u64>, u64); 2] = [(18..=23, 126), (0..=u64::MAX, 1_022)];

#[test]
fn a_hit_leaves_no_later_than_it_is_said_to() {
    let mut latest = 0.0_f64;
    for window in edges_of_ticks() {
        for quota in [1, 9, 10, 12, 13, 17, 18, 20, 23, 24, 100, 1_000, 2_000_000] {
            let spec = LimitSpec::new(Algorithm::SlidingWindow, quota, Micros::new(window));
            let limit = Limit::try_new(spec).expect("a valid limit");
            let tick = groups(&limit).tick.get();
            let part = LATE.iter().find(|(quotas, _)| quotas.contains(&quota));
            let (_, part) = part.expect("the last has all");
            for after in [1, tick / 2, tick - 1, tick] {
                let now = Timestamp::from_micros(1_700_000_000_000_000 / tick * tick + after);
                let mut state = State::new(limit.shape());
                let outcome = limit.step(&mut state, 1, &Moment::at(now));
                let late = outcome.full_after.get() - window;
                assert!(late < 32 || late * part < window, "{late} us of {limit:?}");
                latest = latest.max(late as f64 / window as f64);
            }
        }
    }
    // It is no looser than it has to be.
    assert!(latest > 1.0 / 127.0, "{latest}");
}
