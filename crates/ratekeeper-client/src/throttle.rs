//! Asks less of a service that refuses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use ratekeeper::tower::controllers::{ClientThrottle, mix};
use ratekeeper::{Micros, Timestamp};
use tonic::{Code, Status};

/// The longest time without a call that is sent, while there are any. So a client with few calls is never throttled,
/// and one with many notices at once that the service recovers.
const PROBE_EVERY: Micros = Micros::from_millis(100);

/// Decides which calls are not even sent, because the service refuses too many.
#[derive(Debug)]
pub(crate) struct Throttle {
    begun: Instant,
    throttle: Mutex<ClientThrottle>,
    /// The time of the last call that was sent, in microseconds since then.
    sent_us: AtomicU64,
    /// The number of calls so far, from which lots are drawn.
    drawn: AtomicU64,
    /// Calls that were not sent.
    pub(crate) held_back: AtomicU64,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            throttle: Mutex::default(),
            sent_us: AtomicU64::new(0),
            drawn: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Decides whether a call is sent.
    ///
    /// # Errors
    /// It is not: the service refuses too many.
    pub(crate) fn pass(&self) -> Result<(), Status> {
        let now = self.now();
        let mut throttle = self.throttle.lock();
        let rejection = throttle.rejection(now);
        // Relaxed: independent counts, here and below.
        let is_due = || now.since(self.sent()) >= PROBE_EVERY;
        let is_drawn = || lot(self.drawn.fetch_add(1, Ordering::Relaxed)) >= rejection;
        if rejection <= 0.0 || is_due() || is_drawn() {
            self.sent_us.store(now.as_micros(), Ordering::Relaxed);
            return Ok(());
        }
        throttle.on_sample(now, false);
        self.held_back.fetch_add(1, Ordering::Relaxed);
        Err(Status::unavailable(
            "not sent, because the service refuses too many calls",
        ))
    }

    /// Records the answer to a call that was sent. Calls that no service answered say nothing: they have a remedy of
    /// their own.
    pub(crate) fn observe<T>(&self, answer: &Result<T, Status>) {
        let is_refusal = match answer {
            Ok(_) => false,
            Err(status) if std::error::Error::source(status).is_some() => return,
            Err(status) => match status.code() {
                Code::Unavailable | Code::ResourceExhausted => true,
                Code::DeadlineExceeded | Code::Cancelled | Code::Unknown => return,
                _ => false,
            },
        };
        self.throttle.lock().on_sample(self.now(), !is_refusal);
    }

    fn sent(&self) -> Timestamp {
        Timestamp::from_micros(self.sent_us.load(Ordering::Relaxed))
    }

    fn now(&self) -> Timestamp {
        let micros = self.begun.elapsed().as_micros();
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// A number from 0 to 1 that looks random.
#[expect(clippy::cast_precision_loss, reason = "53 bits of 64 are enough")]
fn lot(number: u64) -> f64 {
    mix(number) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_refuses_everything_is_asked_less() {
        let throttle = Throttle::new();
        let mut sent = 0;
        for _ in 0..1_000 {
            if throttle.pass().is_ok() {
                sent += 1;
                throttle.observe::<()>(&Err(Status::resource_exhausted("too many streams")));
            }
        }
        assert!((1..100).contains(&sent), "{sent}");
        let held_back = throttle.held_back.load(Ordering::Relaxed);
        assert_eq!(held_back, 1_000 - sent);
    }

    #[test]
    fn denials_of_single_calls_and_silence_are_no_refusals() {
        let throttle = Throttle::new();
        for _ in 0..1_000 {
            assert!(throttle.pass().is_ok());
            throttle.observe::<()>(&Err(Status::invalid_argument("no domain")));
            throttle.observe::<()>(&Err(Status::deadline_exceeded("no answer")));
            throttle.observe(&Ok(()));
        }
    }
}
