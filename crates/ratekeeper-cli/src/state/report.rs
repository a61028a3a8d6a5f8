//! Metrics and messages about the state file, for operators.

use parking_lot::Mutex;
use ratekeeper_server::{Families, MaintenanceTask, Monitored, by};
use std::fmt;
use std::sync::Arc;

/// The results of loading and saving since the start.
#[derive(Debug)]
pub(crate) struct Report {
    counts: Mutex<Counts>,
    task: Arc<MaintenanceTask>,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            counts: Mutex::default(),
            task: Arc::new(MaintenanceTask::new("state")),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Counts {
    saved: u64,
    failed: u64,
    set_aside: u64,
    /// The reason why saving fails at present, and the number of failures in a row.
    failing: Option<(String, u64)>,
}

impl Report {
    /// The state of the work of saving.
    pub(super) fn task(&self) -> Arc<MaintenanceTask> {
        Arc::clone(&self.task)
    }

    /// Counts that the file could not be used at the start.
    pub(super) fn set_aside(&self) {
        self.counts.lock().set_aside += 1;
    }

    /// Counts a successful save; returns true if the one before had failed.
    pub(super) fn saved(&self) -> bool {
        let mut counts = self.counts.lock();
        counts.saved += 1;
        counts.failing.take().is_some()
    }

    /// Counts a save that failed because of `why`; returns how many have failed in a row.
    pub(super) fn failed(&self, why: String) -> u64 {
        let mut counts = self.counts.lock();
        counts.failed += 1;
        let times = counts.failing.as_ref().map_or(1, |(_, times)| times + 1);
        counts.failing = Some((why, times));
        times
    }
}

impl Monitored for Report {
    fn subject(&self) -> &'static str {
        "state file"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let counts = self.counts.lock().clone();
        let saves = [("success", counts.saved), ("error", counts.failed)];
        let help = "Saves of the state file";
        families.counters("ratelimit_state_saves", help, by("result", saves))?;
        let help = "State files set aside at start because they could not be used";
        families.counter("ratelimit_state_set_aside", help, counts.set_aside)
    }

    fn tasks(&self) -> Vec<(&'static str, u64)> {
        vec![(self.task.name(), self.task.failures())]
    }

    fn faults(&self) -> Vec<String> {
        let fault = |(why, times): &(String, u64)| {
            format!(
                "the counters cannot be saved ({why}; failed {times} times in a row): a restart would forget what was \
                 counted since"
            )
        };
        self.counts.lock().failing.iter().map(fault).collect()
    }
}
