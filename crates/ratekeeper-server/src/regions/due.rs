//! The counters that are looked at together: so many of those that are due, and those first that are due for longest.

use ratekeeper_core::Micros;
use ratekeeper_store::CounterKey;

/// The most counters that a node looks after.
pub(super) const COUNTERS_MAX: usize = 4_096;

/// The most counters that are looked at together.
pub(super) const DUE_MAX: usize = 512;

/// The time for which it is told that there were too many counters.
pub(super) const TOLD: Micros = Micros::from_secs(60);

/// A counter, after the time since when it is due.
pub(super) type Due = (Micros, CounterKey);

/// Splits off those of `due` that have to wait for others.
pub(super) fn split_first(mut due: Vec<Due>) -> (Vec<Due>, Vec<Due>) {
    if due.len() <= DUE_MAX {
        return (due, Vec::new());
    }
    due.select_nth_unstable(DUE_MAX);
    let waiting = due.split_off(DUE_MAX);
    (due, waiting)
}
