//! Round-trip times to a server, judged against the deadline.

use std::time::Duration;

/// The number of round trips remembered.
const REMEMBERED: usize = 10;

/// The last round trips. The fastest of them counts: a slow one may be due to this node's own load,
/// but the fastest is the distance.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    last: [Option<Duration>; REMEMBERED],
    next: usize,
    is_bad: bool,
}

/// The verdict on the last round trips.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// The same as last time.
    Unchanged,
    /// The fastest fits the deadline again.
    Good(Duration),
    /// The fastest takes too large a part of the deadline.
    Bad(Duration),
}

impl RoundTrips {
    pub(super) fn add(&mut self, took: Duration) {
        self.last[self.next] = Some(took);
        self.next = (self.next + 1) % REMEMBERED;
    }

    /// Judges if the fastest fits `deadline`: at most a quarter of it. One that was too long fits
    /// again at a fifth, so that nothing is logged about one that hovers there.
    pub(super) fn judge(&mut self, deadline: Duration) -> Fit {
        let Some(fastest) = self.last.iter().flatten().min().copied() else {
            return Fit::Unchanged;
        };
        let most = if self.is_bad {
            deadline / 5
        } else {
            deadline / 4
        };
        let is_bad = fastest > most;
        if is_bad == std::mem::replace(&mut self.is_bad, is_bad) {
            return Fit::Unchanged;
        }
        match is_bad {
            true => Fit::Bad(fastest),
            false => Fit::Good(fastest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const DEADLINE: Duration = Duration::from_millis(20);

    #[test]
    fn the_fastest_counts_and_a_change_is_told_once() {
        let mut trips = RoundTrips::default();
        assert_eq!(trips.judge(DEADLINE), Fit::Unchanged);
        trips.add(MS);
        trips.add(100 * MS);
        assert_eq!(trips.judge(DEADLINE), Fit::Unchanged);
        for _ in 0..REMEMBERED - 1 {
            assert_eq!(trips.judge(DEADLINE), Fit::Unchanged);
            trips.add(6 * MS);
        }
        assert_eq!(trips.judge(DEADLINE), Fit::Bad(6 * MS));
        assert_eq!(trips.judge(DEADLINE), Fit::Unchanged);
        trips.add(DEADLINE * 9 / 40);
        assert_eq!(trips.judge(DEADLINE), Fit::Unchanged, "it hovers");
        trips.add(4 * MS);
        assert_eq!(trips.judge(DEADLINE), Fit::Good(4 * MS));
    }
}
