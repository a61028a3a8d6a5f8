//! Real programs for tests: started, awaited, stopped in the way under test, and ended with the
//! test.
//!
//! ```no_run
//! use ratekeeper_testkit::process::{self, Process};
//!
//! let port = process::free_port();
//! let mut command = process::system("redis-server");
//! command.args(["--port", &port.to_string(), "--save", ""]);
//! let mut redis = Process::spawn("redis", command);
//! redis.wait_for_port(port);
//! redis.pause(); // it hangs, and its connections stay open
//! redis.resume();
//! redis.kill(); // and now it is gone; dropping it would have done the same
//! ```

mod listening;
mod ports;
mod tools;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
pub use rustix::process::Signal;
use rustix::process::{Pid, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::time::{ClockId, clock_gettime};

use listening::is_listening;
pub use ports::free_port;
use tools::missing;
pub use tools::{output_of, pin, system, tool, tool_folder};

/// Timeout for a condition to become true. Waiting ends as soon as it does; the timeout is long
/// because machines that run tests can be slow.
pub const DEADLINE: Duration = Duration::from_secs(90);

/// The interval between checks of a condition.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Time for which the children of an ended program may keep its output open.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(10);

/// The most of a program's output to keep: its end, in bytes.
const OUTPUT_BYTES_MAX: usize = 256 << 10;

/// The words by which a program in Rust tells of a panic.
const PANICKED: &[u8] = b"panicked at";

/// Waits until `condition` is true.
///
/// # Panics
/// If it is not within [`DEADLINE`]; the message names `what`.
pub fn eventually(what: &str, condition: impl FnMut() -> bool) {
    let is_true = within(DEADLINE, LOOK_EVERY, condition);
    assert!(is_true, "waited {DEADLINE:?} in vain until {what}");
}

/// Waits until `condition` is true, which is checked once in `every`, or `patience` is over. Returns true if it is.
pub fn within(patience: Duration, every: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + patience;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(every);
    }
    true
}

/// A running program with its children. Dropping it kills them; if the test fails, the end of the
/// output is printed.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    output: Arc<Mutex<Output>>,
    /// Collects the output; finishes once no more can come.
    reader: JoinHandle<()>,
    ended: Option<ExitStatus>,
    is_killed: bool,
}

#[derive(Debug, Default)]
struct Output {
    /// The end of the output, both streams in order.
    end: Vec<u8>,
    is_cut: bool,
    /// Line ends in all of the output.
    lines: u64,
    has_panicked: bool,
}

impl Process {
    /// Starts `command`; `name` identifies it in messages.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn spawn(name: &str, mut command: Command) -> Self {
        let (reader, writer) = std::io::pipe().expect("a pipe can be made");
        let second = writer.try_clone().expect("a pipe has room for two writers");
        // A process group of its own, so that its children can be killed with it.
        command
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(second)
            .process_group(0);
        let child = command.spawn().unwrap_or_else(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            match error.kind() {
                std::io::ErrorKind::NotFound => panic!("{}", missing(&program)),
                _ => panic!("{program} cannot be started: {error}"),
            }
        });
        let output = Arc::new(Mutex::new(Output::default()));
        let kept = Arc::clone(&output);
        // It ends with the last writer: the program, its children, and `command`, dropped with this
        // function.
        let reader = std::thread::spawn(move || keep(reader, &kept));
        Self {
            name: name.to_owned(),
            child,
            output,
            reader,
            ended: None,
            is_killed: false,
        }
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The end of its output, both streams.
    #[must_use]
    pub fn output(&self) -> String {
        let output = self.output.lock();
        let text = String::from_utf8_lossy(&output.end).into_owned();
        if output.is_cut {
            format!("[…]{text}")
        } else {
            text
        }
    }

    /// The memory that is resident now, in KiB; 0 once it has ended.
    #[must_use]
    pub fn resident_kib(&self) -> usize {
        self.proc_kib("VmRSS")
    }

    /// The memory that is resident now and no file's, in KiB: what the program allocated; 0 once it has ended.
    #[must_use]
    pub fn allocated_kib(&self) -> usize {
        self.proc_kib("RssAnon")
    }

    /// The number of files that are open now, sockets included; 0 once it has ended.
    #[must_use]
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.id())).map_or(0, Iterator::count)
    }

    /// The most memory that was resident at once so far, in KiB; 0 once it has ended.
    #[must_use]
    pub fn resident_peak_kib(&self) -> usize {
        self.proc_kib("VmHWM")
    }

    fn proc_kib(&self, name: &str) -> usize {
        proc_kib(self.id(), name)
    }

    /// The processor time that it has used so far, in user and kernel mode.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        // proc(5): the 14th and 15th field, in ticks; the second one, in parentheses, may hold spaces.
        const TICKS_A_SECOND: u64 = 100;
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.unwrap_or_default();
        let after = stat.rsplit_once(')').map_or("", |(_, after)| after);
        let times = after.split_whitespace().skip(11).take(2);
        let ticks: u64 = times.filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1_000 / TICKS_A_SECOND)
    }

    /// The number of lines printed so far.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.output.lock().lines
    }

    /// Returns true if it has told of a panic, in any part of its output, as programs in Rust do.
    #[must_use]
    pub fn has_panicked(&self) -> bool {
        self.output.lock().has_panicked
    }

    /// Waits until `condition` is true.
    ///
    /// # Panics
    /// If it is not within [`DEADLINE`], or the program ends before.
    pub fn wait_until(&mut self, what: &str, mut condition: impl FnMut() -> bool) {
        let name = self.name.clone();
        eventually(&format!("{name}: {what}"), || {
            let is_true = condition();
            let Some(status) = self.ended().filter(|_| !is_true) else {
                return is_true;
            };
            // It may have printed that, and ended, after the condition was looked at.
            assert!(condition(), "{name} ended with {status} before {what}");
            true
        });
    }

    /// Waits until it, or a child of it, listens on that port of the loopback interface. A stranger that listens there
    /// is not taken for it.
    ///
    /// # Panics
    /// As [`Process::wait_until`].
    pub fn wait_for_port(&mut self, port: u16) {
        let id = self.id();
        let listens = || is_listening(id, port);
        self.wait_until(&format!("it listens on 127.0.0.1:{port}"), listens);
    }

    /// Waits until it has printed `text` and ended that line, and returns all of its output: a program
    /// may write a line in pieces.
    ///
    /// # Panics
    /// As [`Process::wait_until`].
    pub fn wait_for_output(&mut self, text: &str) -> String {
        let output = Arc::clone(&self.output);
        let has_printed = move || has_line_with(&output, text);
        self.wait_until(&format!("it printed {text:?}"), has_printed);
        self.output()
    }

    /// Returns true if it has printed `text` and ended that line.
    #[must_use]
    pub fn has_printed(&self, text: &str) -> bool {
        has_line_with(&self.output, text)
    }

    /// Its exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("its own child can be asked");
            if self.ended.is_some() {
                self.read_to_end();
            }
        }
        self.ended
    }

    /// Waits until all output before its end has been read, or for [`LAST_WORDS_WAIT`]: children
    /// may outlive it and keep the pipe open.
    fn read_to_end(&self) {
        within(LAST_WORDS_WAIT, LOOK_EVERY, || self.reader.is_finished());
    }

    /// Stops it (SIGSTOP), and waits until it has stopped: it answers nothing, and its connections
    /// stay open.
    ///
    /// # Panics
    /// If it has ended.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        let id = self.group();
        // Its other threads may run on for a moment after the signal. NOWAIT leaves the status in
        // place for a repeated check.
        let options = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_still = || matches!(waitid(WaitId::Pid(id), options), Ok(Some(_)));
        self.wait_until("it stands still", is_still);
    }

    /// Continues it after [`Process::pause`].
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Kills it (SIGKILL), and waits for its end. Has no effect once it has ended.
    pub fn kill(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::KILL);
            self.ended = Some(self.child.wait().expect("its end can be waited for"));
            self.is_killed = true;
        }
    }

    /// Terminates it (SIGTERM), and waits for its end.
    ///
    /// # Panics
    /// As [`Process::end`].
    pub fn terminate(&mut self) -> ExitStatus {
        if self.ended().is_none() {
            self.signal(Signal::TERM);
        }
        self.end()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it has not ended within [`DEADLINE`].
    pub fn end(&mut self) -> ExitStatus {
        within(DEADLINE, LOOK_EVERY, || self.ended().is_some());
        let ended = self.ended();
        ended.unwrap_or_else(|| panic!("{} does not end when it is asked to", self.name))
    }

    /// Asks it to quit at once (SIGQUIT), and kills it if it has not ended within [`DEADLINE`].
    pub(crate) fn quit(&mut self) {
        if self.ended().is_none() {
            self.signal(Signal::QUIT);
        }
        within(DEADLINE, LOOK_EVERY, || self.ended().is_some());
        self.kill();
    }

    /// Sends it and its children a signal.
    pub fn signal(&self, signal: Signal) {
        // The group no longer exists if its last process has just ended, and then there is nothing
        // to signal.
        let _ = kill_process_group(self.group(), signal);
    }

    /// The id of the process, and of the group that it leads.
    fn group(&self) -> Pid {
        let id = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        id.expect("a child has an id")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Children may have outlived it, unless they were killed with it: then the group's id may
        // have been reused.
        if !self.is_killed {
            self.signal(Signal::KILL);
        }
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- what {} printed ---\n{}", self.name, self.output());
        }
    }
}

/// The memory of this process that is resident now, in KiB.
#[must_use]
pub fn own_resident_kib() -> usize {
    proc_kib(std::process::id(), "VmRSS")
}

/// The processor time of this thread so far, in user and kernel mode: other work of the machine is not in it.
#[must_use]
pub fn thread_time() -> Duration {
    spent(ClockId::ThreadCPUTime)
}

/// The same of all threads of this process.
#[must_use]
pub fn own_time() -> Duration {
    spent(ClockId::ProcessCPUTime)
}

fn spent(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// A line of `/proc/ID/status`; 0 if the process has ended.
fn proc_kib(id: u32, name: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.trim_start_matches(':').split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Returns true if a line that has ended holds `text`.
fn has_line_with(output: &Mutex<Output>, text: &str) -> bool {
    let output = output.lock();
    let printed = String::from_utf8_lossy(&output.end);
    let after = printed.split_once(text).map(|(_, after)| after);
    after.is_some_and(|after| after.contains('\n'))
}

/// Keeps the end of the output until the stream closes.
fn keep(mut reader: impl Read, output: &Mutex<Output>) {
    let mut piece = [0; 8 << 10];
    loop {
        let read = match reader.read(&mut piece) {
            Ok(0) => return,
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut output = output.lock();
        let read = piece.get(..read).unwrap_or_default();
        output.lines += read.iter().filter(|byte| **byte == b'\n').count() as u64;
        // The words may have come in two pieces.
        let looked_at = output.end.len().saturating_sub(PANICKED.len());
        output.end.extend_from_slice(read);
        let new = output.end.get(looked_at..).unwrap_or_default();
        let has_panicked = new.windows(PANICKED.len()).any(|words| words == PANICKED);
        output.has_panicked |= has_panicked;
        if output.end.len() > OUTPUT_BYTES_MAX {
            output.is_cut = true;
            let surplus = output.end.len() - OUTPUT_BYTES_MAX / 2;
            output.end.drain(..surplus);
        }
    }
}

#[cfg(test)]
mod tests;
