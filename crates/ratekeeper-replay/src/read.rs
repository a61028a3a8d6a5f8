//! Reading a log to its end.

use crate::error::ReplayError;
use crate::input::{Line, Lines, Log};

/// Lines between two progress reports.
const PROGRESS_LINES: u64 = 1 << 13;

/// The progress of a replay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes of the log read so far, compressed if it is.
    pub bytes_read: u64,
    /// Size of the log in bytes; None for standard input.
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
) -> Result<(), ReplayError> {
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
    Ok(())
}
