//! A log of refusals with a bounded number of lines.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The lines about refusals that are logged in one period; the others are counted.
const LINES_MAX: u32 = 10;

/// The period.
const PERIOD: Duration = Duration::from_secs(10);

/// A log of refusals that a stranger cannot flood.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    since: Option<Instant>,
    said: u32,
    silenced: u64,
}

impl RefusalLog {
    /// Returns, if a line may be logged now, how many were not since the last one.
    pub(crate) fn may_say(&self) -> Option<u64> {
        self.may_say_at(Instant::now())
    }

    fn may_say_at(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock();
        let is_over = |since| now.saturating_duration_since(since) >= PERIOD;
        if lines.since.is_none_or(is_over) {
            lines.since = Some(now);
            lines.said = 0;
        }
        if lines.said >= LINES_MAX {
            lines.silenced += 1;
            return None;
        }
        lines.said += 1;
        Some(std::mem::take(&mut lines.silenced))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_refusals_is_ten_lines_and_a_count() {
        let (log, now) = (RefusalLog::default(), Instant::now());
        for _ in 0..LINES_MAX {
            assert_eq!(log.may_say_at(now), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(log.may_say_at(now), None);
        }
        assert_eq!(log.may_say_at(now + PERIOD), Some(7));
        assert_eq!(log.may_say_at(now + PERIOD), Some(0));
    }
}
