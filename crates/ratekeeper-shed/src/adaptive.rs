//! Adaptive concurrency: finds the number of requests that an upstream can work on at a time.

mod drops;
mod window;

use ratekeeper_core::{Micros, Timestamp};

use self::drops::UsualDrops;
use self::window::Window;

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
/// The part of the last good limit below which refusals shrink it no further, while they are all that is wrong.
const AWAY_PART: f64 = 0.125;
/// The longest time of a round trip that counts as short while the unloaded one is unknown.
const SHORT_US: f64 = 100_000.0;
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
    /// The client left before: the answer would have taken at least that long.
    GivenUp,
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
///   all equally slow, make it grow to its maximum. Refusals at once count only while the limit is used, and only beyond
///   those that come with little in flight, too: they may be of one path, or of an upstream that is away.
/// - A client that gives up late is a round trip of at least that length. If most do, the limit shrinks by the whole
///   gradient. Otherwise impatient clients would leave no sign of an overload.
/// - It shrinks no further than to what the upstream works on according to Little's law, so that a limit in shadow mode, which
///   holds nothing back, stays where it would be useful.
/// - Below half of the last good limit it grows by up to a fifth a window, as TCP does below its threshold.
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
    usual_drops: UsualDrops,
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
            usual_drops: UsualDrops::NONE,
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

    /// Records a round trip that ended at `now`, and returns the limit. One whose client gave up while it was no longer
    /// than it may be says nothing.
    pub fn on_sample(&mut self, now: Timestamp, round_trip: RoundTrip) -> u32 {
        let is_long = self.is_long(round_trip.took);
        if round_trip.ending == Ending::GivenUp && !is_long {
            return self.limit();
        }
        let window = self.window.get_or_insert(Window::new(now));
        if now < window.since {
            *window = Window::new(now);
        }
        window.record(round_trip, is_long);
        let window = *window;
        if self.is_complete(&window, now) {
            self.window = None;
            self.concluded = Some(now);
            self.conclude(&window, now);
        }
        self.limit()
    }

    /// Records the end of a call that may stream, which makes no round trip, and returns the limit.
    pub(crate) fn on_untimed(&mut self, now: Timestamp, in_flight: u32, ending: Ending) -> u32 {
        let window = self.untimed.get_or_insert(Window::new(now));
        if now < window.since {
            *window = Window::new(now);
        }
        let took = Micros::new(0);
        let round_trip = RoundTrip {
            took,
            in_flight,
            ending,
        };
        window.record(round_trip, false);
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
        self.good_limit *= 1.0 - FORGOTTEN;
        let is_busy = self.is_busy(window);
        self.usual_drops.learn(window, self.is_low(window));
        if self.usual_drops.are_exceeded(window) {
            if is_busy {
                self.shrink();
            }
            return;
        }
        self.good_limit = self.good_limit.max(self.limit);
        if is_busy {
            self.grow_by_one();
        }
    }

    /// Grows while round trips are not known.
    fn grow_by_one(&mut self) {
        let growth = match self.is_starting || self.limit < self.good_limit / 2.0 {
            true => (self.limit * SMOOTHING).max(1.0),
            false => 1.0,
        };
        self.set_limit(self.limit + growth);
    }

    fn is_busy(&self, window: &Window) -> bool {
        f64::from(window.in_flight_max) >= self.limit / 2.0
    }

    /// Returns true if so little was in flight that the upstream was not loaded, as far as is known.
    fn is_low(&self, window: &Window) -> bool {
        f64::from(window.in_flight_max) <= (self.good_limit / 2.0).max(1.0)
    }

    fn shrink(&mut self) {
        self.is_starting = false;
        self.set_limit((self.limit * BACKOFF).min(self.limit - 0.5));
    }

    /// Returns true if `took` is longer than round trips may become.
    #[expect(clippy::cast_precision_loss, reason = "microseconds, far below 2^52")]
    fn is_long(&self, took: Micros) -> bool {
        let may_take = match self.unloaded_us > 0.0 {
            true => TOLERANCE * self.unloaded_us,
            false => SHORT_US,
        };
        took.get() as f64 > may_take
    }

    /// Returns true if nothing hints at a queue in the upstream: answers are as short as they may be; if there are hardly
    /// any, all refusals were.
    fn is_short(&self, window: &Window) -> bool {
        match window.average_us() {
            Some(average) => average <= TOLERANCE * self.unloaded_us,
            None => window.timed_out == 0,
        }
    }

    fn is_complete(&self, window: &Window, now: Timestamp) -> bool {
        let age = now.since(window.since);
        let round_trips = Micros::new(self.unloaded().get().saturating_mul(2));
        let due = age >= round_trips.clamp(WINDOW_MIN, WINDOW_MAX);
        let is_old = age >= WINDOW_MAX;
        let samples = window.samples();
        let is_enough = samples >= SAMPLES_ENOUGH || is_old && samples >= SAMPLES_MIN;
        due && (is_enough || is_old && window.dropped > 0)
    }

    fn conclude(&mut self, window: &Window, now: Timestamp) {
        let is_busy = self.is_busy(window);
        if self.shrinks_by_drops(window, is_busy, now) {
            return;
        }
        let Some(average) = window.average_us() else {
            if is_busy && window.answered > 0 {
                self.grow_by_one();
            }
            return;
        };
        self.average_us = average;
        // Where most clients give up, the limit is too high, busy or not, and nothing can be measured.
        let is_given_up = window.is_given_up();
        if is_given_up && self.windows <= FIRST_WINDOWS {
            self.shrink();
            return;
        }
        if !is_given_up && !self.learn(average, window) {
            return;
        }
        let gradient = (TOLERANCE * self.unloaded_us / average).clamp(0.5, TOLERANCE);
        self.good_limit *= 1.0 - FORGOTTEN;
        if gradient >= 1.0 {
            self.good_limit = self.good_limit.max(self.limit);
            if is_busy {
                self.grow(gradient);
            }
        } else if is_given_up {
            // Hardly anything is of use to anyone, and the upstream may work on what was given up: no time for averages.
            self.good_limit = self.good_limit.min(self.limit);
            self.shrink_to(self.limit * gradient, window, now);
        } else if is_busy {
            let smoothed = self.limit * (1.0 - (1.0 - gradient) * SMOOTHING);
            self.shrink_to(smoothed, window, now);
        }
    }

    /// Shrinks the limit if the upstream dropped so many requests that it must be for load. Refusals at once are a sign of it
    /// only while the limit is used.
    fn shrinks_by_drops(&mut self, window: &Window, is_busy: bool, now: Timestamp) -> bool {
        let is_short = self.is_short(window);
        self.usual_drops
            .learn(window, is_short && self.is_low(window));
        let is_late = window.has_timeouts();
        if !self.usual_drops.are_exceeded(window) || !is_busy && !is_late {
            return false;
        }
        if is_late {
            self.good_limit = self.good_limit.min(self.limit);
            let less = (self.limit * BACKOFF).min(self.limit - 0.5);
            self.shrink_to(less, window, now);
            return true;
        }
        // Refusals alone: it may be away rather than overloaded, and as good as before when it is back.
        let is_away = window.is_away() && is_short;
        if is_away && self.limit <= AWAY_PART * self.good_limit {
            self.good_limit *= 1.0 - FORGOTTEN;
        } else {
            self.shrink();
        }
        true
    }

    fn grow(&mut self, gradient: f64) {
        let room = (gradient - 1.0) / (TOLERANCE - 1.0);
        let growth = if self.is_starting {
            // Doubles every four windows until round trips first grow, as TCP's slow start does.
            self.limit * SMOOTHING
        } else if self.limit < self.good_limit / 2.0 {
            (self.limit * SMOOTHING).max(self.limit.sqrt() * GROWTH) * room
        } else {
            self.limit.sqrt() * GROWTH * room
        };
        self.set_limit(self.limit + growth);
    }

    /// Shrinks to `limit`, but no further than to what would be in flight if all that the upstream worked on in the window had
    /// taken as long as it may (Little's law). In shadow mode, where nothing is held back and shrinking never helps, this
    /// is the limit that it would have.
    fn shrink_to(&mut self, limit: f64, window: &Window, now: Timestamp) {
        self.is_starting = false;
        let enough = window.rate(now) * TOLERANCE * self.unloaded_us;
        self.set_limit(limit.max(enough).min(self.limit));
    }

    /// Learns the unloaded round trip from a window at low concurrency, or from one that was faster than chance
    /// explains: if every faster window counted, chance alone would lower the average. False while it is first learnt.
    fn learn(&mut self, average: f64, window: &Window) -> bool {
        if self.windows <= FIRST_WINDOWS {
            let weight = 1.0 / f64::from(self.windows.max(1));
            self.unloaded_us += (average - self.unloaded_us) * weight;
            self.windows += 1;
            if self.windows > FIRST_WINDOWS {
                self.set_limit(self.limit.max(2.0 * f64::from(window.in_flight_max)));
            }
            return false;
        }
        let chance = SIGNIFICANCE / f64::from(window.timed()).sqrt();
        if self.is_low(window) || average < self.unloaded_us * (1.0 - chance) {
            self.unloaded_us += (average - self.unloaded_us) * BASELINE_WEIGHT;
        }
        true
    }

    fn set_limit(&mut self, limit: f64) {
        let (min, max) = (f64::from(self.bounds.min), f64::from(self.bounds.max));
        self.limit = limit.clamp(min, max);
    }
}

#[cfg(test)]
mod tests;
