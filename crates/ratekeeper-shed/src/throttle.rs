//! Client-side throttling: a client that is refused often asks less.

use ratekeeper_core::{Micros, Timestamp};

/// The time over which requests are remembered. The source has two minutes, after which a backend that had refused
/// everything and works again would still be asked next to nothing.
const MEMORY: Micros = Micros::from_secs(10);
/// The number of slices that the memory consists of; the oldest is forgotten whole.
const SLICES: usize = 10;
const SLICE_US: u64 = MEMORY.get() / SLICES as u64;

/// Decides which requests a client should not even send.
///
/// Adaptive throttling from "Handling Overload" in *Site Reliability Engineering* (Beyer et al., 2016): over the last
/// ten seconds a client counts its `requests`, and the `accepts` among them. It rejects a new request by itself with
/// the probability
///
/// ```text
/// max(0, (requests - K * accepts) / (requests + 1))      K = 2
/// ```
///
/// so that the backend still sees about K times what it accepts, and the client notices when it recovers. Requests
/// that were rejected here count as requests.
#[derive(Clone, Debug, Default)]
pub struct ClientThrottle {
    slices: [Slice; SLICES],
    /// The number of the slice that is being filled, since the epoch.
    current: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    requests: u64,
    accepts: u64,
}

impl ClientThrottle {
    /// The requests that may reach the backend for each that it accepts.
    const K: f64 = 2.0;

    /// The probability with which a request at `now` should be rejected, from 0 to 1.
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of ten seconds, far below 2^52"
    )]
    pub fn rejection(&mut self, now: Timestamp) -> f64 {
        self.advance(now);
        let sum = |of: fn(&Slice) -> u64| self.slices.iter().map(of).sum::<u64>() as f64;
        let (requests, accepts) = (sum(|slice| slice.requests), sum(|slice| slice.accepts));
        ((requests - Self::K * accepts) / (requests + 1.0)).max(0.0)
    }

    /// Records a request at `now`: `accepted` if the backend answered it, false if the backend refused it or it was
    /// rejected here.
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a usize")]
    pub fn on_sample(&mut self, now: Timestamp, accepted: bool) {
        self.advance(now);
        let slice = &mut self.slices[(self.current % SLICES as u64) as usize];
        slice.requests = slice.requests.saturating_add(1);
        slice.accepts = slice.accepts.saturating_add(u64::from(accepted));
    }

    /// Forgets slices that are too old. A clock that is set back keeps filling the latest slice.
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a usize")]
    fn advance(&mut self, now: Timestamp) {
        let slice = now.as_micros() / SLICE_US;
        let passed = slice.saturating_sub(self.current).min(SLICES as u64);
        for ahead in 1..=passed {
            self.slices[((self.current + ahead) % SLICES as u64) as usize] = Slice::default();
        }
        if passed == SLICES as u64 {
            self.slices = [Slice::default(); SLICES];
        }
        self.current = self.current.max(slice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn played(accepted: impl Fn(u64) -> bool) -> f64 {
        let mut throttle = ClientThrottle::default();
        for number in 0..1_000 {
            throttle.on_sample(Timestamp::from_micros(number * 1_000), accepted(number));
        }
        throttle.rejection(Timestamp::from_secs(1))
    }

    #[test]
    fn a_client_that_is_accepted_half_the_time_sends_everything() {
        assert_eq!(played(|_| true), 0.0);
        assert_eq!(played(|number| number % 2 == 0), 0.0);
    }

    #[test]
    fn a_client_that_is_always_refused_sends_almost_nothing() {
        let rejection = played(|_| false);
        assert!((0.998..1.0).contains(&rejection), "{rejection}");
        let rejection = played(|number| number % 4 == 0);
        assert!((0.49..0.51).contains(&rejection), "{rejection}");
    }

    #[test]
    fn refusals_are_forgotten_after_ten_seconds() {
        let mut throttle = ClientThrottle::default();
        for _ in 0..100 {
            throttle.on_sample(Timestamp::from_secs(1_000), false);
        }
        assert!(throttle.rejection(Timestamp::from_secs(1_009)) > 0.9);
        assert_eq!(throttle.rejection(Timestamp::from_secs(1_010)), 0.0);
        // Set back by an hour: nothing is remembered that was forgotten.
        assert_eq!(throttle.rejection(Timestamp::from_secs(0)), 0.0);
    }
}
