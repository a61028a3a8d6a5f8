//! Calendar windows: edges that come with each step, months of different lengths and days of 23 to
//! 25 hours, also if the clock goes back or has passed into the next window by itself.

use proptest::prelude::*;
use ratekeeper_core::{
    Algorithm, Ask, Bounds, Limit, LimitSpec, Micros, Moment, State, Timestamp, Verdict,
};
use ratekeeper_testkit::model::Model;

const HOUR: u64 = 3_600_000_000;

/// Edges of fourteen windows, 23 to 31 hours apart, and a limit whose window is the longest.
fn edges() -> impl Strategy<Value = Vec<Timestamp>> {
    prop::collection::vec(23..=31_u64, 14).prop_map(|hours| {
        let edges = hours.iter().scan(1_700_000_000_000_000, |edge, hours| {
            *edge += hours * HOUR;
            Some(Timestamp::from_micros(*edge))
        });
        edges.collect()
    })
}

/// The window around `now` and the end of the next, as an edge computes them.
fn bounds(edges: &[Timestamp], now: Timestamp) -> Bounds {
    let next = edges.partition_point(|edge| *edge <= now);
    Bounds {
        start: edges[next - 1],
        end: edges[next],
        next_end: edges[next + 1],
    }
}

fn spec(quota: u64) -> LimitSpec {
    let window = Micros::new(31 * HOUR);
    LimitSpec {
        calendar: true,
        ..LimitSpec::new(Algorithm::FixedWindow, quota, window)
    }
}

/// An edge, an offset from it, and the age of the computed bounds.
fn moments() -> impl Strategy<Value = (usize, i64, u64)> {
    let beside = prop_oneof![-1..=1_i64, -(40 * HOUR as i64)..40 * HOUR as i64];
    (3..10_usize, beside, prop_oneof![Just(0_u64), 0..20 * HOUR])
}

proptest! {
    #[test]
    fn count_what_came_since_the_edge(
        quota in 0..6_u64,
        edges in edges(),
        mut moments in prop::collection::vec((moments(), 0..4_i64), 1..40),
    ) {
        let limit = Limit::try_new(spec(quota)).expect("a valid limit");
        let mut model = Model::with_edges(spec(quota), edges.clone());
        let mut state = State::new(limit.shape());
        let time = |edge: usize, beside: i64| edges[edge].as_micros().saturating_add_signed(beside);
        moments.sort_by_key(|((edge, beside, _), _)| time(*edge, *beside));
        for ((edge, beside, ago), hits) in moments {
            let now = Timestamp::from_micros(time(edge, beside));
            // The store's clock may have passed the end of the window for which the bounds were
            // computed.
            let looked_up = Timestamp::from_micros(now.as_micros() - ago);
            let calendar = Some(bounds(&edges, looked_up));
            let at = Moment { now, calendar };
            let expected = model.answer(Ask::hits(hits), now);
            let answer = limit.step(&mut state, hits, &at);
            prop_assert_eq!(answer, expected);
            model.charge(if answer.fits() { hits } else { 0 }, now);
            let expires = limit.expires_at(state.as_ref(), &at);
            let end = edges.iter().find(|edge| **edge > now).copied();
            prop_assert_eq!(Some(expires), end);
        }
    }

    #[test]
    fn restart_only_when_the_clock_goes_back_by_more_than_a_window(
        quota in 1..6_u64,
        edges in edges(),
        moments in prop::collection::vec((moments(), 1..4_i64), 1..40),
    ) {
        let limit = Limit::try_new(spec(quota)).expect("a valid limit");
        let mut state = State::new(limit.shape());
        let mut in_window = std::collections::BTreeMap::new();
        let (mut latest, mut far_back) = (Timestamp::EPOCH, 0);
        for ((edge, beside, _), hits) in moments {
            let now = edges[edge].as_micros().saturating_add_signed(beside);
            let now = Timestamp::from_micros(now);
            let at = Moment { now, calendar: Some(bounds(&edges, now)) };
            let answer = limit.step(&mut state, hits, &at);
            prop_assert!(answer.remaining <= quota);
            // Each time one more window's hits may pass.
            let is_first = latest == Timestamp::EPOCH;
            if !is_first && bounds(&edges, latest).start.since(now) > limit.window() {
                (latest, far_back) = (now, far_back + 1);
            } else {
                latest = latest.max(now);
            }
            if answer.fits() {
                let window = in_window.entry(bounds(&edges, latest).start).or_insert(0);
                *window += hits.unsigned_abs();
                prop_assert!(*window <= quota * (1 + far_back));
            }
        }
    }
}

#[test]
fn the_next_window_begins_at_its_edge() {
    let limit = Limit::try_new(spec(1)).expect("a valid limit");
    let mut state = State::new(limit.shape());
    let bounds = Bounds {
        start: Timestamp::from_secs(1_000),
        end: Timestamp::from_secs(2_000),
        next_end: Timestamp::from_secs(3_000),
    };
    let at = |micros| Moment {
        now: Timestamp::from_micros(micros),
        calendar: Some(bounds),
    };
    assert!(limit.step(&mut state, 1, &at(1_999_999_998)).fits());
    let denied = limit.step(&mut state, 1, &at(1_999_999_999));
    assert_eq!(denied.verdict, Verdict::Later);
    assert_eq!(denied.retry_after, Micros::new(1));
    assert!(limit.step(&mut state, 1, &at(2_000_000_000)).fits());
    let denied = limit.step(&mut state, 1, &at(2_000_000_001));
    assert_eq!(denied.retry_after, Micros::new(999_999_999));
}
