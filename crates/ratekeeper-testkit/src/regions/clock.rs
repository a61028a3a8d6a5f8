//! The clocks of a region: that of its store, and the boot clock of its nodes.

use ratekeeper_core::{Micros, Timestamp};

/// The time of all stores when a world begins, so that a step back leads to no time before 1970.
const START: i64 = 1_000_000_000;

/// Microseconds of true time, read by clocks that drift.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    /// Microseconds by which the store's clock is ahead.
    pub(super) offset: i64,
    /// Parts in a million.
    pub(super) drift: i64,
    pub(super) boot_drift: i64,
}

impl Clock {
    /// The time of the store.
    pub(super) fn now(&self, time: u64) -> Timestamp {
        Timestamp::from_micros((START + drifted(time, self.drift) + self.offset).unsigned_abs())
    }

    /// The time of the nodes' boot clock.
    pub(super) fn boot(&self, time: u64) -> Micros {
        Micros::new(drifted(time, self.boot_drift).unsigned_abs())
    }
}

/// Worlds last seconds, so this is far from any overflow.
fn drifted(time: u64, parts: i64) -> i64 {
    let time = time.cast_signed();
    time + time * parts / 1_000_000
}
