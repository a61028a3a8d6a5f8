//! The outcome of the loads so far.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use super::history::ReloadHistory;

/// The outcome of all loads of the rules so far, the first included.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReloadStatus {
    /// Sets that were taken.
    pub accepted: u64,
    /// Sets that were refused.
    pub refused: u64,
    /// The reason the current files are not in force, with place and message, a line for each
    /// mistake; [`None`] if they are. Quotes nothing from the files.
    pub error: Option<Arc<str>>,
    /// The time of the last load, taken or refused, in seconds since 1970; 0 if there was none.
    pub last_at: u64,
    /// The latest loads after the first.
    pub(crate) history: ReloadHistory,
}

impl ReloadStatus {
    /// Of rules that were in force from the start, and stay.
    pub(crate) fn settled() -> Self {
        Self {
            accepted: 1,
            last_at: unix_seconds(),
            ..Self::default()
        }
    }

    /// Returns true if any rules are in force.
    #[must_use]
    pub const fn is_loaded(&self) -> bool {
        self.accepted > 0
    }
}

/// Seconds since 1970, by the wall clock.
pub(crate) fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
