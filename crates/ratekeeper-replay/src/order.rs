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

/// A log, and the time of its first request if it has one near its start.
#[derive(Clone, Debug)]
pub(crate) struct Dated {
    pub(crate) first: Option<Timestamp>,
    pub(crate) log: Log,
}

impl Replay {
    /// `logs` by the times of their first requests, the oldest first. One without a request in its first thousand lines
    /// comes last. If one can be read only once, as standard input and pipes can, all keep their order.
    ///
    /// # Errors
    /// [`ReplayError::Read`] if one of them cannot be opened.
    pub fn oldest_first(&self, logs: Vec<Log>) -> Result<Vec<Log>, ReplayError> {
        let dated = self.dated(&logs)?;
        Ok(match dated.len() == logs.len() {
            true => dated.into_iter().map(|it| it.log).collect(),
            false => logs,
        })
    }

    /// Those of `logs` that can be read again, the oldest first; undated ones last.
    pub(crate) fn dated(&self, logs: &[Log]) -> Result<Vec<Dated>, ReplayError> {
        let mut dated = Vec::with_capacity(logs.len());
        for log in logs.iter().filter(|log| log.can_be_read_again()) {
            let opened = log.open().and_then(|(source, _)| Lines::new(source));
            let lines = opened.map_err(|source| ReplayError::read(log, source))?;
            dated.push(Dated {
                first: self.first_time(lines),
                log: log.clone(),
            });
        }
        dated.sort_by_key(|it| (it.first.is_none(), it.first));
        Ok(dated)
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
