//! Checks a connection from time to time, and reports a peer that has stood still for too long.

use std::time::Duration;

use tokio::time::Instant;

use super::activity::Activity;
use super::bounds::ServerBounds;
use super::pace::Pace;

/// The number of looks at a connection during the stall timeout.
const LOOKS: u32 = 4;

/// The interval between two looks at a connection.
pub(super) fn looks_each(bounds: &ServerBounds) -> Duration {
    let stall = bounds.patience.stall_timeout.map(|stall| stall / LOOKS);
    stall.map_or(bounds.idle_timeout, |stall| stall.min(bounds.idle_timeout))
}

/// The state of a connection at the last look.
pub(super) struct StallCheck {
    at: Instant,
    moves: u64,
    bytes_written: u64,
    silent_for: Duration,
    silent_max: Duration,
    pace: Pace,
}

impl StallCheck {
    pub(super) fn new(activity: &Activity, bounds: &ServerBounds) -> Self {
        Self {
            at: Instant::now(),
            moves: activity.count(),
            bytes_written: activity.bytes_written(),
            silent_for: Duration::ZERO,
            silent_max: bounds.idle_timeout,
            pace: Pace::new(bounds.patience),
        }
    }

    /// The time since the last call.
    pub(super) fn elapsed(&mut self, now: Instant) -> Duration {
        let before = std::mem::replace(&mut self.at, now);
        now.saturating_duration_since(before)
    }

    /// Returns the reason the connection is to be closed, if there is one. The peer of one that `may_be_silent` waits for us.
    pub(super) fn end(
        &mut self,
        activity: &Activity,
        elapsed: Duration,
        may_be_silent: bool,
    ) -> Option<&'static str> {
        let moves = std::mem::replace(&mut self.moves, activity.count());
        let written = std::mem::replace(&mut self.bytes_written, activity.bytes_written());
        self.silent_for = match moves == self.moves && !may_be_silent {
            true => self.silent_for + elapsed,
            false => Duration::ZERO,
        };
        if self.silent_for >= self.silent_max {
            return Some("nothing moved on it");
        }
        self.pace.handed(self.bytes_written - written);
        if !activity.is_blocked() {
            self.pace.rested(elapsed);
        } else if self.pace.waited(elapsed) {
            return Some("its peer does not take what it asked for");
        }
        None
    }
}
