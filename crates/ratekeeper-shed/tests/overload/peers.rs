//! Published concurrency limits, as their sources give them: what ours are compared with.
//!
//! AIMD, Vegas and Gradient2 are those of Netflix's concurrency-limits behind its `WindowedLimit`, with default
//! settings. Envoy's is its adaptive concurrency filter with the gradient controller.

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_shed::{Ending, RoundTrip};

pub(crate) trait Limit {
    fn limit(&self) -> u32;
    fn on_sample(&mut self, now: Timestamp, round_trip: RoundTrip);
}

/// Averages of a window.
pub(crate) struct Sample {
    rtt: f64,
    in_flight: f64,
    dropped: bool,
}

/// Windows of one second and at least ten samples; a window with fewer is discarded.
pub(crate) struct Windowed<A> {
    inner: A,
    next: Timestamp,
    sum: f64,
    count: u32,
    in_flight: u32,
    dropped: bool,
}

pub(crate) trait Algorithm: Default {
    fn limit(&self) -> f64;
    fn on_window(&mut self, sample: &Sample);
}

impl<A: Algorithm> Default for Windowed<A> {
    fn default() -> Self {
        Self {
            inner: A::default(),
            next: Timestamp::EPOCH,
            sum: 0.0,
            count: 0,
            in_flight: 0,
            dropped: false,
        }
    }
}

impl<A: Algorithm> Limit for Windowed<A> {
    fn limit(&self) -> u32 {
        self.inner.limit() as u32
    }

    fn on_sample(&mut self, now: Timestamp, round_trip: RoundTrip) {
        self.sum += round_trip.took.get() as f64;
        self.count += 1;
        self.in_flight = self.in_flight.max(round_trip.in_flight);
        self.dropped |= round_trip.ending == Ending::Dropped;
        if now < self.next {
            return;
        }
        if self.count >= 10 {
            self.inner.on_window(&Sample {
                rtt: self.sum / f64::from(self.count),
                in_flight: f64::from(self.in_flight),
                dropped: self.dropped,
            });
        }
        let inner = std::mem::take(&mut self.inner);
        *self = Self {
            inner,
            next: now.after(Micros::from_secs(1)),
            ..Self::default()
        };
    }
}

/// Additive increase, multiplicative decrease (`AIMDLimit`).
pub(crate) struct Aimd(f64);

impl Default for Aimd {
    fn default() -> Self {
        Self(20.0)
    }
}

impl Algorithm for Aimd {
    fn limit(&self) -> f64 {
        self.0
    }

    fn on_window(&mut self, sample: &Sample) {
        if sample.dropped || sample.rtt > 5e6 {
            self.0 = (self.0 * 0.9).floor();
        } else if sample.in_flight * 2.0 >= self.0 {
            self.0 += 1.0;
        }
        self.0 = self.0.clamp(20.0, 200.0);
    }
}

/// TCP Vegas for concurrency (`VegasLimit`).
pub(crate) struct Vegas {
    limit: f64,
    rtt_noload: f64,
    probe_count: f64,
    jitter: f64,
    rng: fastrand::Rng,
}

impl Default for Vegas {
    fn default() -> Self {
        Self {
            limit: 20.0,
            rtt_noload: 0.0,
            probe_count: 0.0,
            jitter: 0.75,
            rng: fastrand::Rng::with_seed(7),
        }
    }
}

impl Algorithm for Vegas {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_window(&mut self, sample: &Sample) {
        self.probe_count += 1.0;
        if self.jitter * 30.0 * self.limit <= self.probe_count {
            self.jitter = 0.5 + self.rng.f64() / 2.0;
            self.probe_count = 0.0;
            self.rtt_noload = sample.rtt;
            return;
        }
        if self.rtt_noload == 0.0 || sample.rtt < self.rtt_noload {
            self.rtt_noload = sample.rtt;
            return;
        }
        let log = self.limit.log10().floor().max(1.0);
        let queue = (self.limit * (1.0 - self.rtt_noload / sample.rtt)).ceil();
        let next = if sample.dropped {
            self.limit - log
        } else if sample.in_flight * 2.0 < self.limit {
            return;
        } else if queue <= log {
            self.limit + 6.0 * log
        } else if queue < 3.0 * log {
            self.limit + log
        } else if queue > 6.0 * log {
            self.limit - log
        } else {
            return;
        };
        self.limit = next.clamp(1.0, 1_000.0);
    }
}

/// `Gradient2Limit`, which ignores drops.
pub(crate) struct Gradient2 {
    limit: f64,
    long: f64,
    count: u32,
}

impl Default for Gradient2 {
    fn default() -> Self {
        Self {
            limit: 20.0,
            long: 0.0,
            count: 0,
        }
    }
}

impl Algorithm for Gradient2 {
    fn limit(&self) -> f64 {
        self.limit
    }

    fn on_window(&mut self, sample: &Sample) {
        let short = sample.rtt;
        self.count += 1;
        let weight = match self.count {
            0..=10 => 1.0 / f64::from(self.count),
            _ => 2.0 / 601.0,
        };
        self.long += (short - self.long) * weight;
        if self.long / short > 2.0 {
            self.long *= 0.95;
        }
        if sample.in_flight < self.limit / 2.0 {
            return;
        }
        let gradient = (1.5 * self.long / short).clamp(0.5, 1.0);
        let next = self.limit * gradient + 4.0;
        self.limit = (self.limit * 0.8 + next * 0.2).clamp(20.0, 200.0);
    }
}

/// Envoy's gradient controller: pins the limit to 3 while it measures the minimum round trip.
pub(crate) struct Envoy {
    limit: f64,
    before: f64,
    min_rtt: f64,
    measuring: Option<Vec<u64>>,
    /// The beginning of the measurement: requests sent before it say nothing.
    measured_since: Timestamp,
    measure_at: Timestamp,
    window: Vec<u64>,
    next: Timestamp,
}

impl Default for Envoy {
    fn default() -> Self {
        Self {
            limit: 3.0,
            before: 3.0,
            min_rtt: 0.0,
            measuring: Some(Vec::new()),
            measured_since: Timestamp::EPOCH,
            measure_at: Timestamp::EPOCH,
            window: Vec::new(),
            next: Timestamp::EPOCH,
        }
    }
}

/// The median, which is the sample that the filter aggregates to by default.
fn median(samples: &mut [u64]) -> f64 {
    let middle = samples.len() / 2;
    *samples.select_nth_unstable(middle).1 as f64
}

impl Limit for Envoy {
    fn limit(&self) -> u32 {
        self.limit as u32
    }

    fn on_sample(&mut self, now: Timestamp, round_trip: RoundTrip) {
        let took = round_trip.took.get();
        if now.since(self.measured_since) < round_trip.took {
            return;
        }
        if let Some(samples) = &mut self.measuring {
            samples.push(took);
            if samples.len() >= 50 {
                self.min_rtt = median(samples);
                self.measuring = None;
                self.limit = self.before;
                self.measure_at = now.after(Micros::from_secs(60));
                self.next = now.after(Micros::from_millis(100));
                self.window.clear();
            }
            return;
        }
        self.window.push(took);
        if now >= self.measure_at {
            self.before = self.limit;
            self.limit = 3.0;
            self.measuring = Some(Vec::new());
            self.measured_since = now;
            return;
        }
        if now < self.next {
            return;
        }
        let gradient = (self.min_rtt * 1.25 / median(&mut self.window)).clamp(0.5, 2.0);
        self.limit = (self.limit * gradient + self.limit.sqrt()).clamp(3.0, 1_000.0);
        self.window.clear();
        self.next = now.after(Micros::from_millis(100));
    }
}
