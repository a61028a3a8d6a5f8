//! The fleet-usage shedder: keeps a share of the fleet for critical requests.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::{CLASSES_MAX, Class, ClassCount};

/// The cells in which requests in flight are counted: some more than classes, for those of former rules.
pub const FLEET_CELLS: usize = 4 * CLASSES_MAX;

/// The size of a fleet, and the share that is kept for critical requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FleetTerms {
    /// The requests that the whole fleet can work on at a time.
    pub capacity: u32,
    /// The part of it, in percent, that only the most important class may use.
    pub reserve_percent: u8,
}

impl FleetTerms {
    /// The requests of all classes but the most important one that may be in flight in the fleet, at least 1.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most the capacity")]
    pub const fn shared(self) -> u32 {
        let percent = 100_u64.saturating_sub(self.reserve_percent as u64);
        let shared = (self.capacity as u64 * percent / 100) as u32;
        if shared == 0 { 1 } else { shared }
    }
}

/// The requests in flight in a fleet: those of this node, and the latest known number of the others.
///
/// The fleet-usage load shedder of Stripe ("Scaling your API with rate limiters", 2017): non-critical requests are
/// refused while they use more than the share of the fleet that is not reserved; critical ones always pass. Stripe
/// keeps one counter in Redis, which every request changes. Here each node knows its own requests at once and those
/// of the others by report, so the error is at most what begins on the other nodes between two reports, and no key is
/// hot.
///
/// While reports fail, a node goes on with the share that it had, and says so.
///
/// Each class counts in a cell, which a request leaves as it found it. So one that lasts longer than the order of the
/// classes counts as what it was, if its class has the same cell in the new order.
#[derive(Debug)]
pub struct FleetUsage {
    in_flight: [AtomicU32; FLEET_CELLS],
    /// The cell of each class.
    cells: [AtomicU8; CLASSES_MAX],
    /// The requests of all classes but the most important one that other nodes had in flight.
    others: AtomicU32,
    is_stale: AtomicBool,
}

/// The cell of [`FleetUsage`] in which a request counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FleetCell(u8);

impl FleetCell {
    /// The cell with this number, the last one for those beyond it.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "there are few")]
    pub const fn new(number: usize) -> Self {
        match number < FLEET_CELLS {
            true => Self(number as u8),
            false => Self(FLEET_CELLS as u8 - 1),
        }
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Default for FleetUsage {
    fn default() -> Self {
        Self {
            in_flight: std::array::from_fn(|_| AtomicU32::new(0)),
            cells: std::array::from_fn(|class| AtomicU8::new(FleetCell::new(class).0)),
            others: AtomicU32::new(0),
            is_stale: AtomicBool::new(false),
        }
    }
}

// Relaxed everywhere: the numbers are independent, and a request more or less does no harm.
impl FleetUsage {
    /// Returns true if a request of `class` may pass.
    #[must_use]
    pub fn admits(&self, class: Class, classes: ClassCount, terms: FleetTerms) -> bool {
        if classes.is_top(class) {
            return true;
        }
        let own = self.own(classes);
        let others = self.others();
        // At least one at a time passes on every node, so that none starves by old reports.
        own == 0 || own.saturating_add(others) < terms.shared()
    }

    /// Records the beginning of a request, and returns where it counts.
    pub fn begin(&self, class: Class) -> FleetCell {
        let cell = self.cell_of(class.index());
        self.in_flight[cell.index()].fetch_add(1, Ordering::Relaxed);
        cell
    }

    /// Records its end.
    pub fn end(&self, cell: FleetCell) {
        self.in_flight[cell.index()].fetch_sub(1, Ordering::Relaxed);
    }

    fn cell_of(&self, index: usize) -> FleetCell {
        let cell = self.cells.get(index);
        cell.map_or(FleetCell::new(FLEET_CELLS), |cell| {
            FleetCell(cell.load(Ordering::Relaxed))
        })
    }

    /// Gives each class a cell, the least important first.
    pub fn set_cells(&self, cells: &[FleetCell]) {
        for (place, cell) in self.cells.iter().zip(cells) {
            place.store(cell.0, Ordering::Relaxed);
        }
    }

    /// The requests that count in a cell.
    #[must_use]
    pub fn in_cell(&self, cell: FleetCell) -> u32 {
        self.in_flight[cell.index()].load(Ordering::Relaxed)
    }

    /// The requests of the class at `index` that are in flight on this node.
    #[must_use]
    pub fn in_flight_of(&self, index: usize) -> u32 {
        self.in_cell(self.cell_of(index))
    }

    /// The requests of all classes but the most important one that are in flight on this node.
    #[must_use]
    pub fn own(&self, classes: ClassCount) -> u32 {
        let lower = 0..classes.top().index();
        lower.map(|index| self.in_flight_of(index)).sum()
    }

    /// The same of all other nodes, by their last report.
    #[must_use]
    pub fn others(&self) -> u32 {
        self.others.load(Ordering::Relaxed)
    }

    /// Records a report: the requests of all classes but the most important one in flight on all other nodes. None if
    /// it could not be had: the last one stays in force.
    pub fn on_report(&self, others: Option<u32>) {
        if let Some(others) = others {
            self.others.store(others, Ordering::Relaxed);
        }
        self.is_stale.store(others.is_none(), Ordering::Relaxed);
    }

    /// Returns true if the last report failed, so that an earlier one is in force.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: ClassCount = ClassCount::new(2);
    const TERMS: FleetTerms = FleetTerms {
        capacity: 10,
        reserve_percent: 20,
    };
    const LOW: Class = Class::new(0);
    const CRITICAL: Class = Class::new(1);

    #[test]
    fn a_fifth_stays_free_for_critical_requests() {
        let usage = FleetUsage::default();
        for _ in 0..8 {
            assert!(usage.admits(LOW, CLASSES, TERMS));
            usage.begin(LOW);
        }
        assert!(!usage.admits(LOW, CLASSES, TERMS));
        assert!(usage.admits(CRITICAL, CLASSES, TERMS));
        usage.begin(CRITICAL);
        usage.end(FleetCell::new(0));
        assert!(usage.admits(LOW, CLASSES, TERMS));
    }

    #[test]
    fn the_last_report_stays_in_force_while_none_comes() {
        let usage = FleetUsage::default();
        usage.on_report(Some(7));
        usage.begin(LOW);
        assert!(!usage.admits(LOW, CLASSES, TERMS));
        usage.on_report(None);
        assert!(usage.is_stale());
        assert!(!usage.admits(LOW, CLASSES, TERMS));
        usage.on_report(Some(0));
        assert!(!usage.is_stale());
        assert!(usage.admits(LOW, CLASSES, TERMS));
    }

    #[test]
    fn no_report_stops_a_node_altogether() {
        let usage = FleetUsage::default();
        usage.on_report(Some(u32::MAX));
        usage.on_report(None);
        assert!(usage.admits(LOW, CLASSES, TERMS));
        let cell = usage.begin(LOW);
        assert!(!usage.admits(LOW, CLASSES, TERMS));
        usage.end(cell);
        assert!(usage.admits(LOW, CLASSES, TERMS));
    }

    #[test]
    fn nothing_of_a_reserve_of_all_is_left_but_one() {
        let terms = FleetTerms {
            capacity: 10,
            reserve_percent: 100,
        };
        assert_eq!(terms.shared(), 1);
    }
}
