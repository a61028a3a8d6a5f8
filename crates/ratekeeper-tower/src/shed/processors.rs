//! The utilisation of the processors by this process.

mod allowed;

use std::time::{Duration, Instant};

use allowed::allowed;
use parking_lot::Mutex;

/// The processors that this process may use, and how much of their time it has used when it was last asked.
#[derive(Debug)]
pub(super) struct Processors {
    count: f64,
    last: Mutex<Option<Used>>,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    at: Instant,
    time: Duration,
}

impl Processors {
    /// Those of this process: no more than its control groups and its affinity allow.
    pub(super) fn new() -> Self {
        Self {
            count: allowed(),
            last: Mutex::new(None),
        }
    }

    /// The part of their time since the last call that this process has used; 0 at the first call, and where it is not
    /// known.
    pub(super) fn take_utilisation(&self) -> f64 {
        let Some(time) = processor_time() else {
            return 0.0;
        };
        let at = Instant::now();
        let last = self.last.lock().replace(Used { at, time });
        last.map_or(0.0, |last| self.utilisation(last, Used { at, time }))
    }

    fn utilisation(&self, last: Used, now: Used) -> f64 {
        let took = now.at.saturating_duration_since(last.at).as_secs_f64();
        let used = now.time.saturating_sub(last.time).as_secs_f64();
        match took > 0.0 {
            true => used / took / self.count,
            false => 0.0,
        }
    }
}

/// The processor time of all threads of this process.
#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).ok()
}

#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_time_used_of_time_there_was() {
        let processors = Processors {
            count: 2.0,
            last: Mutex::new(None),
        };
        let at = Instant::now();
        let used = |secs: u64, ms: u64| Used {
            at: at + Duration::from_secs(secs),
            time: Duration::from_millis(ms),
        };
        let utilisation = processors.utilisation(used(0, 1_000), used(1, 2_500));
        assert!((utilisation - 0.75).abs() < 1e-9, "{utilisation}");
        let none = processors.utilisation(used(1, 1_000), used(1, 1_000));
        assert!(none.abs() < 1e-9, "{none}");
    }

    #[test]
    fn a_process_that_works_is_utilised() {
        let processors = Processors::new();
        assert!(processors.take_utilisation().abs() < 1e-9);
        // Processor time, not time: however slow the machine is, the clock moves on.
        let end = processor_time().map(|now| now + Duration::from_millis(20));
        while processor_time() < end {
            std::hint::spin_loop();
        }
        if end.is_some() {
            assert!(processors.take_utilisation() > 0.0);
        }
    }
}
