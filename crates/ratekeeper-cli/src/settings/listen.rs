//! The settings of the listeners.

use super::table::Values;
use super::value_error::ValueError;
use super::values::{duration, number, some_duration};
use ratekeeper_server::{Patience, ServerBounds};
use std::num::NonZeroUsize;
use std::time::Duration;

impl Values {
    /// Limits on connections: their number, how slow clients may be, and how long they last.
    pub(crate) fn bounds(&self) -> ServerBounds {
        ServerBounds {
            connections_max: *self.connections_max,
            connections_per_address_max: self.address_share(),
            idle_timeout: *self.idle_timeout,
            patience: Patience {
                stall_timeout: *self.stall_timeout,
                rate_min: *self.min_rate,
            },
            connection_age_max: *self.grpc_max_connection_age,
            connection_age_grace: *self.grpc_max_connection_age_grace,
            connection_idle_max: *self.grpc_max_connection_idle,
            ping_interval: *self.grpc_keepalive_time,
            ping_timeout: *self.grpc_keepalive_timeout,
            ..ServerBounds::default()
        }
    }

    /// The most connections from one address: no address may have a whole listener unless that is said.
    pub(crate) fn address_share(&self) -> usize {
        let (share, most) = (*self.connections_per_address_max, *self.connections_max);
        match self.connections_per_address_max.said.is_default() {
            true => share.min((most / 4).max(1)),
            false => share,
        }
    }
}

/// A number of threads; if none is given, one for each core that this process may use.
pub(super) fn worker_threads(text: &str) -> Result<NonZeroUsize, ValueError> {
    if text.is_empty() {
        // A system that cannot say how many cores it has gets one thread.
        return Ok(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN));
    }
    // More would only take turns.
    let threads = number(1..=1_024)(text)?;
    Ok(NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN))
}

/// A second at least: pings are work for both sides.
pub(super) fn keepalive(text: &str) -> Result<Duration, ValueError> {
    let duration = duration(text)?;
    if duration < Duration::from_secs(1) {
        return Err(ValueError::TooShort(text.into()));
    }
    Ok(duration)
}

/// The time a client may stall, 100 ms to 24 h; `None` for no limit.
pub(super) fn stall_timeout(text: &str) -> Result<Option<Duration>, ValueError> {
    let duration = some_duration(text)?;
    let (least, most) = (Duration::from_millis(100), Duration::from_secs(24 * 3_600));
    match duration {
        Some(duration) if !(least..=most).contains(&duration) => {
            Err(ValueError::StallTimeout(text.into()))
        }
        duration => Ok(duration),
    }
}
