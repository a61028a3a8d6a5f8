//! The share of requests that an upstream refuses whatever its load.

use super::window::Window;
use super::{BASELINE_WEIGHT, SIGNIFICANCE};

/// The share of drops that is taken for the upstream's ordinary rate of errors.
const TOLERATED: f64 = 0.02;
/// The multiple of the usual share that is tolerated besides, and the standard deviations on top of it: chance makes it vary.
const VARIES: f64 = 1.5;
const DEVIATIONS: f64 = 2.0;
/// The largest share that may be usual. Above it an upstream is away, or overloaded even with little in flight.
const USUAL_MAX: f64 = 0.25;

/// The share of drops while little is in flight: some paths answer 503 at once, whatever the load.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsualDrops(f64);

impl UsualDrops {
    pub(super) const NONE: Self = Self(0.0);

    /// Learns from a window, in which little was in flight and nothing hints at a queue if `is_calm`. One with fewer
    /// drops than chance explains counts in any case.
    pub(super) fn learn(&mut self, window: &Window, is_calm: bool) {
        let share = window.share_dropped();
        let is_more = is_calm && share > self.0 && share <= USUAL_MAX;
        if is_more || share < self.0 - SIGNIFICANCE * self.deviation(window) {
            self.0 += (share - self.0) * BASELINE_WEIGHT;
        }
    }

    /// The standard deviation of the share in such a window.
    fn deviation(self, window: &Window) -> f64 {
        (self.0 * (1.0 - self.0) / f64::from(window.samples().max(1))).sqrt()
    }

    /// Returns true if more requests were dropped than usual.
    pub(super) fn are_exceeded(self, window: &Window) -> bool {
        let usual = VARIES * self.0 + DEVIATIONS * self.deviation(window);
        window.share_dropped() > TOLERATED + usual
    }
}

impl Window {
    /// Returns true if so many requests took long before they were dropped that it is no ordinary rate of errors.
    pub(super) fn has_timeouts(&self) -> bool {
        f64::from(self.timed_out) > TOLERATED * f64::from(self.samples())
    }

    /// Returns true if more were dropped than may be usual.
    pub(super) fn is_away(&self) -> bool {
        self.share_dropped() > USUAL_MAX
    }

    fn share_dropped(&self) -> f64 {
        f64::from(self.dropped) / f64::from(self.samples().max(1))
    }
}
