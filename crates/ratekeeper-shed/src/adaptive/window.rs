//! The requests that ended in one window.

use ratekeeper_core::Timestamp;

use super::{Ending, ROUND_TRIP_MIN_US, RoundTrip, SAMPLES_MIN};

#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) since: Timestamp,
    pub(super) answered: u32,
    pub(super) dropped: u32,
    /// Those of them that took long.
    pub(super) timed_out: u32,
    pub(super) given_up: u32,
    sum_us: u64,
    pub(super) in_flight_max: u32,
}

impl Window {
    pub(super) const fn new(since: Timestamp) -> Self {
        Self {
            since,
            answered: 0,
            dropped: 0,
            timed_out: 0,
            given_up: 0,
            sum_us: 0,
            in_flight_max: 0,
        }
    }

    /// Records a round trip, which was a long one or not.
    pub(super) fn record(&mut self, round_trip: RoundTrip, is_long: bool) {
        self.in_flight_max = self.in_flight_max.max(round_trip.in_flight);
        let count = match round_trip.ending {
            Ending::Answered => &mut self.answered,
            Ending::Dropped => &mut self.dropped,
            Ending::GivenUp => &mut self.given_up,
        };
        *count = count.saturating_add(1);
        if round_trip.ending == Ending::Dropped {
            self.timed_out = self.timed_out.saturating_add(u32::from(is_long));
        } else {
            self.sum_us = self.sum_us.saturating_add(round_trip.took.get());
        }
    }

    pub(super) const fn samples(&self) -> u32 {
        self.timed().saturating_add(self.dropped)
    }

    /// The requests whose round trip took at least a time that is known.
    pub(super) const fn timed(&self) -> u32 {
        self.answered.saturating_add(self.given_up)
    }

    /// Returns true if at least half of the clients gave up.
    pub(super) const fn is_given_up(&self) -> bool {
        self.given_up > 0 && self.given_up >= self.answered
    }

    /// The average round trip, at least: those that were given up would have taken longer. None if there are too few to
    /// tell.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a mean of microseconds, far below 2^52"
    )]
    pub(super) fn average_us(&self) -> Option<f64> {
        let average = self.sum_us as f64 / f64::from(self.timed().max(1));
        (self.timed() >= SAMPLES_MIN && average >= ROUND_TRIP_MIN_US).then_some(average)
    }

    /// The requests that the upstream worked on and that ended by `now`, in one microsecond. Those that it refused at once
    /// are none.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate of microseconds, far below 2^52"
    )]
    pub(super) fn rate(&self, now: Timestamp) -> f64 {
        let worked_on = f64::from(self.timed().saturating_add(self.timed_out));
        worked_on / now.since(self.since).get().max(1) as f64
    }
}
