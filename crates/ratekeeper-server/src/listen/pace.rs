//! Tells a slow peer from one that has stopped.

use std::time::Duration;

/// The most bytes that a peer can be credited in advance. Beyond that, the system's buffers took
/// what the socket took, which says nothing about the peer.
const CREDIT_BYTES_MAX: u64 = 32 << 10;

/// The slowest that a peer may be while it is being waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Patience {
    /// The longest time a peer may make no progress at all; none for any time. Time in which a peer
    /// is not waited for does not count.
    pub stall_timeout: Option<Duration>,
    /// The bytes a second that it has to move on average, beyond that time; 0 for any rate.
    pub rate_min: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            stall_timeout: Some(Duration::from_secs(30)),
            rate_min: 1 << 10,
        }
    }
}

/// The time that one peer still has: a bucket that drains while the peer is waited for, and fills
/// with its bytes and while it is not waited for.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    patience: Patience,
    left: Duration,
}

impl Pace {
    /// A full bucket.
    #[must_use]
    pub fn new(patience: Patience) -> Self {
        let left = patience.stall_timeout.unwrap_or(Duration::MAX);
        Self { patience, left }
    }

    /// Adds time for taking this many bytes, which were just handed to the peer.
    pub fn handed(&mut self, bytes: u64) {
        let Some(full) = self.patience.stall_timeout.filter(|_| bytes > 0) else {
            return;
        };
        self.left = match self.time_for(bytes) {
            None => full,
            Some(time) => self.left.min(full).saturating_add(time),
        };
    }

    /// Adds time for this many bytes, which just came from the peer.
    pub fn came(&mut self, bytes: u64) {
        let Some(full) = self.patience.stall_timeout.filter(|_| bytes > 0) else {
            return;
        };
        let time = self.time_for(bytes).unwrap_or(full);
        self.left = self.left.saturating_add(time).min(full);
    }

    /// Counts time in which the peer was waited for. Returns true if its time is over.
    pub fn waited(&mut self, time: Duration) -> bool {
        if let Some(full) = self.patience.stall_timeout {
            let credit = self.time_for(CREDIT_BYTES_MAX).unwrap_or_default();
            self.left = self.left.saturating_sub(time).min(full + credit);
        }
        self.left.is_zero()
    }

    /// Counts time in which the peer was not waited for.
    pub fn rested(&mut self, time: Duration) {
        if let Some(full) = self.patience.stall_timeout {
            self.left = self.left.max(self.left.saturating_add(time).min(full));
        }
    }

    /// The time the peer may still be waited for; [`Duration::MAX`] for any time.
    #[must_use]
    pub const fn left(&self) -> Duration {
        self.left
    }

    /// The time that `bytes` earn; none if any rate will do.
    fn time_for(&self, bytes: u64) -> Option<Duration> {
        // Far more bytes than anything is handed at a time.
        let micros = bytes.min(1 << 40) * 1_000_000;
        micros
            .checked_div(self.patience.rate_min)
            .map(Duration::from_micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn pace(rate_min: u64) -> Pace {
        Pace::new(Patience {
            stall_timeout: Some(30 * SECOND),
            rate_min,
        })
    }

    /// The seconds after which a peer that takes `bytes` every `period` seconds is given up.
    fn given_up_after(rate_min: u64, bytes: u64, period: u32) -> Option<u32> {
        let mut pace = pace(rate_min);
        (1..100_000).find(|second| {
            if second % period == 0 {
                pace.handed(bytes);
            }
            pace.waited(SECOND)
        })
    }

    #[test]
    fn a_peer_that_takes_nothing_has_the_timeout_and_what_its_bytes_need() {
        assert_eq!(given_up_after(1024, 0, 1), Some(30));
        let mut pace = pace(1024);
        pace.handed(16 << 10);
        assert_eq!(pace.left(), 46 * SECOND);
        pace.handed(1 << 30);
        assert!(!pace.waited(SECOND));
        assert_eq!(pace.left(), 62 * SECOND, "however much the system took");
    }

    #[test]
    fn a_peer_above_the_rate_is_never_given_up_and_one_below_it_is() {
        assert_eq!(given_up_after(1024, 16 << 10, 16), None);
        assert_eq!(given_up_after(1024, 1024, 1), None);
        assert_eq!(given_up_after(1 << 20, 1 << 20, 1), None);
        assert_eq!(given_up_after(1 << 20, 8 << 20, 8), None);
        assert_eq!(given_up_after(1024, 1, 4), Some(31));
        assert_eq!(given_up_after(1024, 512, 1), Some(60));
        assert_eq!(given_up_after(0, 1, 4), None, "any rate will do");
    }

    #[test]
    fn a_peer_that_was_slow_for_a_while_has_its_time_again_once_nothing_is_left_to_take() {
        let mut pace = pace(1024);
        assert!(!pace.waited(29 * SECOND));
        pace.rested(10 * SECOND);
        assert_eq!(pace.left(), 11 * SECOND);
        pace.rested(3_600 * SECOND);
        assert_eq!(pace.left(), 30 * SECOND);
        pace.came(1 << 20);
        assert_eq!(pace.left(), 30 * SECOND, "what came is no time in advance");
    }

    #[test]
    fn without_a_timeout_no_client_is_given_up() {
        let mut pace = Pace::new(Patience {
            stall_timeout: None,
            rate_min: 1024,
        });
        assert!(!pace.waited(1_000_000 * SECOND));
        pace.handed(1);
        pace.came(1);
        pace.rested(SECOND);
        assert_eq!(pace.left(), Duration::MAX);
    }
}
