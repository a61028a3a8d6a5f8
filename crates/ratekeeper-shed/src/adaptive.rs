//! Adaptive concurrency: finds the number of requests that an upstream can work on at a time.

use ratekeeper_core::{Micros, Timestamp};

/// The shortest time over which round trips are averaged.
const WINDOW_MIN: Micros = Micros::from_millis(100);
/// The longest, for an upstream whose round trips are long.
const WINDOW_MAX: Micros = Micros::from_secs(1);
/// The samples that end a window, and the fewest that end one of the longest time; with fewer it stays open.
const SAMPLES_ENOUGH: u32 = 50;
const SAMPLES_MIN: u32 = 10;
/// Windows from which the first unloaded round trip is averaged, after one that is left out: the first answers are
/// the fastest ones, as the slow ones are still under way.
const FIRST_WINDOWS: u32 = 5;
/// The part of the last good limit that is forgotten each window.
const FORGOTTEN: f64 = 0.01;
/// Round trips may grow to this multiple of the unloaded one before the limit shrinks.
const TOLERANCE: f64 = 1.5;
/// The weight of a window's result in a limit that shrinks.
const SMOOTHING: f64 = 0.2;
/// The weight of a window in the unloaded round trip.
const BASELINE_WEIGHT: f64 = 0.4;
/// The weight of growth in the new limit while round trips are as short as unloaded ones; less the longer they are.
const GROWTH: f64 = 0.6;
/// Standard deviations by which a window has to be faster to count as faster. Those of exponential round trips, which
/// spread more than most.
const SIGNIFICANCE: f64 = 3.0;
/// The factor applied to the limit after a window with drops.
const BACKOFF: f64 = 0.9;
/// The share of drops that is taken for the upstream's ordinary rate of errors.
const DROPS_TOLERATED: f64 = 0.02;
/// The shortest average round trip that says anything about the upstream's load.
const ROUND_TRIP_MIN_US: f64 = 100.0;
/// The time without a complete window of round trips after which calls without one move the limit.
const SILENCE: Micros = Micros::from_secs(10);

/// The bounds of an adaptive limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdaptiveBounds {
    /// The smallest limit, at least 1.
    pub min: u32,
    /// The largest limit.
    pub max: u32,
}

impl AdaptiveBounds {
    /// The limit to start from, as in the published algorithms.
    const INITIAL: u32 = 20;

    const fn sound(self) -> Self {
        let min = if self.min == 0 { 1 } else { self.min };
        let max = if self.max < min { min } else { self.max };
        Self { min, max }
    }
}

/// The end of a round trip.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The upstream answered.
    Answered,
    /// The upstream timed out, refused the request for overload, or could not be reached.
    Dropped,
}

/// A round trip to the upstream. Upgrades and calls that may stream make none: their length says nothing about load.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoundTrip {
    /// The time until the answer began.
    pub took: Micros,
    /// The requests in flight when it began, itself included.
    pub in_flight: u32,
    /// The outcome.
    pub ending: Ending,
}

/// A limit on concurrency that follows the upstream's round trips.
///
/// Based on Gradient2 of Netflix's concurrency-limits (Apache-2.0, 2018), which compares round trips
/// under load with longer-term ones:
///
/// ```text
/// gradient = clamp(1.5 * unloaded / average, 0.5, 1.5)
/// limit   += gradient < 1 ? 0.2 * limit * (gradient - 1)
///                         : 1.2 * sqrt(limit) * (gradient - 1)            within [min, max]
///
///            grows while round trips stay          shrinks, but only until
///            below 1.5 x unloaded                  in flight <= half of the last good limit:
///   limit  ____/~~~~~~~~~~~~~~~~\__________________/  there the unloaded round trip is measured again
/// ```
///
/// It differs from the published algorithm where that is known to fail:
/// - Drops shrink the limit (times 0.9), as in AIMD. Gradient2 ignores them, so that constant timeouts, which are
///   all equally slow, make it grow to its maximum.
/// - The queue term is added only while round trips are short, and fades out towards the point where they are not.
///   Otherwise the limit creeps up under steady load.
/// - The smallest limit is 1 rather than 20, for upstreams that can do only a few things at a time.
/// - The unloaded round trip is an average of windows in which at most half of the last good limit was in flight. It
///   is neither a minimum, which one lucky round trip spoils, nor a long-term average, which takes a long
///   overload for the normal state.
///
/// While round trips say nothing (all requests dropped, or faster than 0.1 ms), it is AIMD (Chiu and Jain, 1989): one
/// more after a window without drops, times 0.9 after one with drops. So it is for an upstream that gets hardly anything
/// but calls that may stream, with growth by a fifth until the first drop.
///
/// Until the unloaded round trip is known, or a request was dropped, the limit is a guess. Then it becomes at least twice
/// what was in flight meanwhile, which the upstream could take.
///
/// Known weakness: an upstream that loses more than half of its workers, and is overloaded from that moment on, is
/// still queueing when half of the last good limit is in flight. The limit then settles too high, with round trips
/// too long by that factor, until the load falls.
///
/// Windows last 0.1 to 1 s and have 50 samples, or at least 10 after a second. A clock that is set back starts the
/// window afresh; without samples the limit stays.
#[derive(Clone, Debug)]
pub struct AdaptiveLimit {
    bounds: AdaptiveBounds,
    limit: f64,
    /// The limit while round trips were last as short as they should be.
    good_limit: f64,
    /// True until round trips have grown for the first time.
    is_starting: bool,
    /// Windows that went into the first unloaded round trip, from 0 for the one that is left out.
    windows: u32,
    /// The average round trip at low concurrency, in microseconds.
    unloaded_us: f64,
    /// The average of the last window.
    average_us: f64,
    window: Option<Window>,
    /// The time at which the last window ended.
    concluded: Option<Timestamp>,
    /// A window of calls that may stream.
    untimed: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    since: Timestamp,
    answered: u32,
    dropped: u32,
    sum_us: u64,
    in_flight_max: u32,
}

impl Window {
    const fn new(since: Timestamp) -> Self {
        Self {
            since,
            answered: 0,
            dropped: 0,
            sum_us: 0,
            in_flight_max: 0,
        }
    }

    fn record(&mut self, round_trip: RoundTrip) {
        self.in_flight_max = self.in_flight_max.max(round_trip.in_flight);
        match round_trip.ending {
            Ending::Answered => {
                self.answered = self.answered.saturating_add(1);
                self.sum_us = self.sum_us.saturating_add(round_trip.took.get());
            }
            Ending::Dropped => self.dropped = self.dropped.saturating_add(1),
        }
    }

    fn has_drops(&self) -> bool {
        let total = f64::from(self.answered) + f64::from(self.dropped);
        f64::from(self.dropped) > DROPS_TOLERATED * total
    }

    /// The average round trip; None if there are too few to tell.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a mean of microseconds, far below 2^52"
    )]
    fn average_us(&self) -> Option<f64> {
        let average = self.sum_us as f64 / f64::from(self.answered.max(1));
        (self.answered >= SAMPLES_MIN && average >= ROUND_TRIP_MIN_US).then_some(average)
    }
}

impl AdaptiveLimit {
    /// A limit within `bounds`, 20 to begin with.
    #[must_use]
    pub fn new(bounds: AdaptiveBounds) -> Self {
        let bounds = bounds.sound();
        let initial = f64::from(AdaptiveBounds::INITIAL.clamp(bounds.min, bounds.max));
        Self {
            bounds,
            limit: initial,
            good_limit: initial,
            is_starting: true,
            windows: 0,
            unloaded_us: 0.0,
            average_us: 0.0,
            window: None,
            concluded: None,
            untimed: None,
        }
    }

    /// Changes the bounds, and keeps what was learnt.
    pub fn set_bounds(&mut self, bounds: AdaptiveBounds) {
        self.bounds = bounds.sound();
        self.set_limit(self.limit);
    }

    /// The requests that may be in flight: at least the smallest limit, at most the largest.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a limit between its bounds, which are u32"
    )]
    pub const fn limit(&self) -> u32 {
        self.limit as u32
    }

    /// Returns true while nothing is known of the upstream: neither its unloaded round trip, nor that it drops requests.
    /// A limit that the bounds fix is none.
    #[must_use]
    pub const fn is_guess(&self) -> bool {
        let is_open = self.bounds.min < self.bounds.max;
        is_open && self.is_starting && self.windows <= FIRST_WINDOWS
    }

    /// The average round trip at low concurrency; zero while unknown.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "microseconds, not negative"
    )]
    pub const fn unloaded(&self) -> Micros {
        Micros::new(self.unloaded_us as u64)
    }

    /// The average round trip in the last window; zero while unknown.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "microseconds, not negative"
    )]
    pub const fn average(&self) -> Micros {
        Micros::new(self.average_us as u64)
    }

    /// Records a round trip that ended at `now`, and returns the limit.
    pub fn on_sample(&mut self, now: Timestamp, round_trip: RoundTrip) -> u32 {
        let window = self.window.get_or_insert(Window::new(now));
        if now < window.since {
            *window = Window::new(now);
        }
        window.record(round_trip);
        let window = *window;
        if self.is_complete(&window, now) {
            self.window = None;
            self.concluded = Some(now);
            self.conclude(&window);
        }
        self.limit()
    }

    /// Records the end of a call that may stream, which makes no round trip, and returns the limit.
    pub fn on_untimed(&mut self, now: Timestamp, in_flight: u32, ending: Ending) -> u32 {
        let window = self.untimed.get_or_insert(Window::new(now));
        if now < window.since {
            *window = Window::new(now);
        }
        window.record(RoundTrip {
            took: Micros::new(0),
            in_flight,
            ending,
        });
        let window = *window;
        if self.is_complete(&window, now) {
            self.untimed = None;
            if self.lacks_round_trips(now) {
                self.conclude_untimed(&window);
            }
        }
        self.limit()
    }

    /// Returns true if there are so few round trips that they do not move the limit.
    fn lacks_round_trips(&self, now: Timestamp) -> bool {
        let is_past = |at: Timestamp| now.since(at) >= SILENCE;
        let is_thin = |it: Window| it.answered < SAMPLES_MIN || is_past(it.since);
        self.concluded.is_none_or(is_past) && self.window.is_none_or(is_thin)
    }

    fn conclude_untimed(&mut self, window: &Window) {
        if window.has_drops() {
            self.shrink();
        } else if self.is_starting && self.is_busy(window) {
            self.set_limit(self.limit * (1.0 + SMOOTHING));
        } else if self.is_busy(window) {
            self.set_limit(self.limit + 1.0);
        }
    }

    fn is_busy(&self, window: &Window) -> bool {
        f64::from(window.in_flight_max) >= self.limit / 2.0
    }

    fn shrink(&mut self) {
        self.is_starting = false;
        self.set_limit((self.limit * BACKOFF).min(self.limit - 0.5));
    }

    fn is_complete(&self, window: &Window, now: Timestamp) -> bool {
        let age = now.since(window.since);
        let round_trips = Micros::new(self.unloaded().get().saturating_mul(2));
        let due = age >= round_trips.clamp(WINDOW_MIN, WINDOW_MAX);
        let is_old = age >= WINDOW_MAX;
        let samples = window.answered.saturating_add(window.dropped);
        let is_enough = samples >= SAMPLES_ENOUGH || is_old && samples >= SAMPLES_MIN;
        due && (is_enough || is_old && window.dropped > 0)
    }

    fn conclude(&mut self, window: &Window) {
        if window.has_drops() {
            self.shrink();
            return;
        }
        let is_busy = self.is_busy(window);
        let Some(average) = window.average_us() else {
            if is_busy && window.answered > 0 {
                self.set_limit(self.limit + 1.0);
            }
            return;
        };
        self.average_us = average;
        let Some(unloaded) = self.learn(average, window) else {
            return;
        };
        let gradient = (TOLERANCE * unloaded / average).clamp(0.5, TOLERANCE);
        self.good_limit *= 1.0 - FORGOTTEN;
        if gradient >= 1.0 {
            self.good_limit = self.good_limit.max(self.limit);
        }
        if is_busy {
            self.follow(gradient);
        }
    }

    fn follow(&mut self, gradient: f64) {
        let change = if gradient < 1.0 {
            self.is_starting = false;
            self.limit * (gradient - 1.0) * SMOOTHING
        } else if self.is_starting {
            // Doubles every four windows until round trips first grow, as TCP's slow start does.
            self.limit * SMOOTHING
        } else {
            self.limit.sqrt() * GROWTH * (gradient - 1.0) / (TOLERANCE - 1.0)
        };
        self.set_limit(self.limit + change);
    }

    /// Learns the unloaded round trip from a window at low concurrency, or from one that was faster than chance
    /// explains: if every faster window counted, chance alone would lower the average. None while it is first learnt.
    fn learn(&mut self, average: f64, window: &Window) -> Option<f64> {
        if self.windows <= FIRST_WINDOWS {
            let weight = 1.0 / f64::from(self.windows.max(1));
            self.unloaded_us += (average - self.unloaded_us) * weight;
            self.windows += 1;
            if self.windows > FIRST_WINDOWS {
                self.set_limit(self.limit.max(2.0 * f64::from(window.in_flight_max)));
            }
            return None;
        }
        let is_low = f64::from(window.in_flight_max) <= (self.good_limit / 2.0).max(1.0);
        let chance = SIGNIFICANCE / f64::from(window.answered).sqrt();
        if is_low || average < self.unloaded_us * (1.0 - chance) {
            self.unloaded_us += (average - self.unloaded_us) * BASELINE_WEIGHT;
        }
        Some(self.unloaded_us)
    }

    fn set_limit(&mut self, limit: f64) {
        let (min, max) = (f64::from(self.bounds.min), f64::from(self.bounds.max));
        self.limit = limit.clamp(min, max);
    }
}

#[cfg(test)]
mod tests;
