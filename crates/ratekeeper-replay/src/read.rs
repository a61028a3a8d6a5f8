//! Reading a log to its end.

use crate::error::ReplayError;
use crate::input::{Line, Lines, Log};
use crate::parse::Format;
use crate::report::words::{counted, grouped};

/// Lines between two progress reports.
pub(crate) const PROGRESS_LINES: u64 = 1 << 13;

/// The progress of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes of the log read so far, compressed if it is; of all logs that are read side by side.
    pub bytes_read: u64,
    /// Size of the log, or of all these logs, in bytes; None for standard input.
    pub bytes_total: Option<u64>,
    /// Lines of all logs so far.
    pub lines: u64,
}

/// Passes each line of `log` to `take`, with its number in the log; `take` returns the number of lines of all logs so far,
/// which was `lines` before. `progress` is called every few thousand lines, and at the end.
pub(crate) fn read_log(
    log: &Log,
    mut lines: u64,
    mut progress: impl FnMut(Progress),
    mut take: impl FnMut(u64, Line<'_>) -> Result<u64, ReplayError>,
) -> Result<LogEnd, ReplayError> {
    let failed = |source| ReplayError::read(log, source);
    let (source, bytes_total) = log.open().map_err(failed)?;
    let mut input = Lines::new(source).map_err(failed)?;
    let mut number = 0_u64;
    while let Some(line) = input.next().map_err(failed)? {
        number += 1;
        lines = take(number, line)?;
        if number.is_multiple_of(PROGRESS_LINES) {
            progress(Progress {
                bytes_read: input.bytes_read(),
                bytes_total,
                lines,
            });
        }
    }
    progress(Progress {
        bytes_read: input.bytes_read(),
        bytes_total,
        lines,
    });
    Ok(LogEnd::of(&input))
}

/// The end of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogEnd {
    Clean,
    /// Bytes that are no gzip, which followed some and were left out.
    Garbage,
}

impl LogEnd {
    /// The end of a log that was read to its end.
    pub(crate) fn of(input: &Lines) -> Self {
        match input.has_garbage() {
            true => Self::Garbage,
            false => Self::Clean,
        }
    }
}

/// The logs that were not read as they should be. No more than were named are kept.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct LogFaults {
    /// One sentence for each.
    pub(crate) warnings: Vec<String>,
    /// True if one of them has no request, or was not read to its end.
    pub(crate) is_unread: bool,
}

impl LogFaults {
    /// Takes the result of reading `log`, which had this number of `lines`, `parsed` of them requests.
    pub(crate) fn take(
        &mut self,
        log: &Log,
        (lines, parsed): (u64, u64),
        format: Option<Format>,
        done: Result<LogEnd, ReplayError>,
    ) -> Result<(), ReplayError> {
        let name = log.name();
        if lines > 0 && parsed == 0 {
            self.is_unread = true;
            let format = format.map_or_else(String::new, |format| {
                format!(" that is read with --format {}", format.name())
            });
            self.warnings.push(format!(
                "{name} has no request in its {}{format}.",
                counted(lines, "line")
            ));
        }
        match done {
            Ok(LogEnd::Clean) => {}
            Ok(LogEnd::Garbage) => self.warnings.push(format!(
                "{name} goes on behind its gzip with something else, which was left out."
            )),
            Err(error) => {
                self.is_unread = true;
                self.warnings.push(format!(
                    "{name} was not read to its end: the figures are those of its first {} lines.",
                    grouped(lines)
                ));
                return Err(error);
            }
        }
        Ok(())
    }
}
