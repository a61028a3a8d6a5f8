//! The node's clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Micros, Timestamp};

/// The most that one [`Clock::reanchor`] moves the clock back, in microseconds: called once a
/// second, that is 500 parts in a million, as NTP slews.
const SLEW_MAX_US: u64 = 500;

/// The wall time at start plus the time elapsed on the boot clock, which also runs while the
/// machine sleeps and cannot be set.
///
/// [`Self::reanchor`], called now and then, follows the wall clock: forward at once,
/// backward by small steps, so that no window is lived through twice.
#[derive(Debug)]
pub struct Clock {
    /// Wall time at boot, in microseconds.
    offset: AtomicU64,
}

impl Clock {
    /// A clock that shows the current wall time.
    #[must_use]
    pub fn new() -> Self {
        Self::not_before(Timestamp::EPOCH)
    }

    /// A clock that shows the current wall time, or goes on from `time` if that is later: where another process ended whose
    /// clock followed the wall backward, as this one does then.
    #[must_use]
    pub fn not_before(time: Timestamp) -> Self {
        let wall = wall_micros().max(time.as_micros());
        Self {
            offset: AtomicU64::new(wall.saturating_sub(boot_micros())),
        }
    }

    /// Returns the time, with one read of the system's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        // Relaxed: a check that sees the old anchor is as right as one that came just before.
        Timestamp::from_micros(boot_micros() + self.offset.load(Ordering::Relaxed))
    }

    /// The time by which this clock is ahead of the wall clock, which it then follows slowly.
    #[must_use]
    pub fn ahead(&self) -> Micros {
        let wall = Timestamp::from_micros(wall_micros());
        self.now().since(wall)
    }

    /// The time since the machine started, which no change of the wall clock moves.
    pub(crate) fn boot(&self) -> Micros {
        Micros::new(boot_micros())
    }

    /// Follows the wall clock; to be called about once a second.
    pub fn reanchor(&self) {
        self.follow(wall_micros(), boot_micros());
    }

    fn follow(&self, wall: u64, boot: u64) {
        let kept = self.offset.load(Ordering::Relaxed);
        let shown = boot + kept;
        let offset = if wall >= shown {
            wall.saturating_sub(boot)
        } else {
            kept.saturating_sub((shown - wall).min(SLEW_MAX_US))
        };
        self.offset.store(offset, Ordering::Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

fn wall_micros() -> u64 {
    let since_epoch = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(0)
}

fn boot_micros() -> u64 {
    ratekeeper_store::boot_time().get()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(clock: &Clock, boot: u64) -> u64 {
        boot + clock.offset.load(Ordering::Relaxed)
    }

    #[test]
    fn it_follows_the_wall_forward_at_once_and_backward_slowly() {
        let clock = Clock {
            offset: AtomicU64::new(1_000_000),
        };
        clock.follow(5_000_000, 100);
        assert_eq!(shown(&clock, 100), 5_000_000);
        clock.follow(4_000_000, 200);
        assert_eq!(shown(&clock, 200), 5_000_100 - SLEW_MAX_US);
        clock.follow(shown(&clock, 300) - 10, 300);
        assert_eq!(shown(&clock, 400), 5_000_300 - SLEW_MAX_US - 10);
    }

    #[test]
    fn it_goes_on_from_a_later_time_and_comes_back_slowly() {
        let wall = wall_micros();
        let saved_at = wall + 600_000_000;
        let clock = Clock::not_before(Timestamp::from_micros(saved_at));
        assert!(clock.now().as_micros() >= saved_at);
        clock.reanchor();
        assert!(clock.now().as_micros() >= saved_at - SLEW_MAX_US);
        // Nobody sets the wall clock by half of it meanwhile.
        let ahead = clock.ahead().get();
        assert!((300_000_000..=600_000_000).contains(&ahead), "{ahead}");
        let clock = Clock::not_before(Timestamp::from_micros(wall - 600_000_000));
        assert!(clock.now().as_micros() >= wall);
    }

    #[test]
    fn a_clock_that_is_behind_is_put_right() {
        let clock = Clock {
            offset: AtomicU64::new(0),
        };
        let before = wall_micros();
        clock.reanchor();
        assert!(clock.now().as_micros() >= before);
    }

    #[test]
    fn it_starts_at_wall_time() {
        let before = wall_micros();
        let now = Clock::new().now().as_micros();
        assert!(now >= before && now < before + 60_000_000, "{before} {now}");
    }
}
