//! The metrics of the log.

use std::fmt;
use std::sync::Arc;

use ratekeeper_server::{Families, Monitored};

use super::{LINES, writer};

/// The metrics of the log of this process.
pub(crate) fn report() -> Arc<dyn Monitored> {
    Arc::new(LogReport)
}

#[derive(Debug)]
struct LogReport;

impl Monitored for LogReport {
    fn subject(&self) -> &'static str {
        "log"
    }

    fn encode(&self, families: &mut Families<'_>) -> fmt::Result {
        let help = "Lines dropped from the log because standard error was not read in time";
        let dropped = LINES.get().map_or(0, writer::Lines::dropped);
        families.counter("ratelimit_log_lines_dropped", help, dropped)
    }

    // Decisions do not depend on it.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}
