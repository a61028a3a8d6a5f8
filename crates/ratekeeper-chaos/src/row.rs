//! A row of the table.

use std::time::Duration;

use crate::verdict::Passed;

/// The results of one fault.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) lasted: Duration,
    pub(crate) asked: u64,
    pub(crate) errors: u64,
    pub(crate) degraded: u64,
    /// Decisions of failure modes by the metric. None if nodes were restarted, whose counts begin at zero again.
    pub(crate) failopen: Option<u64>,
    pub(crate) hard: Passed,
    pub(crate) soft: Passed,
    pub(crate) leased: Passed,
    /// Of a limit that nodes may exceed: `over` is beyond the limit of each of them.
    pub(crate) synced: Passed,
    /// Permits beyond the limit that were held at once.
    pub(crate) permits_over: u64,
    /// The most permits that were held at once.
    pub(crate) permits_held: u64,
    pub(crate) charged_twice: u64,
    /// Hits that Redis charged beyond those that passed, of a limit that is denied without Redis.
    pub(crate) charged_denied: u64,
    /// Signals that did not tell the truth; empty if all did.
    pub(crate) lies: Vec<String>,
    /// The time until the nodes shared their counters again; None if they did not within the time watched.
    pub(crate) back: Option<Duration>,
    /// Log lines per second and node.
    pub(crate) lines: f64,
    /// The most memory that a node had resident, in KiB.
    pub(crate) resident_kib: usize,
    /// The goals missed, apart from signals.
    pub(crate) missed: Vec<String>,
}

/// The table's first two lines.
pub(crate) const HEAD: &str = "\
| fault | lasted | asked | errors | by failure mode (metric) | `deny`: passed of | `local`: passed of | leased: passed of | synced: passed of | over, unmarked | \
charged twice | charged though denied | signals true | shared again | log lines/s | RSS | missed |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|---|";

impl Row {
    /// The number of requests that passed beyond a limit without being marked.
    pub(crate) fn over(&self) -> u64 {
        let rotating = [self.hard, self.soft, self.leased, self.synced];
        rotating.iter().map(|passed| passed.over).sum::<u64>() + self.permits_over
    }

    /// Returns true if every goal was met.
    pub(crate) fn is_met(&self) -> bool {
        self.missed.is_empty() && self.lies.is_empty()
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let metric = match self.failopen {
            Some(count) => count.to_string(),
            None => "restarted".to_owned(),
        };
        let signals = match self.lies.as_slice() {
            [] => "yes".to_owned(),
            lies => format!("no: {}", lies.join("; ")),
        };
        // Not a goal yet, but worth showing.
        let charged_twice = match self.charged_twice {
            0 => "0".to_owned(),
            hits => format!("{hits}, kept"),
        };
        let back = match self.back {
            Some(back) => format!("{:.0} ms", back.as_secs_f64() * 1e3),
            None => "never".to_owned(),
        };
        write!(
            f,
            "| {} | {:.1} s | {} | {} | {} ({metric}) | {} of {} | {} of {} | {} of {} | {} of {} | {} | {charged_twice} | {} | {signals} | {back} | {:.1} | {} MiB | {} |",
            self.name,
            self.lasted.as_secs_f64(),
            self.asked,
            self.errors,
            self.degraded,
            self.hard.admitted,
            self.hard.limit,
            self.soft.admitted,
            self.soft.limit,
            self.leased.admitted,
            self.leased.limit,
            self.synced.admitted,
            self.synced.limit,
            self.over(),
            self.charged_denied,
            self.lines,
            self.resident_kib.div_ceil(1024),
            self.missed.join("; "),
        )
    }
}
