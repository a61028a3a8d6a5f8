//! Two limits on one counter, as on two nodes while a change of the rules reaches one after the other.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Timestamp, Verdict};
use ratekeeper_store::Store;

use super::{NOW, name, one, taking};

/// The length of every window, in microseconds.
const WINDOW: u64 = 60_000_000;

/// The most histories that are drawn: they are of one kind.
const HISTORIES_MAX: u32 = 60;

/// The time before a request.
#[derive(Clone, Copy, Debug)]
enum Gap {
    Micros(u64),
    /// As long as the last denial told its node to wait.
    Told,
    /// A microsecond less.
    Early,
}

#[derive(Clone, Copy, Debug)]
struct Drawn {
    node: usize,
    gap: Gap,
    hits: i64,
}

/// A denial: who was denied what, and how long it lasts without another charge.
#[derive(Clone, Copy)]
struct Denied {
    node: usize,
    hits: i64,
    until: Timestamp,
}

/// Checks that nodes with different bursts and rates together admit no more than a limit with the
/// larger burst and the faster rate, and that each denial ends when it was told to, in so many histories,
/// at most 60.
///
/// # Panics
/// If one of the two does not hold, with the smallest history found.
#[allow(clippy::expect_used, reason = "the limits drawn are valid")]
pub fn two_limits_admit_no_more_than_the_larger<S: Store>(make: impl Fn() -> S, histories: u32) {
    let quotas = prop::array::uniform2(1..=60_u64);
    let bursts = prop::array::uniform2(1..=60_u64);
    let algorithm = prop::sample::select(vec![Algorithm::TokenBucket, Algorithm::Gcra]);
    let history = prop::collection::vec(drawn(), 1..60);
    let config = Config {
        cases: histories.min(HISTORIES_MAX),
        failure_persistence: None,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(
        &(algorithm, quotas, bursts, history),
        |(algorithm, quotas, bursts, history)| {
            let limits = [0, 1].map(|node| {
                let spec = LimitSpec::new(algorithm, quotas[node], Micros::new(WINDOW));
                let burst = Some(bursts[node]);
                Limit::try_new(LimitSpec { burst, ..spec }).expect("a valid limit")
            });
            play(&make(), limits, &history);
            Ok(())
        },
    );
    if let Err(error) = result {
        panic!("{error}");
    }
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let gap = prop_oneof![
        4 => Just(Gap::Micros(0)),
        2 => (0..WINDOW / 10).prop_map(Gap::Micros),
        1 => (0..2 * WINDOW).prop_map(Gap::Micros),
        2 => Just(Gap::Told),
        1 => Just(Gap::Early),
    ];
    let hits = prop_oneof![3 => Just(1), 2 => 1..20_i64, 1 => 1..=60_i64];
    (0..2_usize, gap, hits).prop_map(|(node, gap, hits)| Drawn { node, gap, hits })
}

fn play<S: Store>(store: &S, limits: [Limit; 2], history: &[Drawn]) {
    let (mut now, mut denied, mut passed) = (NOW, None::<Denied>, Vec::new());
    for drawn in history {
        let (mut node, mut hits, mut expected) = (drawn.node, drawn.hits, None);
        match (drawn.gap, denied) {
            (Gap::Micros(micros), _) => now = now.after(Micros::new(micros)),
            (gap, Some(told)) => {
                (node, hits) = (told.node, told.hits);
                let early = u64::from(matches!(gap, Gap::Early));
                let then = Timestamp::from_micros(told.until.as_micros() - early);
                expected = (then >= now).then_some(early == 0);
                now = now.max(then);
            }
            (_, None) => {}
        }
        let (allowed, outcome) = one(store, now, taking(hits, &limits[node], 1));
        let limit = name(&limits[node]);
        if let Some(expected) = expected {
            assert_eq!(allowed, expected, "{limit} at {now:?}");
        }
        if allowed {
            passed.push((now, hits.unsigned_abs()));
            denied = None;
            assert_bound(limits, &passed);
        } else if outcome.verdict == Verdict::Later {
            let until = now.after(outcome.retry_after);
            denied = Some(Denied { node, hits, until });
        }
    }
}

/// Checks every stretch that ends with the last hits.
fn assert_bound(limits: [Limit; 2], passed: &[(Timestamp, u64)]) {
    let of_both = |value: fn(&Limit) -> u64| value(&limits[0]).max(value(&limits[1]));
    let (burst, quota) = (of_both(Limit::capacity), of_both(Limit::quota));
    let Some((last, _)) = passed.last() else {
        return;
    };
    let mut hits = 0;
    for (at, more) in passed.iter().rev() {
        hits += more;
        let most = burst * WINDOW + quota * last.since(*at).get();
        assert!(hits * WINDOW <= most, "{hits} hits since {at:?}");
    }
}
