//! The pause before the next attempt.

use std::time::Duration;

/// The first pause, on average a quarter less.
const FIRST: Duration = Duration::from_millis(500);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses that double, each shortened at random by up to a half: nodes that lost the same server do not return together.
#[derive(Debug)]
pub(crate) struct Backoff {
    attempts: u32,
    longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self::up_to(LONGEST)
    }
}

impl Backoff {
    /// Pauses that grow to `longest`.
    pub(crate) const fn up_to(longest: Duration) -> Self {
        Self {
            attempts: 0,
            longest,
        }
    }

    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let longest = FIRST
            .saturating_mul(1 << self.attempts.min(16))
            .min(self.longest);
        self.attempts = self.attempts.saturating_add(1);
        longest.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Begins again with the first pause, after a success.
    pub(crate) const fn reset(&mut self) {
        self.attempts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_again() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..100).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses[1] >= FIRST && pauses[1] <= FIRST * 2);
        assert!(pauses[99] >= LONGEST / 2 && pauses[99] <= LONGEST);
        backoff.reset();
        assert!(backoff.next() <= FIRST);
        let mut short = Backoff::up_to(FIRST * 2);
        assert!((0..100).all(|_| short.next() <= FIRST * 2));
    }
}
