//! The order of several logs.
//!
//! A shell sorts the logs of a rotation by name, the newest first, and they have to be replayed oldest first.

use ratekeeper_core::Timestamp;

use crate::error::ReplayError;
use crate::input::{Line, Lines, Log};
use crate::parse::LineParser;
use crate::replay::Replay;

/// The lines of a log in which its first request is looked for.
const HEAD_LINES_MAX: usize = 1_000;

impl Replay {
    /// `logs` by the times of their first requests, the oldest first. One without a request in its first thousand lines
    /// comes last. If one can be read only once, as standard input and pipes can, all keep their order.
    ///
    /// # Errors
    /// [`ReplayError::Read`] if one of them cannot be opened.
    pub fn oldest_first(&self, logs: Vec<Log>) -> Result<Vec<Log>, ReplayError> {
        let mut dated = Vec::with_capacity(logs.len());
        let mut can_be_sorted = true;
        for log in &logs {
            if !log.can_be_read_again() {
                can_be_sorted = false;
                continue;
            }
            let opened = log.open().and_then(|(source, _)| Lines::new(source));
            let lines = opened.map_err(|source| ReplayError::read(log, source))?;
            let first = self.first_time(lines);
            dated.push((first.is_none(), first, log));
        }
        if !can_be_sorted {
            return Ok(logs);
        }
        dated.sort_by_key(|&(is_undated, first, _)| (is_undated, first));
        Ok(dated.into_iter().map(|(_, _, log)| log.clone()).collect())
    }

    /// The time of the first request; None if there is none, or if it cannot be read: reading it in its turn will tell.
    fn first_time(&self, mut lines: Lines) -> Option<Timestamp> {
        let mut parser = LineParser::new(self.options.format, self.options.fields.clone());
        for _ in 0..HEAD_LINES_MAX {
            if let Line::Whole(text) = lines.next().ok()??
                && let Ok(record) = parser.parse(text)
            {
                return Some(record.time);
            }
        }
        None
    }
}
