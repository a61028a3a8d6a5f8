//! The times that a route's last answers took to begin.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// The number of answers that are remembered: with a power of two the index wraps around cheaply.
const REMEMBERED: usize = 256;

/// The times until a route's last answers began, in microseconds; 0 where there was none yet.
#[derive(Debug)]
pub(crate) struct RecentTimes {
    next: AtomicUsize,
    us: [AtomicU32; REMEMBERED],
}

impl Default for RecentTimes {
    fn default() -> Self {
        Self {
            next: AtomicUsize::new(0),
            us: std::array::from_fn(|_| AtomicU32::new(0)),
        }
    }
}

// Relaxed everywhere: the times are independent of each other.
impl RecentTimes {
    /// Remembers the time in place of the oldest one.
    pub(crate) fn record(&self, took: Duration) {
        let us = u32::try_from(took.as_micros()).unwrap_or(u32::MAX).max(1);
        let at = self.next.fetch_add(1, Ordering::Relaxed) % REMEMBERED;
        self.us[at].store(us, Ordering::Relaxed);
    }

    /// Remembers what `before` does.
    pub(crate) fn inherit(&self, before: &Self) {
        let next = before.next.load(Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        for (own, other) in self.us.iter().zip(&before.us) {
            own.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The time within which 99 of 100 answers began; None without any. Sorts them: for the few requests that need it.
    pub(crate) fn p99(&self) -> Option<Duration> {
        let us = self.us.iter().map(|us| us.load(Ordering::Relaxed));
        let mut us: Vec<u32> = us.filter(|us| *us > 0).collect();
        let at = (us.len() * 99).div_ceil(100).checked_sub(1)?;
        let (_, p99, _) = us.select_nth_unstable(at);
        Some(Duration::from_micros((*p99).into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_what_almost_all_answers_took_lately() {
        let times = RecentTimes::default();
        let ms = Duration::from_millis;
        assert_eq!(times.p99(), None);
        times.record(ms(30));
        assert_eq!(times.p99(), Some(ms(30)));
        (0..REMEMBERED).for_each(|number| times.record(ms(number as u64 + 1)));
        assert_eq!(times.p99(), Some(ms(254)));
        // One of 256 says nothing.
        (1..REMEMBERED).for_each(|_| times.record(ms(1)));
        assert_eq!(times.p99(), Some(ms(1)));
        let next = RecentTimes::default();
        next.inherit(&times);
        assert_eq!(next.p99(), Some(ms(1)));
    }
}
