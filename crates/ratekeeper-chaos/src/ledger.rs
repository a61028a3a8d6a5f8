//! The record of all answers that callers got, with their times.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::ask::{Answer, Key};
use crate::rules::PERIOD;

/// The most descriptions of errors that are kept; all errors are counted.
const ERRORS_KEPT_MAX: usize = 20;

/// One check, as its caller saw it. Times are since the ledger was opened.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) node: usize,
    pub(crate) key: Key,
    pub(crate) sent: Duration,
    pub(crate) done: Duration,
    pub(crate) answer: Answer,
}

/// Counts of reservations and permits, which are settled after they were answered.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Settled {
    /// Hits that reservations have cost, as far as their callers know.
    pub(crate) spent: u64,
    /// Permits that are held now.
    pub(crate) held: u64,
    /// The most permits that were held at once.
    pub(crate) held_max: u64,
}

/// The answers that callers saw.
#[derive(Debug)]
pub(crate) struct Ledger {
    start: Instant,
    /// A text that marks a refusal as expected.
    excused: Option<&'static str>,
    inner: Mutex<Inner>,
}

#[derive(Default, Debug)]
struct Inner {
    entries: Vec<Entry>,
    settled: Settled,
    errors: u64,
    kept: Vec<String>,
}

impl Ledger {
    /// Opens a ledger that begins now. Refusals that contain `excused` are not errors.
    pub(crate) fn open(excused: Option<&'static str>) -> Self {
        Self {
            start: Instant::now(),
            excused,
            inner: Mutex::default(),
        }
    }

    /// The time since it was opened.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// The time from when it was opened until `moment`.
    pub(crate) fn at(&self, moment: Instant) -> Duration {
        moment.saturating_duration_since(self.start)
    }

    /// The number of the rotating key that is asked for now.
    pub(crate) fn period(&self) -> u64 {
        (self.now().as_millis() / PERIOD.as_millis()) as u64
    }

    pub(crate) fn record(&self, entry: Entry) {
        self.inner.lock().entries.push(entry);
    }

    /// Records that a caller got no answer, or an invalid one.
    pub(crate) fn fail(&self, why: String) {
        if self.excused.is_some_and(|excused| why.contains(excused)) {
            return;
        }
        let mut inner = self.inner.lock();
        inner.errors += 1;
        if inner.kept.len() < ERRORS_KEPT_MAX {
            inner.kept.push(why);
        }
    }

    pub(crate) fn settle(&self, change: impl FnOnce(&mut Settled)) {
        let mut inner = self.inner.lock();
        let settled = &mut inner.settled;
        change(settled);
        settled.held_max = settled.held_max.max(settled.held);
    }

    pub(crate) fn settled(&self) -> Settled {
        self.inner.lock().settled
    }

    /// The number of errors, and descriptions of the first ones.
    pub(crate) fn errors(&self) -> (u64, Vec<String>) {
        let inner = self.inner.lock();
        (inner.errors, inner.kept.clone())
    }

    /// All entries so far, by the time of their answers.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut entries = self.inner.lock().entries.clone();
        entries.sort_by_key(|entry| entry.done);
        entries
    }
}

/// The number of unmarked answers in a row from each node that show that Redis decides for all nodes again.
const IN_A_ROW: usize = 10;

/// The earliest time from `from` on by which all of `nodes` decided in Redis again. None if one of them did not.
pub(crate) fn shared_again(entries: &[Entry], nodes: usize, from: Duration) -> Option<Duration> {
    let back = (0..nodes).map(|node| {
        let of_node = entries
            .iter()
            .filter(|entry| entry.node == node && entry.sent >= from);
        let mut first = None;
        let mut row = 0;
        for entry in of_node {
            if entry.answer.degraded {
                (first, row) = (None, 0);
                continue;
            }
            first = first.or(Some(entry.done));
            row += 1;
            if row == IN_A_ROW {
                return first;
            }
        }
        None
    });
    back.collect::<Option<Vec<_>>>()?.into_iter().max()
}
