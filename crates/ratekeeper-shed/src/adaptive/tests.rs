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
    // 300 in flight whatever the limit: in shadow mode nothing holds them back.
    upstream.drive(2_000, 50, FAST, Some(300));
    assert_eq!(upstream.limit.unloaded(), FAST);
    // 500 answers in a second: as many as 15 at a time would get in 30 ms.
    assert!((14..=16).contains(&upstream.limit.limit()));
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
    /// Windows of requests that end so.
    fn end(&mut self, windows: u32, took: Micros, in_flight: u32, ending: Ending) {
        for _ in 0..52 * windows {
            self.now = self.now.after(Micros::from_millis(2));
            let round_trip = RoundTrip {
                took,
                in_flight,
                ending,
            };
            self.limit.on_sample(self.now, round_trip);
        }
    }
}

#[test]
fn clients_that_give_up_late_shrink_the_limit() {
    let mut upstream = Upstream::new();
    upstream.drive(200, 50, FAST, None);
    let before = upstream.limit.limit();
    // They are few enough for the limit not to be busy, and so few that the unloaded round trip could be measured.
    upstream.end(60, Micros::from_millis(80), 20, Ending::GivenUp);
    let after = upstream.limit.limit();
    assert!(after < 16, "{before} {after}");
    assert_eq!(upstream.limit.unloaded(), FAST);
    // One that gives up after less than an ordinary round trip says nothing.
    upstream.drive(200, 50, FAST, None);
    let before = upstream.limit.limit();
    upstream.end(100, Micros::from_millis(10), 60, Ending::GivenUp);
    assert_eq!(upstream.limit.limit(), before);
}

#[test]
fn clients_that_all_give_up_from_the_start_shrink_the_limit() {
    let mut upstream = Upstream::new();
    upstream.end(60, Micros::from_millis(400), 20, Ending::GivenUp);
    assert_eq!(upstream.limit.limit(), 1);
    assert_eq!(upstream.limit.unloaded(), Micros::new(0));
}

impl Upstream {
    /// Requests at the limit, of which every twentieth is refused at once, whatever the load.
    fn drive_with_refusals(&mut self, windows: u32, capacity: u32) {
        for _ in 0..windows {
            let in_flight = self.limit.limit();
            let queued = (f64::from(in_flight) / f64::from(capacity)).max(1.0);
            for number in 0..60 {
                self.now = self.now.after(Micros::from_millis(2));
                let (took, ending) = match number % 20 {
                    0 => (Micros::from_millis(1), Ending::Dropped),
                    _ => (
                        Micros::new((FAST.get() as f64 * queued) as u64),
                        Ending::Answered,
                    ),
                };
                let round_trip = RoundTrip {
                    took,
                    in_flight,
                    ending,
                };
                self.limit.on_sample(self.now, round_trip);
            }
        }
    }
}

#[test]
fn quick_refusals_while_little_is_in_flight_say_nothing_about_load() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 100, FAST, None);
    let before = upstream.limit.limit();
    assert!(before > 100, "{before}");
    // A window may have begun before.
    upstream.drive(1, 100, FAST, Some(5));
    let before = upstream.limit.limit();
    upstream.end(40, Micros::from_millis(1), 5, Ending::Dropped);
    assert_eq!(upstream.limit.limit(), before);
    for number in 0..52_000 {
        let ending = match number % 32 {
            0 => Ending::Dropped,
            _ => Ending::Answered,
        };
        upstream.now = upstream.now.after(Micros::from_millis(2));
        let round_trip = RoundTrip {
            took: FAST,
            in_flight: 5,
            ending,
        };
        upstream.limit.on_sample(upstream.now, round_trip);
    }
    assert_eq!(upstream.limit.limit(), before);
}

#[test]
fn refusals_that_do_not_become_fewer_as_the_limit_falls_are_not_of_load() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 50, FAST, None);
    upstream.drive_with_refusals(60, 50);
    for _ in 0..200 {
        upstream.drive_with_refusals(1, 50);
        let limit = upstream.limit.limit();
        assert!((50..=90).contains(&limit), "{limit}");
    }
    // Those that come in addition are.
    let before = upstream.limit.limit();
    upstream.end(2, Micros::from_millis(1), 80, Ending::Dropped);
    assert!(upstream.limit.limit() < before);
}

#[test]
fn refusals_that_become_fewer_as_the_limit_falls_hold_it_there() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 100, FAST, None);
    for _ in 0..300 {
        let in_flight = upstream.limit.limit();
        // It has room for 30, and refuses a fifth of the requests beyond them at once.
        match in_flight > 30 {
            true => {
                upstream.end(1, FAST, in_flight, Ending::Answered);
                upstream.end(1, Micros::from_millis(1), in_flight, Ending::Dropped);
            }
            false => upstream.drive(1, 100, FAST, None),
        }
    }
    let limit = upstream.limit.limit();
    assert!((20..=40).contains(&limit), "{limit}");
}

#[test]
fn an_upstream_that_was_away_is_soon_used_again() {
    let mut upstream = Upstream::new();
    upstream.drive(400, 100, FAST, None);
    let before = upstream.limit.limit();
    // Connections are refused at once, under as many requests as may be in flight.
    for _ in 0..150 {
        let in_flight = upstream.limit.limit();
        upstream.end(1, Micros::from_millis(1), in_flight, Ending::Dropped);
    }
    let away = upstream.limit.limit();
    upstream.drive(30, 100, FAST, None);
    let after = upstream.limit.limit();
    assert!(after > before / 2, "{before} {away} {after}");
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
