//! The parameters of a run.

use std::time::Duration;

use crate::failure::LoadError;
use crate::keys::{KEYS_MAX, Keys};
use crate::service::{BATCH_MAX, Service};

/// The pacing of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// Each stream sends the next request as soon as it has an answer.
    Closed,
    /// Requests are due at a fixed rate over all connections, answered or not.
    Open {
        /// Requests per second; above 0.
        per_second: f64,
    },
}

/// The parameters of a run.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Load {
    /// `HOST:PORT`, or several with commas between them: connections take turns.
    pub target: String,
    /// The service there, and the requests to send.
    pub service: Service,
    /// Connections, 1 to 10,000.
    pub connections: u32,
    /// Requests in flight on each connection, 1 to 1,000; 1 over HTTP/1.1.
    pub streams: u32,
    /// Threads among which the connections are divided, at least 1.
    pub threads: u32,
    /// The pacing of requests.
    pub pace: Pace,
    /// The distribution of requests over keys.
    pub keys: Keys,
    /// Time of load before the measurement.
    pub warm_up: Duration,
    /// Time of the measurement; above 0, and with the warm-up at most an hour.
    pub duration: Duration,
    /// Counts admitted requests for each key in each window of this length, at least a second.
    pub windows: Option<Duration>,
    /// The limit of a key in each of them, to count what was denied although it would have fit.
    pub limit: Option<u64>,
    /// The server's process on this machine, to measure its cost per decision.
    pub pid: Option<u32>,
}

/// The longest run.
const RUN_MAX: Duration = Duration::from_secs(3_600);

/// The shortest window to count by.
const WINDOW_MIN: Duration = Duration::from_secs(1);

/// The most windows times keys.
const COUNTS_MAX: f64 = 1e7;

impl Load {
    /// Four connections of 16 streams (16 of one over HTTP/1.1) in a closed loop, one hot key,
    /// ten seconds after one of warm-up.
    #[must_use]
    pub fn new(target: impl Into<String>, service: Service) -> Self {
        let (connections, streams) = if service.has_streams() {
            (4, 16)
        } else {
            (16, 1)
        };
        Self {
            target: target.into(),
            service,
            connections,
            streams,
            threads: 1,
            pace: Pace::Closed,
            keys: Keys::Hot,
            warm_up: Duration::from_secs(1),
            duration: Duration::from_secs(10),
            windows: None,
            limit: None,
            pid: None,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), LoadError> {
        let within = |what: &str, value: u32, max: u32| match value {
            1.. if value <= max => Ok(()),
            _ => Err(LoadError::invalid(format!(
                "{what}: {value} is not within 1 to {max}"
            ))),
        };
        within("connections", self.connections, 10_000)?;
        within("streams", self.streams, 1_000)?;
        within("threads", self.threads, 1_024)?;
        within("keys", self.keys.count(), KEYS_MAX)?;
        if self.streams > 1 && !self.service.has_streams() {
            return Err(LoadError::invalid(
                "HTTP/1.1 carries one request at a time: ask with more connections instead of streams",
            ));
        }
        if let Service::Batch { size, .. } = self.service
            && !(1..=BATCH_MAX).contains(&size)
        {
            return Err(LoadError::batch(size));
        }
        if let Service::Gateway(forwarded) = &self.service {
            forwarded.validate()?;
        }
        if let Pace::Open { per_second } = self.pace
            && !(per_second > 0.0 && per_second <= 1e8)
        {
            return Err(LoadError::invalid(format!(
                "rate: {per_second} requests a second is not above 0 and at most 100 million"
            )));
        }
        let total = self.warm_up.checked_add(self.duration);
        if self.duration.is_zero() || total.is_none_or(|total| total > RUN_MAX) {
            return Err(LoadError::invalid(
                "duration: a run takes more than no time, and an hour at the most, warm-up included",
            ));
        }
        if self.keys.count() > 1 && !self.service.has_place() {
            return Err(LoadError::invalid(
                "several keys need a place for them, {key}: in the value of an entry, such as api_key={key}, or \
                 in the path, such as /tenants/{key}",
            ));
        }
        self.validate_windows()
    }
    fn validate_windows(&self) -> Result<(), LoadError> {
        let Some(length) = self.windows else {
            return Ok(());
        };
        let total = (self.warm_up + self.duration).as_secs_f64();
        let counts = total / length.as_secs_f64() * f64::from(self.keys.count());
        if length < WINDOW_MIN || counts > COUNTS_MAX {
            return Err(LoadError::invalid(format!(
                "windows: {length:?} is less than a second, or so short that there were more than {COUNTS_MAX} counts \
                 of {} keys",
                self.keys.count()
            )));
        }
        if self.service.decisions_per_request() > 1 {
            return Err(LoadError::invalid(
                "windows: a batch asks about several keys at once; ask about each with a request of its own",
            ));
        }
        Ok(())
    }
}
