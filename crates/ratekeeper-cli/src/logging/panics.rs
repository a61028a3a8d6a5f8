//! Panics in the log. A thread that panics goes on where requests are answered, or accepted: standard error, which may be a
//! full pipe, must not stop it. A panic that ends the process drops its [`Log`](super::Log), which waits for the line.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::PanicHookInfo;
use std::thread;

use super::writer::Lines;
use crate::output;

/// Makes panics lines of the log, which wait as others do.
pub(super) fn log_to(lines: &'static Lines) {
    std::panic::set_hook(Box::new(|panic| {
        lines.put(output::complaint(&told(panic)).into_bytes());
    }));
}

/// A panic as the standard library tells it, with a backtrace if the environment asks for one.
fn told(panic: &PanicHookInfo<'_>) -> String {
    let thread = thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let backtrace = Backtrace::capture();
    match backtrace.status() {
        BacktraceStatus::Captured => format!("thread '{name}' {panic}\n{backtrace}"),
        _ => format!("thread '{name}' {panic}"),
    }
}

#[cfg(test)]
mod tests {
    use crate::logging;
    use crate::logging::writer::FLUSH_MAX;
    use crate::settings::{self, Flags};
    use ratekeeper_testkit::process::eventually;
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use std::io::{self, ErrorKind, PipeWriter, Write as _};
    use std::panic::catch_unwind;
    use std::process::{Child, Command, Stdio};
    use std::thread;
    use std::time::Instant;

    /// Set for the process that panics.
    const PANICS: &str = "RATEKEEPER_TEST_PANICS";

    /// A hook is of the whole process, so this test starts itself in one of its own.
    #[test]
    fn a_thread_that_panics_does_not_wait_for_the_reader_of_the_log() {
        if std::env::var_os(PANICS).is_some() {
            return panic_in_a_thread();
        }
        let (_reader, writer) = io::pipe().expect("a pipe can be made");
        fill(&writer);
        let child = this_test().stderr(writer).spawn();
        let mut child = Killed(child.expect("this test can be started"));
        let mut ended = None;
        eventually("the thread has panicked", || {
            ended = child.0.try_wait().expect("it is ours");
            ended.is_some()
        });
        assert!(ended.is_some_and(|it| it.success()), "{ended:?}");
        // With a reader, the log has the panic.
        let said = this_test().output().expect("this test can be started");
        let log = String::from_utf8_lossy(&said.stderr);
        let told = "thread 'main' panicked at ";
        assert_eq!(log.matches(told).count(), 21, "{log}");
        assert!(log.contains("the last mistake"), "{log}");
    }

    fn this_test() -> Command {
        let this = std::env::current_exe().expect("it has a path");
        let name =
            "logging::panics::tests::a_thread_that_panics_does_not_wait_for_the_reader_of_the_log";
        let mut command = Command::new(this);
        command.args(["--exact", name, "--nocapture"]);
        command.env(PANICS, "").stdout(Stdio::null());
        command
    }

    /// As the main thread does, which begins what has panicked again, until a panic ends it.
    fn panic_in_a_thread() {
        let worker = thread::Builder::new().name("main".to_owned());
        let worker = worker.spawn(|| {
            let settings = settings::of_process(&Flags::default()).expect("the defaults are good");
            let _log = logging::start(&settings.values).expect("no log is started");
            let begun = Instant::now();
            for _ in 0..20 {
                let caught = catch_unwind(|| panic!("a mistake"));
                assert!(caught.is_err());
            }
            assert!(begun.elapsed() < FLUSH_MAX * 10, "no panic waits");
            panic!("the last mistake");
        });
        let ended = worker.expect("a thread can be started").join();
        let why = ended.expect_err("it panics");
        assert_eq!(why.downcast_ref(), Some(&"the last mistake"));
        // At once, as a process ends: only what was waited for is written.
        std::process::exit(0);
    }

    /// Writes to the pipe until it takes no more.
    fn fill(mut pipe: &PipeWriter) {
        let flags = fcntl_getfl(pipe).expect("it is open");
        fcntl_setfl(pipe, flags | OFlags::NONBLOCK).expect("it is open");
        let full = loop {
            if let Err(error) = pipe.write_all(&[b'.'; 4096]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        fcntl_setfl(pipe, flags).expect("it is open");
    }

    /// A process that is ended with the test.
    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            // It may have ended, which is no reason to panic in a test that does.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
