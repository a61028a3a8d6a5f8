#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of tests are small"
)]

use super::*;

const BOUNDS: AdaptiveBounds = AdaptiveBounds { min: 1, max: 1_000 };

/// An upstream that can do `capacity` things at a time, each in `took`, driven at the limit.
struct Upstream {
    limit: AdaptiveLimit,
    now: Timestamp,
}

impl Upstream {
    fn new() -> Self {
        Self {
            limit: AdaptiveLimit::new(BOUNDS),
            now: Timestamp::from_secs(1),
        }
    }

    fn drive(&mut self, windows: u32, capacity: u32, took: Micros, in_flight: Option<u32>) {
        for _ in 0..windows {
            let in_flight = in_flight.unwrap_or(self.limit.limit());
            let queued = (f64::from(in_flight) / f64::from(capacity)).max(1.0);
            let round_trip = RoundTrip {
                took: Micros::new((took.get() as f64 * queued) as u64),
                in_flight,
                ending: Ending::Answered,
            };
            for _ in 0..52 {
                self.now = self.now.after(Micros::from_millis(2));
                self.limit.on_sample(self.now, round_trip);
            }
        }
    }
}

const FAST: Micros = Micros::from_millis(20);

#[test]
fn it_finds_the_capacity_and_stays_there() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 50, FAST, None);
    for _ in 0..100 {
        upstream.drive(1, 50, FAST, None);
        let limit = upstream.limit.limit();
        assert!((60..=90).contains(&limit), "{limit}");
    }
    assert_eq!(upstream.limit.unloaded(), FAST);
}

#[test]
fn an_idle_upstream_does_not_raise_the_limit() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 50, FAST, Some(3));
    assert_eq!(upstream.limit.limit(), 20);
}

#[test]
fn an_upstream_that_became_slower_for_good_is_measured_again() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 50, FAST, None);
    upstream.drive(400, 50, Micros::from_millis(100), None);
    let limit = upstream.limit.limit();
    assert!((60..=90).contains(&limit), "{limit}");
    let unloaded = upstream.limit.unloaded().get();
    assert!((67_000..=101_000).contains(&unloaded), "{unloaded}");
}

#[test]
fn a_long_overload_is_not_taken_for_the_normal_state() {
    let mut upstream = Upstream::new();
    upstream.drive(200, 50, FAST, None);
    // 300 in flight whatever the limit: others use the upstream, too.
    upstream.drive(2_000, 50, FAST, Some(300));
    assert_eq!(upstream.limit.unloaded(), FAST);
    assert_eq!(upstream.limit.limit(), 1);
}

#[test]
fn equally_slow_timeouts_shrink_the_limit() {
    let mut upstream = Upstream::new();
    upstream.drive(200, 50, FAST, None);
    let lost = RoundTrip {
        took: Micros::from_secs(1),
        in_flight: 60,
        ending: Ending::Dropped,
    };
    for _ in 0..100 {
        upstream.now = upstream.now.after(Micros::from_secs(1));
        upstream.limit.on_sample(upstream.now, lost);
    }
    assert_eq!(upstream.limit.limit(), 1);
    upstream.drive(200, 50, FAST, None);
    assert!(upstream.limit.limit() > 40, "{}", upstream.limit.limit());
}

impl Upstream {
    /// Windows of calls that may stream, driven at the limit.
    fn stream(&mut self, windows: u32, ending: Ending) {
        for _ in 0..windows {
            let in_flight = self.limit.limit();
            for _ in 0..52 {
                self.now = self.now.after(Micros::from_millis(2));
                self.limit.on_untimed(self.now, in_flight, ending);
            }
        }
    }
}

#[test]
fn without_round_trips_it_grows_until_calls_are_dropped() {
    let mut upstream = Upstream::new();
    upstream.stream(8, Ending::Answered);
    let grown = upstream.limit.limit();
    assert!((80..=90).contains(&grown), "{grown}");
    assert!(upstream.limit.is_guess());
    upstream.stream(1, Ending::Dropped);
    assert!(!upstream.limit.is_guess());
    // A window may have begun before the drops, and one may end after them.
    upstream.stream(2, Ending::Answered);
    let shrunk = upstream.limit.limit();
    assert!((60..80).contains(&shrunk), "{shrunk}");
    upstream.stream(5, Ending::Answered);
    assert_eq!(upstream.limit.limit(), shrunk + 5);
}

#[test]
fn calls_that_may_stream_move_nothing_where_there_are_round_trips() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 50, FAST, None);
    let before = upstream.limit.limit();
    upstream.stream(50, Ending::Dropped);
    assert_eq!(upstream.limit.limit(), before, "within ten seconds");
    upstream.stream(100, Ending::Dropped);
    assert!(upstream.limit.limit() < before / 2, "after them");
}

#[test]
fn the_limit_begins_with_what_the_upstream_could_take() {
    let mut upstream = Upstream::new();
    assert!(upstream.limit.is_guess());
    // Nothing holds back what is in flight in shadow mode.
    upstream.drive(6, 1_000, FAST, Some(200));
    assert!(!upstream.limit.is_guess());
    assert_eq!(upstream.limit.limit(), 400);
    let fixed = AdaptiveLimit::new(AdaptiveBounds { min: 9, max: 9 });
    assert!(!fixed.is_guess());
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_it() {
    let mut upstream = Upstream::new();
    upstream.drive(200, 50, FAST, None);
    upstream.now = Timestamp::from_secs(1);
    let before = upstream.limit.limit();
    upstream.drive(200, 10, FAST, None);
    let after = upstream.limit.limit();
    assert!(after < before * 2 / 3 && after >= 10, "{before} {after}");
}

#[test]
fn bounds_that_make_no_sense_become_one() {
    let mut limit = AdaptiveLimit::new(AdaptiveBounds { min: 0, max: 0 });
    assert_eq!(limit.limit(), 1);
    limit.set_bounds(AdaptiveBounds { min: 9, max: 3 });
    assert_eq!(limit.limit(), 9);
}
