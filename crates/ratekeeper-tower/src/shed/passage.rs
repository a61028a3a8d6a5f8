//! The slots that a request holds while it is served.

use std::sync::Arc;
use std::time::Instant;

use ratekeeper_core::Micros;
use ratekeeper_shed::{Class, Ending, GatePlace, RoundTrip};

use super::{Shed, ShedContext, Shedder, Site};

/// A request that was not shed, until its answer begins. Dropped before that, it gives no sample: its client has gone.
#[derive(Debug)]
pub struct Passage {
    slot: Option<Slot>,
    in_flight: InFlight,
    deadline: Option<Instant>,
    /// True if a shedder is on, rather than in shadow mode.
    is_enforced: bool,
}

/// A request in flight, until its answer has ended.
#[derive(Debug)]
pub struct InFlight {
    shedder: Arc<Shedder>,
    class: Class,
}

/// A place at the gate of a site.
#[derive(Debug)]
struct Slot {
    shedder: Arc<Shedder>,
    site: Arc<Site>,
    place: GatePlace,
    begun: Instant,
    ending: Option<Ending>,
}

impl Passage {
    pub(super) fn new(shedder: &Arc<Shedder>, context: &ShedContext) -> Self {
        let class = context.class;
        shedder.fleet.begin(class);
        Self {
            deadline: context.deadline,
            is_enforced: context.rules.is_enforced(),
            slot: None,
            in_flight: InFlight {
                shedder: Arc::clone(shedder),
                class,
            },
        }
    }

    pub(super) fn take(&mut self, site: &Arc<Site>, place: GatePlace, begun: Instant) {
        self.slot = Some(Slot {
            shedder: Arc::clone(&self.in_flight.shedder),
            site: Arc::clone(site),
            place,
            begun,
            ending: None,
        });
    }

    /// Returns true if the request may be shed while it waits further in: if a shedder is on.
    #[must_use]
    pub const fn is_enforced(&self) -> bool {
        self.is_enforced
    }

    /// Sheds the request after all, because it waited too long further in; returns the answer's reason: its deadline
    /// if that has passed, else the queue.
    #[must_use]
    pub fn shed(self) -> Shed {
        let by = match self.is_late() {
            true => Shed::Deadline,
            false => Shed::Queue,
        };
        let InFlight { shedder, class } = &self.in_flight;
        shedder.record(by, *class);
        by
    }

    /// Returns true if the client has given up by now.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Records that the answer has begun, or that there is none. None for an ending that says nothing about load, as of
    /// a stream or an upgrade.
    #[must_use = "the request is in flight until this is dropped"]
    pub fn answered(mut self, ending: Option<Ending>) -> InFlight {
        if let Some(slot) = &mut self.slot {
            slot.ending = ending;
        }
        self.in_flight
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let round_trip = self.ending.map(|ending| RoundTrip {
            took: Micros::from(self.begun.elapsed()),
            in_flight: self.place.in_flight,
            ending,
        });
        self.site.gate.leave(self.shedder.now(), round_trip);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shedder.fleet.end(self.class);
    }
}
