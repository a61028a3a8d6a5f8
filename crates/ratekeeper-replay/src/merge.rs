//! Several logs side by side.
//!
//! The nodes behind a balancer write a log each, over the same time. Each log is sorted by itself, and the earliest line of
//! all goes first. A log is opened only when its first request is near, so that a rotation does not keep all its files open.

use std::collections::{HashSet, VecDeque};

use ratekeeper_core::{Micros, Timestamp};

use crate::error::ReplayError;
use crate::input::{Lines, Log};
use crate::order::Dated;
use crate::parse::LineParser;
use crate::read::{LogEnd, PROGRESS_LINES, Progress};
use crate::reorder::{HELD_BYTES_MAX, HeldLine, Reorder};
use crate::replay::Replay;

/// The most logs that are open at once. What comes beyond waits for one to end, and is late then.
const OPEN_MAX: usize = 64;

/// A log that is being read.
struct Source {
    log: Log,
    lines: Lines,
    parser: LineParser,
    reorder: Reorder,
    /// The number of the last line.
    number: u64,
    /// Lines, and requests among them.
    counts: (u64, u64),
    /// The end, once it was reached; lines may be held all the same.
    end: Option<Result<LogEnd, ReplayError>>,
    /// The earliest line that was not replayed.
    head: Option<HeldLine>,
}

/// The logs of a replay: those to come, oldest first, and those that are open.
struct Merge {
    waiting: VecDeque<Dated>,
    open: Vec<Source>,
    within: Micros,
    /// Of all logs; None if one has no size.
    bytes_total: Option<u64>,
    /// Of the logs that have ended.
    bytes_read: u64,
    /// The fault of one log, which ends the reading of all.
    fault: Option<ReplayError>,
}

impl Replay {
    /// Replays `logs` in the order of their lines' times, also if they are of the same time, as those of several servers
    /// are. If one can be read only once, as standard input and pipes can, or nothing is to be sorted, they are replayed
    /// one after the other. `progress` is called every few thousand lines, and at the end.
    ///
    /// # Errors
    /// [`ReplayError::Read`] if a log cannot be opened or read to its end; the lines read before count.
    pub fn read_all(
        &mut self,
        logs: Vec<Log>,
        mut progress: impl FnMut(Progress),
    ) -> Result<(), ReplayError> {
        self.warn_of_twins(&logs);
        let within = self.options.sort_within;
        let dated = self.dated(&logs)?;
        if within == Micros::ZERO || logs.iter().any(|log| !log.can_be_read_again()) {
            for log in self.oldest_first(logs)? {
                self.read(&log, &mut progress)?;
            }
            return Ok(());
        }
        let sizes = logs.iter().map(Log::size);
        let mut merge = Merge {
            waiting: dated.into(),
            open: Vec::new(),
            within,
            bytes_total: sizes.sum(),
            bytes_read: 0,
            fault: None,
        };
        self.merge(&mut merge, &mut progress);
        merge.fault.map_or(Ok(()), Err)
    }

    fn merge(&mut self, merge: &mut Merge, progress: &mut impl FnMut(Progress)) {
        let mut told = self.lines.read;
        loop {
            while let Some(log) = merge.next_due() {
                self.open(merge, log);
            }
            let Some(at) = merge.earliest() else { break };
            if let Some(held) = merge.open[at].head.take() {
                self.held(&held);
            }
            self.go_on(merge, at);
            if self.lines.read - told >= PROGRESS_LINES {
                told = self.lines.read;
                progress(merge.progress(told));
            }
        }
        progress(merge.progress(self.lines.read));
    }

    /// Opens `log`, and reads its first lines.
    fn open(&mut self, merge: &mut Merge, log: Log) {
        let opened = log.open().and_then(|(source, _)| Lines::new(source));
        let lines = match opened {
            Ok(lines) => lines,
            Err(error) => {
                let error = Err(ReplayError::read(&log, error));
                let done = self.take_end(&log, (0, 0), error);
                return merge.stop(done);
            }
        };
        merge.open.push(Source {
            log,
            lines,
            parser: LineParser::new(self.options.format, self.options.fields.clone()),
            reorder: Reorder::new(merge.within),
            number: 0,
            counts: (0, 0),
            end: None,
            head: None,
        });
        merge.share_memory();
        self.go_on(merge, merge.open.len() - 1);
    }

    /// Finds the next line of an open log, and takes its end if there is none.
    fn go_on(&mut self, merge: &mut Merge, at: usize) {
        let head = self.pull(&mut merge.open[at]);
        let source = &mut merge.open[at];
        source.head = head;
        if let Some(Err(error)) = source.end.take_if(|end| end.is_err()) {
            let counts = std::mem::take(&mut source.counts);
            let done = self.take_end(&source.log, counts, Err(error));
            merge.stop(done);
        }
        if merge.open[at].head.is_none() {
            let source = merge.open.remove(at);
            merge.bytes_read += source.lines.bytes_read();
            merge.share_memory();
            self.merged_out_of_order += source.reorder.out_of_order();
            self.summary.format = source.parser.format().or(self.summary.format);
            let end = Ok(source.end.and_then(Result::ok).unwrap_or(LogEnd::Clean));
            let done = self.take_end(&source.log, source.counts, end);
            merge.stop(done);
        }
    }

    /// The next line of `source` that is due.
    fn pull(&mut self, source: &mut Source) -> Option<HeldLine> {
        loop {
            if let Some(held) = source.reorder.pop() {
                return Some(held);
            }
            if source.end.is_some() {
                return source.reorder.pop_any();
            }
            let before = self.lines;
            match source.lines.next() {
                Ok(Some(line)) => {
                    source.number += 1;
                    let parsed = self.parsed(&mut source.parser, source.number, line);
                    if let Some((time, format, text)) = parsed {
                        source.reorder.push(time, format, text);
                    }
                    source.counts.0 += self.lines.read - before.read;
                    source.counts.1 += self.lines.parsed - before.parsed;
                }
                Ok(None) => source.end = Some(Ok(LogEnd::of(&source.lines))),
                Err(error) => source.end = Some(Err(ReplayError::read(&source.log, error))),
            }
        }
    }

    fn take_end(
        &mut self,
        log: &Log,
        counts: (u64, u64),
        end: Result<LogEnd, ReplayError>,
    ) -> Result<(), ReplayError> {
        let format = self.options.format;
        self.summary.faults.take(log, counts, format, end)
    }

    /// Warns of files that are named twice.
    fn warn_of_twins(&mut self, logs: &[Log]) {
        let mut known = HashSet::new();
        for log in logs {
            if let Log::File(path) = log
                && let Ok(path) = path.canonicalize()
                && !known.insert(path)
            {
                let warnings = &mut self.summary.faults.warnings;
                warnings.push(format!(
                    "{} is named twice: each of its requests counts twice.",
                    log.name()
                ));
            }
        }
    }
}

impl Merge {
    /// The next log, if one of its requests may be the next of all.
    fn next_due(&mut self) -> Option<Log> {
        let Dated { first, .. } = self.waiting.front()?;
        let head = self.earliest().and_then(|at| self.open[at].head.as_ref());
        let is_due = match (first, head) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(first), Some(head)) => *first <= head.time.after(self.within),
        };
        if !is_due || self.open.len() >= OPEN_MAX {
            return None;
        }
        self.waiting.pop_front().map(|dated| dated.log)
    }

    /// The open log with the earliest line; of several that of the oldest log.
    fn earliest(&self) -> Option<usize> {
        let heads = self.open.iter().enumerate();
        let heads = heads.filter_map(|(at, source)| Some((source.head.as_ref()?.time, at)));
        let first: Option<(Timestamp, usize)> = heads.min();
        first.map(|(_, at)| at)
    }

    /// Ends the reading of all logs if one has a fault. What is held is replayed.
    fn stop(&mut self, done: Result<(), ReplayError>) {
        if let Err(error) = done {
            self.fault.get_or_insert(error);
            self.waiting.clear();
            for source in &mut self.open {
                source.end.get_or_insert(Ok(LogEnd::Clean));
            }
        }
    }

    /// Gives each open log an equal part of the memory for held lines.
    fn share_memory(&mut self) {
        let part = HELD_BYTES_MAX / self.open.len().max(1);
        for source in &mut self.open {
            source.reorder.bytes_max = part;
        }
    }

    fn progress(&self, lines: u64) -> Progress {
        let open = self.open.iter().map(|source| source.lines.bytes_read());
        Progress {
            bytes_read: self.bytes_read + open.sum::<u64>(),
            bytes_total: self.bytes_total,
            lines,
        }
    }
}
