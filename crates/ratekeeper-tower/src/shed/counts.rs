//! The counts of a shedder.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_rules::ShedRules;
use ratekeeper_shed::CLASSES_MAX;

use super::Shed;

/// The counts of a [`Shedder`](crate::Shedder) since it was made, by class.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShedCounts {
    /// The rules in force when it was last asked; the default ones before that.
    pub rules: Arc<ShedRules>,
    /// Shed requests by shedder and class.
    pub shed: [(Shed, [u64; CLASSES_MAX]); 5],
    /// Requests that would have been shed outside shadow mode.
    pub shadow: [(Shed, [u64; CLASSES_MAX]); 5],
    /// Requests in flight.
    pub in_flight: [u32; CLASSES_MAX],
}

/// The usage of a fleet by requests that are not critical.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct FleetState {
    /// Requests in flight on this node.
    pub own: u32,
    /// Requests in flight on all other nodes, by their last report.
    pub others: u32,
    /// True if that report is old, because newer ones could not be had.
    pub is_stale: bool,
}

/// The state of the controllers of a [`Site`](crate::Site).
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct SiteState {
    /// The adaptive limit.
    pub limit: u32,
    /// Requests in flight.
    pub in_flight: u32,
    /// The round trip at low concurrency; zero while unknown.
    pub unloaded: Duration,
    /// The average round trip in the last window; zero while unknown.
    pub average: Duration,
    /// Work asked for as a part of the limit.
    pub utilisation: f64,
    /// The part of the requests that the worker-utilisation controller wants shed: 0 to 1.
    pub share_shed: f64,
}

/// The treatment of a class by the shedders of a [`Site`](crate::Site).
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct ClassState {
    /// The adaptive limit for requests of this class.
    pub limit: u32,
    /// The part of the class that the worker-utilisation shedder sheds: 0 to 1.
    pub part_shed: f64,
}

/// Counts by shedder and class.
#[derive(Debug, Default)]
pub(super) struct Tallies([[AtomicU64; CLASSES_MAX]; 5]);

// Relaxed: the counts are independent.
impl Tallies {
    pub(super) fn record(&self, by: Shed, class: usize) {
        self.0[by as usize][class].fetch_add(1, Ordering::Relaxed);
    }

    /// Moves the count of each class to its new place; none for a class that is gone. A request that is counted meanwhile may be
    /// counted in its former place.
    pub(super) fn move_classes(&self, places: &[Option<usize>]) {
        for row in &self.0 {
            let counts: Vec<_> = row.iter().map(|it| it.swap(0, Ordering::Relaxed)).collect();
            for (count, place) in counts.into_iter().zip(places) {
                if let Some(place) = place {
                    row[*place].fetch_add(count, Ordering::Relaxed);
                }
            }
        }
    }

    pub(super) fn read(&self) -> [(Shed, [u64; CLASSES_MAX]); 5] {
        let row = |by: Shed| {
            let count = |class: usize| self.0[by as usize][class].load(Ordering::Relaxed);
            (by, std::array::from_fn(count))
        };
        Shed::ALL.map(row)
    }
}
