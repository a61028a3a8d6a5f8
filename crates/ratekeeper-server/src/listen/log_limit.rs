//! Limits log lines that a peer can cause at any rate.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The shortest time between two lines.
const SILENCE: Duration = Duration::from_secs(60);

/// One kind of log line.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<Option<Instant>>);

impl LogLimit {
    /// Returns true if a line is due; then none is due for a while.
    pub(crate) fn may_say(&self) -> bool {
        self.may_say_at(Instant::now())
    }

    fn may_say_at(&self, now: Instant) -> bool {
        let mut said = self.0.lock();
        let may = said.is_none_or(|said| now.saturating_duration_since(said) >= SILENCE);
        if may {
            *said = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_said_once_in_a_while() {
        let (quiet, now) = (LogLimit::default(), Instant::now());
        assert!(quiet.may_say_at(now));
        assert!(!quiet.may_say_at(now + SILENCE / 2));
        assert!(quiet.may_say_at(now + SILENCE));
        assert!(!quiet.may_say_at(now + SILENCE));
    }
}
