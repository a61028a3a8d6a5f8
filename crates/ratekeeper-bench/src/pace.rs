//! The times at which requests are due.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::sleep;

use crate::load::Pace;

/// Timers wake up to two milliseconds late; a shorter wait spins on the clock.
const SPIN: Duration = Duration::from_millis(2);

/// The span from the first request to the last one measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The first request of the warm-up.
    pub(crate) start: Instant,
    /// The start of the measurement.
    pub(crate) begin: Instant,
    /// The end of the measurement.
    pub(crate) end: Instant,
}

impl Window {
    pub(crate) fn holds(&self, at: Instant) -> bool {
        self.begin <= at && at < self.end
    }
}

/// The due times of one connection's requests; its streams take turns.
#[derive(Debug)]
pub(crate) struct Schedule {
    window: Window,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    first: Duration,
    interval: Duration,
    taken: Cell<u32>,
    /// Held by the one stream that watches the clock.
    turn: Mutex<()>,
}

impl Schedule {
    /// The schedule of connection `number` of `connections`.
    pub(crate) fn new(window: Window, pace: Pace, number: u32, connections: u32) -> Self {
        let open = match pace {
            Pace::Closed => None,
            Pace::Open { per_second } => {
                let between = Duration::from_secs_f64(1.0 / per_second);
                Some(Open {
                    first: between * number,
                    interval: between * connections,
                    taken: Cell::new(0),
                    turn: Mutex::new(()),
                })
            }
        };
        Self { window, open }
    }

    /// Waits for the due time of the next request and returns it; in a closed loop that is now.
    /// None once the run is over.
    pub(crate) async fn next(&self) -> Option<Instant> {
        let Some(open) = &self.open else {
            let now = Instant::now();
            return (now < self.window.end).then_some(now);
        };
        let _turn = open.turn.lock().await;
        let due = self.due(open)?;
        wait_until(due).await;
        open.taken.set(open.taken.get() + 1);
        Some(due)
    }

    fn due(&self, open: &Open) -> Option<Instant> {
        let due = self.window.start + open.first + open.interval * open.taken.get();
        (due < self.window.end).then_some(due)
    }

    /// Returns true if no request is due any more.
    pub(crate) fn is_over(&self) -> bool {
        match &self.open {
            None => Instant::now() >= self.window.end,
            Some(open) => self.due(open).is_none(),
        }
    }

    /// The number of requests that were due in an open loop and never taken.
    pub(crate) fn left(&self) -> u64 {
        let Some(open) = &self.open else { return 0 };
        let total = self.window.end - self.window.start;
        let due = total.saturating_sub(open.first).as_nanos();
        let due = due.div_ceil(open.interval.as_nanos().max(1));
        u64::try_from(due)
            .unwrap_or(u64::MAX)
            .saturating_sub(u64::from(open.taken.get()))
    }
}

async fn wait_until(due: Instant) {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        if left > SPIN {
            sleep(left - SPIN).await;
        } else {
            // Lets answers in, and other tasks on this thread run.
            yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_open_loop_has_a_time_for_each_request_however_late_it_is_asked() {
        let start = Instant::now();
        let window = Window {
            start,
            begin: start,
            end: start + Duration::from_millis(10),
        };
        let pace = Pace::Open { per_second: 1000.0 };
        let schedule = Schedule::new(window, pace, 1, 2);
        assert_eq!(schedule.left(), 5);
        let mut due = Vec::new();
        while let Some(at) = schedule.next().await {
            due.push((at - start).as_millis());
        }
        assert_eq!(due, [1, 3, 5, 7, 9]);
        assert!(schedule.is_over());
        assert_eq!(schedule.left(), 0);
    }
}
