//! Counts kept while the load runs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::answer::Decisions;
use crate::failure::Failure;
use crate::windows::WindowCounts;

/// The longest recorded time; longer ones count as this.
const LONGEST: Duration = Duration::from_secs(600);

/// The counts of one thread, or of all of them.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) allowed: u64,
    pub(crate) denied: u64,
    pub(crate) failures: BTreeMap<Failure, u64>,
    /// Bytes of the shortest and the longest answer.
    pub(crate) answer_bytes: Option<(usize, usize)>,
    /// From the due time to the answer in nanoseconds, to three digits.
    pub(crate) latency: Histogram<u64>,
    /// From the due time to the sending.
    pub(crate) lateness: Histogram<u64>,
    /// Admitted requests by window, warm-up included.
    pub(crate) windows: Option<WindowCounts>,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Self {
            requests: 0,
            allowed: 0,
            denied: 0,
            failures: BTreeMap::new(),
            answer_bytes: None,
            latency: histogram(),
            lateness: histogram(),
            windows: None,
        }
    }

    /// Counts an answer of `bytes` bytes.
    pub(crate) fn answered(&mut self, decisions: Decisions, bytes: usize, times: &Times) {
        self.requests += 1;
        self.allowed += u64::from(decisions.allowed);
        self.denied += u64::from(decisions.denied);
        let (shortest, longest) = self.answer_bytes.unwrap_or((bytes, bytes));
        self.answer_bytes = Some((shortest.min(bytes), longest.max(bytes)));
        self.latency
            .saturating_record(nanos(times.answered - times.due));
        self.lateness
            .saturating_record(nanos(times.sent - times.due));
    }

    pub(crate) fn failed(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            *self.failures.entry(failure).or_default() += count;
        }
    }

    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.allowed += other.allowed;
        self.denied += other.denied;
        for (failure, count) in &other.failures {
            self.failed(*failure, *count);
        }
        let bytes = [self.answer_bytes, other.answer_bytes]
            .into_iter()
            .flatten();
        self.answer_bytes = bytes.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        // Cannot fail: both have the same bounds.
        let _ = self.latency.add(&other.latency);
        let _ = self.lateness.add(&other.lateness);
        match (&mut self.windows, &other.windows) {
            (Some(windows), Some(other)) => windows.add(other),
            (windows @ None, other) => windows.clone_from(other),
            (Some(_), None) => {}
        }
    }
}

/// The times of one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) due: Instant,
    pub(crate) sent: Instant,
    pub(crate) answered: Instant,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, nanos(LONGEST), 3)
        .expect("bounds that the histogram's documentation allows")
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
