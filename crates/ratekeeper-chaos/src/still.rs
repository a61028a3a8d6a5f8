//! Processes that stand still for moments: stopped, or short of a processor.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ratekeeper_testkit::process::{Process, pin};

/// The time between two pauses.
const BETWEEN: Duration = Duration::from_millis(700);

/// Programs that never wait, beside which others share one processor.
const BUSY: usize = 2;

/// Stops a process for `pause` again and again until `end`; at least once.
pub(crate) fn pause_again(process: &mut Process, pause: Duration, end: Instant) {
    loop {
        process.pause();
        sleep(pause);
        process.resume();
        sleep(BETWEEN);
        if Instant::now() + pause > end {
            return;
        }
    }
}

/// Keeps the processes `ids` on the first processor, beside two programs that never wait, during `act`.
pub(crate) fn crowd(ids: &[u32], act: impl FnOnce()) {
    ids.iter().for_each(|id| pin(*id, "0"));
    let busy: Vec<Process> = (0..BUSY).map(|_| busy()).collect();
    act();
    drop(busy);
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let all = format!("0-{}", all - 1);
    ids.iter().for_each(|id| pin(*id, &all));
}

/// A program that never waits, on the first processor.
fn busy() -> Process {
    let mut command = Command::new("taskset");
    command.args(["-c", "0", "sh", "-c", "while :; do :; done"]);
    Process::spawn("busy program", command)
}
