//! An upstream whose round trips grow with load, and which then fails.

use std::collections::VecDeque;

use fastrand::Rng;

/// Requests that it works on at a time.
pub(crate) const WORKERS: usize = 50;
/// The mean time that one takes, in microseconds.
pub(crate) const SERVICE_US: f64 = 50_000.0;
/// Requests per second that it can answer.
pub(crate) const CAPACITY: f64 = WORKERS as f64 * 1e6 / SERVICE_US;
/// The requests in it from which on they get in each other's way.
const CROWDED: usize = 4 * WORKERS;
/// The requests in it from which on it refuses more.
const FULL: usize = 20 * WORKERS;

/// First in, first out, with exponential service times. It does not notice that a client has gone, and works for it all
/// the same: this is why goodput collapses.
pub(crate) struct Upstream {
    /// The requests that it works on at a time, at least one.
    pub(crate) workers: usize,
    busy: usize,
    queue: VecDeque<usize>,
}

/// The upstream's response to a new request.
pub(crate) enum Taken {
    /// It is served, and will be done after so many microseconds.
    Serving(u64),
    Queued,
    Refused,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            workers: WORKERS,
            busy: 0,
            queue: VecDeque::new(),
        }
    }
}

impl Upstream {
    pub(crate) fn take(&mut self, job: usize, slow: f64, rng: &mut Rng) -> Taken {
        if self.busy + self.queue.len() >= FULL {
            return Taken::Refused;
        }
        if self.busy < self.workers {
            self.busy += 1;
            return Taken::Serving(self.service_us(slow, rng));
        }
        self.queue.push_back(job);
        Taken::Queued
    }

    /// A request is done: returns the next, and how long it will take. None if there is none, or a worker has gone.
    pub(crate) fn done(&mut self, slow: f64, rng: &mut Rng) -> Option<(usize, u64)> {
        if self.busy > self.workers {
            self.busy -= 1;
            return None;
        }
        let Some(next) = self.queue.pop_front() else {
            self.busy -= 1;
            return None;
        };
        Some((next, self.service_us(slow, rng)))
    }

    fn service_us(&self, slow: f64, rng: &mut Rng) -> u64 {
        let inside = self.busy + self.queue.len();
        let crowd = inside.saturating_sub(CROWDED) as f64 / CROWDED as f64;
        let mean = SERVICE_US * slow * (1.0 + crowd);
        (-mean * (1.0 - rng.f64()).ln()) as u64 + 1
    }
}
