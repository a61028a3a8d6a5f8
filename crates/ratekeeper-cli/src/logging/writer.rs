//! The thread that writes the log. Standard error is often a pipe, and a pipe whose reader stands still blocks whoever
//! writes to it: none of the threads that answer requests may.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use ratekeeper_server::{Families, Monitored};
use tracing::warn;

/// The most lines that wait to be written.
const WAITING_MAX: usize = 4096;

/// The longest wait for the last lines at the end of the process.
const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The interval between attempts to ask for the last lines while the queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// Lines that were dropped in this process, which has one log.
static DROPPED: AtomicU64 = AtomicU64::new(0);

enum Job {
    Write(Vec<u8>),
    /// Answers once everything before it is written.
    Flush(SyncSender<()>),
}

/// The queue of lines, for whoever logs.
pub(super) struct Lines(SyncSender<Job>);

/// Starts a thread that writes lines to `to`.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(to: impl Write + Send + 'static) -> io::Result<Lines> {
    let (jobs, waiting) = sync_channel(WAITING_MAX);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || run(&waiting, to))?;
    Ok(Lines(jobs))
}

/// Writes until nobody logs any more. What cannot be written is lost: there is no other place to tell of it.
fn run(waiting: &Receiver<Job>, mut to: impl Write) {
    let mut told = 0;
    while let Ok(job) = waiting.recv() {
        match job {
            Job::Write(line) => drop(to.write_all(&line)),
            Job::Flush(done) => drop(done.try_send(())),
        }
        // Relaxed: it publishes nothing else.
        let dropped = DROPPED.load(Ordering::Relaxed);
        if dropped != told {
            let lines = dropped - told;
            told = dropped;
            warn!(lines, "lines of the log were dropped: nobody read it");
        }
    }
}

impl Lines {
    /// Waits until the lines so far are written, at most a second.
    pub(super) fn finish(&self) {
        let begun = Instant::now();
        let (done, is_done) = sync_channel(1);
        while let Err(TrySendError::Full(_)) = self.0.try_send(Job::Flush(done.clone())) {
            if begun.elapsed() >= FLUSH_MAX {
                return;
            }
            thread::sleep(RETRY);
        }
        let left = FLUSH_MAX.saturating_sub(begun.elapsed());
        let (Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected)) =
            is_done.recv_timeout(left);
    }
}

impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = self.0.try_send(Job::Write(line.to_vec())) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The metrics of the log.
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
        let dropped = DROPPED.load(Ordering::Relaxed);
        families.counter("ratelimit_log_lines_dropped", help, dropped)
    }

    // Decisions do not depend on it.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// A pipe that takes nothing while the test holds its lock.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            held.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_wait_up_to_a_bound_and_are_written_whole() {
        let pipe = Pipe::default();
        let held = pipe.0.lock().expect("nothing has panicked");
        let lines = start(pipe.clone()).expect("a thread can be started");
        let before = DROPPED.load(Ordering::Relaxed);
        for _ in 0..WAITING_MAX + 10 {
            (&lines).write_all(b"a line\n").expect("it never fails");
        }
        // One more may be in the thread's hands.
        let dropped = DROPPED.load(Ordering::Relaxed) - before;
        assert!((9..=10).contains(&dropped), "{dropped}");
        drop(held);
        lines.finish();
        let written = pipe.0.lock().expect("nothing has panicked").clone();
        let kept = WAITING_MAX + 10 - usize::try_from(dropped).expect("it is small");
        let whole = b"a line\n".repeat(kept);
        assert_eq!(written, whole);
    }
}
