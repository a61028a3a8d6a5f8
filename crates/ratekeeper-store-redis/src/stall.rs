//! Time in which this process did not run, for which no server is to blame.
//!
//! A deadline is meant for a slow server. If the machine runs other programs, or somebody stops the
//! process, the clock goes on and the deadline passes although the server has answered. So connections
//! set a timer for every [`SLICE`] while something is in flight. A timer that goes off late proves
//! that the process stood still, and every deadline set before that moves by as much.
//!
//! ```text
//!   timer set            to go off here                        goes off
//!   |----------- 2 ms ---------|~~~~~~~~~ stood still ~~~~~~~~~~~~|---->
//! ```
//!
//! Nothing is measured while nothing waits, and an answer within a slice costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest time between two looks at the clock while something is in flight.
pub(crate) const SLICE: Duration = Duration::from_millis(2);

/// The least delay that proves anything. Timers have a grain of one millisecond, and the system
/// call that waits for them another one; what is left is more than a millisecond late.
const PROOF: Duration = Duration::from_millis(3);

/// The most that a deadline moves.
const FORGIVEN_MAX_US: u64 = 1_000_000;

/// The time for which one runtime stood still, as far as its connections can prove it.
#[derive(Debug)]
pub(crate) struct Stall {
    origin: Instant,
    /// Microseconds stood still so far.
    stood: AtomicU64,
    /// The last time the runtime was seen running, in microseconds after `origin`: so that two
    /// timers do not report the same pause twice.
    seen: AtomicU64,
}

/// The time stood still up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Mark(u64);

impl Mark {
    /// Returns `deadline`, which was set at `self`, moved by the time stood still from then until
    /// `now`: a second at most.
    pub(crate) fn moved(self, deadline: Instant, now: Self) -> Instant {
        let stood = now.0.saturating_sub(self.0);
        match stood {
            0 => deadline,
            _ => deadline + Duration::from_micros(stood.min(FORGIVEN_MAX_US)),
        }
    }
}

impl Stall {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            stood: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        }
    }

    /// The time stood still so far.
    pub(crate) fn mark(&self) -> Mark {
        // Relaxed, as everything here: one task adds to it, and a pause that another one sees late
        // moves its deadlines late.
        Mark(self.stood.load(Ordering::Relaxed))
    }

    /// Records that a task ran at `now` although it should have run at `due`.
    pub(crate) fn ran(&self, due: Instant, now: Instant) {
        let seen = self.seen.fetch_max(self.micros(now), Ordering::Relaxed);
        let idle = self.micros(now).saturating_sub(self.micros(due).max(seen));
        if Duration::from_micros(idle) > PROOF {
            self.stood.fetch_add(idle, Ordering::Relaxed);
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.origin);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_pause_moves_the_deadlines_set_before_it_and_no_others() {
        let stall = Stall::new();
        let (before, start) = (stall.mark(), Instant::now());
        stall.ran(start, start + 300 * MS);
        let after = stall.mark();
        assert_eq!(before.moved(start, after), start + 300 * MS);
        assert_eq!(after.moved(start, after), start);
        stall.ran(start + 302 * MS, start + 307 * MS);
        assert_eq!(before.moved(start, stall.mark()), start + 305 * MS);
        assert_eq!(after.moved(start, stall.mark()), start + 5 * MS);
    }

    #[test]
    fn two_timers_that_saw_one_pause_count_it_once() {
        let (stall, start) = (Stall::new(), Instant::now());
        stall.ran(start + 2 * MS, start + 302 * MS);
        stall.ran(start + MS, start + 302 * MS);
        stall.ran(start + 5 * MS, start + 303 * MS);
        let moved = Mark::default().moved(start, stall.mark());
        assert_eq!(moved, start + 300 * MS);
    }

    #[test]
    fn a_timer_that_is_as_late_as_timers_are_proves_nothing() {
        let (stall, start) = (Stall::new(), Instant::now());
        for slice in 0..1_000 {
            let due = start + slice * 5 * MS;
            stall.ran(due, due + PROOF);
        }
        assert_eq!(stall.mark(), Mark::default());
    }

    #[test]
    fn a_second_is_forgiven_at_most() {
        let (stall, start) = (Stall::new(), Instant::now());
        stall.ran(start, start + 5_000 * MS);
        let moved = Mark::default().moved(start, stall.mark());
        assert_eq!(moved, start + 1_000 * MS);
    }
}
