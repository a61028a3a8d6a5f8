//! The thread that writes the log. Standard error is often a pipe, and a pipe whose reader stands still blocks whoever
//! writes to it: none of the threads that answer requests may.

use std::cell::RefCell;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

/// The most lines that wait to be written.
const WAITING_MAX: usize = 4096;

/// The longest wait for the last lines at the end of the process.
pub(super) const FLUSH_MAX: Duration = Duration::from_secs(1);

/// The interval between attempts to ask for the last lines while the queue is full.
const RETRY: Duration = Duration::from_millis(10);

/// The least time between notices of dropped lines while lines wait: they are not to be half of the log.
const NOTICES: Duration = Duration::from_secs(1);

thread_local! {
    /// The lines that the thread which writes has logged itself, and writes past the queue; [`None`] in all others.
    static OWN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

enum Job {
    Write(Vec<u8>),
    /// Answers once everything before it is written.
    Flush(SyncSender<()>),
}

/// The queue of lines, for whoever logs.
pub(super) struct Lines {
    jobs: SyncSender<Job>,
    dropped: Arc<AtomicU64>,
}

/// Starts a thread that writes lines to `to`.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(to: impl Write + Send + 'static) -> io::Result<Lines> {
    let (lines, writer) = queue(to);
    thread::Builder::new()
        .name("log".to_owned())
        .spawn(move || writer.run())?;
    Ok(lines)
}

fn queue<W: Write>(to: W) -> (Lines, Writer<W>) {
    let (jobs, waiting) = sync_channel(WAITING_MAX);
    let dropped = Arc::new(AtomicU64::new(0));
    let lines = Lines {
        jobs,
        dropped: Arc::clone(&dropped),
    };
    let writer = Writer {
        waiting,
        to,
        dropped,
        told: 0,
        told_at: None,
    };
    (lines, writer)
}

/// The other end of the queue. What cannot be written is lost: there is no other place to tell of it.
struct Writer<W> {
    waiting: Receiver<Job>,
    to: W,
    dropped: Arc<AtomicU64>,
    /// The number of dropped lines that the log tells of.
    told: u64,
    told_at: Option<Instant>,
}

impl<W: Write> Writer<W> {
    /// Writes until nobody logs any more.
    fn run(mut self) {
        OWN.set(Some(Vec::new()));
        while let Some(job) = self.next() {
            match job {
                Job::Write(line) => {
                    drop(self.to.write_all(&line));
                    let is_time = self.told_at.is_none_or(|at| at.elapsed() >= NOTICES);
                    if self.untold() > 0 && is_time {
                        self.tell();
                    }
                }
                Job::Flush(done) => {
                    self.tell();
                    // Whoever asked may have given up.
                    let _ = done.try_send(());
                }
            }
        }
    }

    /// The next job. Before it waits for one, all dropped lines are told.
    fn next(&mut self) -> Option<Job> {
        match self.waiting.try_recv() {
            Ok(job) => Some(job),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.tell();
                self.waiting.recv().ok()
            }
        }
    }

    /// The number of dropped lines that the log does not tell of.
    fn untold(&self) -> u64 {
        // Relaxed: it publishes nothing else.
        self.dropped.load(Ordering::Relaxed) - self.told
    }

    /// Writes how many lines were dropped since it was told last. In the queue, which is full then, the notice would be
    /// dropped as well.
    fn tell(&mut self) {
        let lines = self.untold();
        if lines == 0 {
            return;
        }
        warn!(lines, "lines of the log were dropped: nobody read it");
        let notice = OWN.with_borrow_mut(|own| own.as_mut().map(mem::take));
        drop(self.to.write_all(&notice.unwrap_or_default()));
        self.told += lines;
        self.told_at = Some(Instant::now());
    }
}

impl Lines {
    /// Adds lines to those that wait, or drops them if these are too many.
    pub(super) fn put(&self, lines: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.jobs.try_send(Job::Write(lines)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The number of lines that were dropped so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until the lines so far are written, at most a second.
    pub(super) fn finish(&self) {
        let begun = Instant::now();
        let (done, is_done) = sync_channel(1);
        while let Err(TrySendError::Full(_)) = self.jobs.try_send(Job::Flush(done.clone())) {
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
        let keep = |own: &RefCell<Option<Vec<u8>>>| match &mut *own.borrow_mut() {
            Some(own) => {
                own.extend_from_slice(line);
                true
            }
            None => false,
        };
        // A thread that logs as it ends has no such variables any more; it is another one.
        if !OWN.try_with(keep).unwrap_or(false) {
            self.put(line.to_vec());
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_testkit::process::eventually;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, PoisonError};

    /// A pipe that takes nothing while the test holds its lock.
    #[derive(Clone, Default)]
    struct Pipe(Arc<Mutex<Vec<u8>>>, Arc<AtomicBool>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1.store(true, Ordering::Relaxed);
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
        for _ in 0..WAITING_MAX + 10 {
            (&lines).write_all(b"a line\n").expect("it never fails");
        }
        // One more may be in the thread's hands.
        let dropped = lines.dropped();
        assert!((9..=10).contains(&dropped), "{dropped}");
        drop(held);
        lines.finish();
        let written = pipe.0.lock().expect("nothing has panicked").clone();
        let kept = WAITING_MAX + 10 - usize::try_from(dropped).expect("it is small");
        let whole = b"a line\n".repeat(kept);
        assert_eq!(written, whole);
    }
    /// The notice goes past the queue, which is full when there is one to write, and is no dropped line itself.
    #[test]
    fn the_log_tells_once_how_many_lines_it_lacks() {
        let pipe = Pipe::default();
        let held = pipe.0.lock().expect("nothing has panicked");
        let (lines, writer) = queue(pipe.clone());
        let lines = Arc::new(lines);
        let log = tracing_subscriber::fmt()
            .with_writer(Arc::clone(&lines))
            .with_ansi(false)
            .finish();
        thread::spawn(move || tracing::subscriber::with_default(log, || writer.run()));
        lines.put(b"a line\n".to_vec());
        eventually("it is being written", || pipe.1.load(Ordering::Relaxed));
        for _ in 0..WAITING_MAX + 100 {
            lines.put(b"a line\n".to_vec());
        }
        drop(held);
        lines.finish();
        let written = pipe.0.lock().expect("nothing has panicked").clone();
        let written = String::from_utf8(written).expect("it is text");
        let notices: Vec<_> = written.lines().filter(|line| *line != "a line").collect();
        let [notice] = notices[..] else {
            panic!("one notice: {notices:?}");
        };
        assert!(notice.ends_with(" lines=100"), "{notice}");
        assert_eq!(lines.dropped(), 100);
    }
}
