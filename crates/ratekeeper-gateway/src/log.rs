//! The access log, which `ratekeeper replay` and common log tools read. A thread of its own writes it;
//! when that cannot keep up, lines are dropped and counted, and no request waits.

mod entry;
mod writer;

pub(crate) use entry::Entry;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::sleep;
use std::time::Duration;

use tracing::error;

/// The most lines that wait to be written; further ones are dropped.
const WAITING_MAX: usize = 8_192;

/// The time after which a writer that has panicked goes on.
const PAUSE: Duration = Duration::from_secs(1);

/// The format of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LogFormat {
    /// One JSON object a line.
    #[default]
    Json,
    /// The combined log format of Apache and NGINX; it has no place for decisions.
    Combined,
}

/// An access log.
#[derive(Debug)]
pub struct AccessLog {
    format: LogFormat,
    lines: SyncSender<String>,
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// Logs to a file, which is appended to, and reopened after it was moved away; without a path, to
    /// standard output.
    ///
    /// # Errors
    /// The file cannot be written, or there is no thread to write it.
    pub fn open(path: Option<&Path>, format: LogFormat) -> io::Result<Self> {
        let (lines, waiting) = sync_channel(WAITING_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let mut writer = writer::Writer::open(path, Arc::clone(&dropped))?;
        std::thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || keep(PAUSE, || writer.run(&waiting)))?;
        Ok(Self {
            format,
            lines,
            dropped,
        })
    }

    /// The number of lines dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, entry: &Entry) {
        if self.lines.try_send(entry.line(self.format)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Works until the work is done, and begins again after a panic: what was in hand then is lost, and no later line.
fn keep(pause: Duration, mut work: impl FnMut()) {
    // A writer holds no state that a panic could leave half changed.
    while catch_unwind(AssertUnwindSafe(&mut work)).is_err() {
        error!("the writer of the access log has ended, and goes on: please report this bug");
        sleep(pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_panics_goes_on() {
        let mut begun = 0;
        keep(Duration::ZERO, || {
            begun += 1;
            assert!(begun >= 3, "a bug");
        });
        assert_eq!(begun, 3);
    }
}
