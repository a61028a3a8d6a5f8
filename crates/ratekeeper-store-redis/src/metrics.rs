//! The counts of one shard.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Circuit;

/// Upper bounds of the buckets of command durations, in microseconds.
const BOUNDS_US: [u64; 17] = [
    50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_000_000, 10_000_000,
];

/// The reason that asking Redis failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A connection could not be made, or broke.
    Connection,
    /// No answer came within the deadline.
    Timeout,
    /// Our own queue was too long, or the request too large: never sent, or too late for an answer to come in time.
    Overloaded,
    /// The server is loading, full, read-only or otherwise not able to serve.
    Refused,
    /// The server's answer was none of our script, or the script failed.
    Reply,
    /// The key of a counter holds something else.
    Corrupt,
    /// The counter's server, or the secret that names counters, is not known.
    Unplaced,
}

impl Fault {
    const ALL: [Self; 7] = [
        Self::Connection,
        Self::Timeout,
        Self::Overloaded,
        Self::Refused,
        Self::Reply,
        Self::Corrupt,
        Self::Unplaced,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Connection => "connection",
            Self::Timeout => "timeout",
            Self::Overloaded => "overloaded",
            Self::Refused => "refused",
            Self::Reply => "reply",
            Self::Corrupt => "corrupt",
            Self::Unplaced => "unplaced",
        }
    }
}

/// The counts of one shard.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    faults: [AtomicU64; Fault::ALL.len()],
    pipelines: AtomicU64,
    calls: AtomicU64,
    decisions: AtomicU64,
    queued_us: AtomicU64,
    reloads: AtomicU64,
    redirects: AtomicU64,
    denied: AtomicU64,
    stranded: AtomicU64,
    moved: AtomicU64,
    durations: [AtomicU64; BOUNDS_US.len() + 1],
    duration_us: AtomicU64,
}

impl Metrics {
    /// Returns true if any decision failed.
    pub(crate) fn has_faults(&self) -> bool {
        self.faults
            .iter()
            .any(|count| count.load(Ordering::Relaxed) > 0)
    }

    pub(crate) fn fault(&self, fault: Fault, count: usize) {
        self.faults[fault as usize].fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Counts a pipeline of `calls` for `decisions`, which waited for `queued` in total.
    pub(crate) fn sent(&self, calls: usize, decisions: usize, queued: Duration) {
        self.pipelines.fetch_add(1, Ordering::Relaxed);
        self.calls.fetch_add(calls as u64, Ordering::Relaxed);
        self.decisions
            .fetch_add(decisions as u64, Ordering::Relaxed);
        self.queued_us.fetch_add(micros(queued), Ordering::Relaxed);
    }

    /// Calls that decisions have made so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Pipelines answered so far.
    pub(crate) fn answers(&self) -> u64 {
        let counts = self.durations.iter();
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Counts a pipeline answered after `took`.
    pub(crate) fn answered(&self, took: Duration) {
        let took = micros(took);
        let bucket = BOUNDS_US.iter().position(|bound| took <= *bound);
        self.durations[bucket.unwrap_or(BOUNDS_US.len())].fetch_add(1, Ordering::Relaxed);
        self.duration_us.fetch_add(took, Ordering::Relaxed);
    }

    pub(crate) fn reloaded(&self) {
        self.reloads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that the server did not carry out, and that was sent elsewhere or later.
    pub(crate) fn redirected(&self) {
        self.redirects.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a denial repeated from memory.
    pub(crate) fn denied_from_memory(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts hits of a denied request that could not be given back.
    pub(crate) fn stranded(&self, hits: u64) {
        self.stranded.fetch_add(hits, Ordering::Relaxed);
    }

    /// Counts counters that were ahead of the server's clock, and were moved to its time.
    pub(crate) fn moved(&self, counters: u64) {
        self.moved.fetch_add(counters, Ordering::Relaxed);
    }

    #[expect(clippy::cast_precision_loss, reason = "figures of metrics are doubles")]
    pub(crate) fn counts(&self, shard: &str, circuit: Circuit) -> ShardCounts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let bounds = BOUNDS_US.iter().map(|bound| *bound as f64 / 1e6);
        let bounds = bounds.chain([f64::INFINITY]);
        ShardCounts {
            shard: shard.into(),
            circuit,
            opened: 0,
            clock_steps_back: 0,
            faults: Fault::ALL.map(|fault| (fault.name(), load(&self.faults[fault as usize]))),
            pipelines: load(&self.pipelines),
            calls: load(&self.calls),
            decisions: load(&self.decisions),
            queued_seconds: load(&self.queued_us) as f64 / 1e6,
            reloads: load(&self.reloads),
            redirects: load(&self.redirects),
            denied_from_memory: load(&self.denied),
            stranded_hits: load(&self.stranded),
            moved_counters: load(&self.moved),
            duration_buckets: bounds.zip(self.durations.iter().map(load)).collect(),
            duration_seconds: load(&self.duration_us) as f64 / 1e6,
        }
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// The counts of one shard since the start.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct ShardCounts {
    /// Its name, for labels: never a secret.
    pub shard: Box<str>,
    /// The traffic that its breaker lets through.
    pub circuit: Circuit,
    /// The number of times the breaker has opened.
    pub opened: u64,
    /// Decisions that could not be made there, by cause: `connection`, `timeout`, `overloaded`,
    /// `refused`, `reply`, `corrupt`, `unplaced`.
    pub faults: [(&'static str, u64); 7],
    /// Pipelines sent.
    pub pipelines: u64,
    /// Groups of decisions in them: fewer than decisions if some were merged.
    pub calls: u64,
    /// Decisions in them.
    pub decisions: u64,
    /// The total time that decisions waited for their turn.
    pub queued_seconds: f64,
    /// The number of times scripts had to be loaded again.
    pub reloads: u64,
    /// Calls sent again, elsewhere or later, because the server said that it had not carried them
    /// out: slots were migrating.
    pub redirects: u64,
    /// Denials repeated from memory.
    pub denied_from_memory: u64,
    /// Hits taken by requests that another slot denied, and not known to have been given back.
    pub stranded_hits: u64,
    /// Counters that were more than their window ahead of the server's clock, because it went back,
    /// and were moved to its time.
    pub moved_counters: u64,
    /// The number of times the server's clock was found to have gone back by more than a second.
    pub clock_steps_back: u64,
    /// Pipelines by the duration of their answer: the upper bound in seconds, and the count between
    /// it and the bound before.
    pub duration_buckets: Vec<(f64, u64)>,
    /// The total duration of all answers.
    pub duration_seconds: f64,
}
