//! The slots that a request holds while it is served.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, StatusCode};
use ratekeeper_core::Micros;
use ratekeeper_shed::{Class, Ending, FleetCell, GatePlace, RoundTrip};

use super::{Shed, ShedContext, Shedder, Site};

/// The gRPC status `UNAVAILABLE`, in the head of an answer that has no messages.
const UNAVAILABLE: &[u8] = b"14";

/// The load that the end of a request tells of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadSign {
    /// Its ending, and the time until it.
    RoundTrip(Ending),
    /// Its ending alone: the length of a call that may stream says nothing.
    Untimed(Ending),
}

impl LoadSign {
    /// The ending of a request that was answered: dropped if the service could not keep up.
    #[must_use]
    pub fn ending(status: StatusCode, headers: &HeaderMap) -> Ending {
        let is_overload = matches!(
            status,
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT
        );
        let grpc = headers.get("grpc-status");
        match is_overload || grpc.is_some_and(|it| it.as_bytes() == UNAVAILABLE) {
            true => Ending::Dropped,
            false => Ending::Answered,
        }
    }
}

/// A request that was not shed, until its answer begins. Dropped before that, it gives no sample, unless it is said that its
/// client [has given up](Self::given_up).
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
    cell: FleetCell,
}

/// A place at the gate of a site.
#[derive(Debug)]
struct Slot {
    shedder: Arc<Shedder>,
    site: Arc<Site>,
    place: GatePlace,
    /// The time at which the service could begin with it; None if the time until its answer says nothing.
    begun: Option<Instant>,
    sign: Option<LoadSign>,
}

impl Passage {
    pub(super) fn new(shedder: &Arc<Shedder>, context: &ShedContext) -> Self {
        let class = context.class;
        let cell = shedder.fleet.begin(class);
        Self {
            deadline: context.deadline,
            is_enforced: context.rules.is_enforced(),
            slot: None,
            in_flight: InFlight {
                shedder: Arc::clone(shedder),
                class,
                cell,
            },
        }
    }

    pub(super) fn take(&mut self, site: &Arc<Site>, place: GatePlace, begun: Instant) {
        self.slot = Some(Slot {
            shedder: Arc::clone(&self.in_flight.shedder),
            site: Arc::clone(site),
            place,
            begun: Some(begun),
            sign: None,
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
        let InFlight { shedder, class, .. } = &self.in_flight;
        shedder.record(by, *class);
        by
    }

    /// Returns true if the client has given up by now.
    #[must_use]
    pub fn is_late(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// Records the time at which the service had the whole request and could begin with it, if that was after it was admitted.
    /// None if the time until its answer says nothing about load from now on: of calls that may stream, and of requests whose
    /// body was not there when they were answered.
    pub fn begun(&mut self, at: Option<Instant>) {
        if let Some(slot) = &mut self.slot {
            slot.begun = slot.begun.and(at);
        }
    }

    /// Records that the client has given up, though the service may still work on its request: the answer would have taken at
    /// least until now. Its place stays taken until this is dropped.
    pub fn given_up(&mut self) {
        if let Some(slot) = &self.slot
            && let Some(begun) = slot.begun
        {
            let (gate, now) = (&slot.site.gate, slot.shedder.now());
            gate.give_up(now, slot.place, Micros::from(begun.elapsed()));
        }
    }

    /// Records that the answer has begun, or that there is none. None for an ending that says nothing about load, as of
    /// an upgrade.
    #[must_use = "the request is in flight until this is dropped"]
    pub fn answered(mut self, sign: Option<LoadSign>) -> InFlight {
        if let Some(slot) = &mut self.slot {
            slot.sign = sign;
        }
        self.in_flight
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (gate, now) = (&self.site.gate, self.shedder.now());
        let round_trip = match (self.sign, self.begun) {
            (Some(LoadSign::RoundTrip(ending)), Some(begun)) => Some(RoundTrip {
                took: Micros::from(begun.elapsed()),
                in_flight: self.place.in_flight,
                ending,
            }),
            (Some(LoadSign::Untimed(ending) | LoadSign::RoundTrip(ending)), _) => {
                return gate.leave_untimed(now, self.place, ending);
            }
            (None, _) => None,
        };
        gate.leave(now, round_trip);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.shedder.fleet.end(self.cell);
    }
}
