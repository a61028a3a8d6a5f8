//! The pauses between tries.

use std::time::Duration;

/// The first pause.
const FIRST: Duration = Duration::from_millis(200);

/// The longest pause.
const LONGEST: Duration = Duration::from_secs(15);

/// The pauses between tries: each is twice the one before, up to a bound, give or take a quarter, so that nodes do not
/// try all at once.
#[derive(Debug)]
pub(crate) struct Pause(Duration);

impl Default for Pause {
    fn default() -> Self {
        Self(FIRST)
    }
}

impl Pause {
    /// The next pause.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.0.mul_f64(0.75 + fastrand::f64() / 2.0);
        self.0 = (self.0 * 2).min(LONGEST);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let mut pause = Pause::default();
        assert!(pause.next() <= FIRST * 5 / 4);
        let later: Vec<_> = (0..20).map(|_| pause.next()).collect();
        let last = later.last().copied().unwrap_or_default();
        assert!(
            last >= LONGEST * 3 / 4 && last <= LONGEST * 5 / 4,
            "{later:?}"
        );
    }
}
