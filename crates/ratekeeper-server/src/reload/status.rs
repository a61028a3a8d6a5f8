//! The outcome of the loads so far.

use std::sync::Arc;

use super::history::ReloadHistory;
use crate::admin_json::moments::unix_seconds;

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
    /// The time at which the rules in force were kept, in seconds since 1970, if the node started while the files were
    /// broken, and they still are; or if nothing was delivered since.
    pub last_good_of: Option<u64>,
    /// The feed that rules come from, if they do not come from files.
    pub feed: Option<Arc<str>>,
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
        self.accepted > 0 || self.last_good_of.is_some()
    }

    /// The fault that the rules in force are not those of the files, since the start of the node.
    pub(crate) fn fault(&self) -> Option<String> {
        let time = i64::try_from(self.last_good_of?).unwrap_or(i64::MAX);
        let time = jiff::Timestamp::from_second(time).unwrap_or(jiff::Timestamp::MAX);
        Some(match &self.feed {
            None => format!(
                "the rules files were broken when the node started: the last good rules, of {time}, are in use until the \
                 files are mended"
            ),
            Some(feed) => format!(
                "no rules have come from {feed} since the node started: the last good rules, of {time}, are in use until \
                 some do"
            ),
        })
    }
}
