//! Resource usage of a process, from Linux's `/proc`.

use std::fs;
use std::io;
use std::time::Duration;

/// The kernel counts in hundredths of a second where it does not count in nanoseconds.
const TICKS_PER_SECOND: u64 = 100;

/// The resources that a process has used so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessUse {
    /// Processor time of all threads, including the kernel's work for them.
    pub cpu: Duration,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
}

impl ProcessUse {
    /// The resources that the process `pid` has used so far.
    ///
    /// # Errors
    /// There is no such process, or no `/proc`.
    pub fn of(pid: u32) -> io::Result<Self> {
        Ok(Self {
            cpu: cpu_time(pid)?,
            resident_bytes: resident_bytes(pid)?,
        })
    }
}

/// The processor time of the process `pid`: in nanoseconds if the scheduler keeps statistics, else
/// in hundredths of a second.
///
/// # Errors
/// There is no such process, or no `/proc`.
pub fn cpu_time(pid: u32) -> io::Result<Duration> {
    // Only the tick count includes threads that have ended, but a service starts all of its threads
    // early and keeps them.
    scheduled(pid).or_else(|_| ticks(pid))
}

fn scheduled(pid: u32) -> io::Result<Duration> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        match fs::read_to_string(task?.path().join("schedstat")) {
            Ok(text) => nanos += number(text.split(' ').next())?,
            // It ended while the folder was read; or this kernel keeps no statistics, also for the
            // main thread.
            Err(error) if nanos == 0 => return Err(error),
            Err(_) => {}
        }
    }
    Ok(Duration::from_nanos(nanos))
}

fn ticks(pid: u32) -> io::Result<Duration> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may contain anything, so fields are counted from behind it: the 14th
    // and the 15th.
    let (_, fields) = text.rsplit_once(')').ok_or_else(unexpected)?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let ticks = number(fields.next())? + number(fields.next())?;
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// The resident memory of the process `pid`, in bytes.
///
/// # Errors
/// There is no such process, or no `/proc`.
pub fn resident_bytes(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.split_ascii_whitespace().next());
    Ok(number(kibibytes)? * 1024)
}

fn number(text: Option<&str>) -> io::Result<u64> {
    text.and_then(|text| text.trim().parse().ok())
        .ok_or_else(unexpected)
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "/proc is not as Linux has it")
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_takes_time_in_both_counts() {
        let pid = std::process::id();
        let before = (cpu_time(pid).expect("we run"), ticks(pid).expect("we run"));
        let mut random = fastrand::Rng::with_seed(1);
        while cpu_time(pid).expect("we run") < before.0 + Duration::from_millis(50) {
            (0..100_000).for_each(|_| {
                std::hint::black_box(random.u64(..));
            });
        }
        let after = ticks(pid).expect("we run");
        assert!(after > before.1, "{after:?} {before:?}");
        assert!(resident_bytes(pid).expect("we run") > 100_000);
        assert!(cpu_time(0).is_err());
    }
}
