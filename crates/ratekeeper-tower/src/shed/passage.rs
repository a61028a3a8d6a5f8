//! The slots that a request holds while it is served.

use std::sync::Arc;
use std::time::Instant;

use ratekeeper_core::Micros;
use ratekeeper_shed::{Class, Ending, GatePlace, RoundTrip};

use super::{Shedder, Site};

/// A request that was not shed, until its answer begins. Dropped before that, it gives no sample: its client has gone.
#[derive(Debug)]
pub struct Passage {
    slot: Option<Slot>,
    in_flight: InFlight,
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
    pub(super) fn new(shedder: &Arc<Shedder>, class: Class) -> Self {
        shedder.fleet.begin(class);
        Self {
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

    /// Notes that the answer has begun, or that there is none. None for an ending that says nothing about load, as of a stream or
    /// an upgrade.
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
