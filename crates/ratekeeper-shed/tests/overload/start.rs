//! The first seconds of a healthy upstream, which answers everything equally fast.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_shed::{
    AdaptiveBounds, Class, Effect, Ending, Gate, GatePlace, Round, RoundTrip, WorkerShedder,
    WorkerTerms, mix,
};

use crate::guard::CLASSES;

/// Clients that ask again as soon as they have an answer: twice as many as the limit begins with.
const CLIENTS: u64 = 40;
const ROUND_TRIP: Micros = Micros::from_millis(100);
const SECONDS: usize = 10;
const BOUNDS: AdaptiveBounds = AdaptiveBounds { min: 1, max: 1_000 };

/// The shedders that are on.
#[derive(Clone, Copy)]
enum On {
    Workers,
    Adaptive,
    Both,
}

/// The calls that the upstream gets.
#[derive(Clone, Copy)]
enum Calls {
    Plain,
    /// Their length says nothing about load.
    Streams,
}

struct Gateway {
    on: On,
    calls: Calls,
    workers: WorkerShedder,
    gate: Gate,
}

impl Gateway {
    fn new(on: On, calls: Calls) -> Self {
        let (workers, gate) = (WorkerShedder::default(), Gate::new(BOUNDS));
        Self {
            on,
            calls,
            workers,
            gate,
        }
    }

    /// The requests in flight with this one; None if it is refused.
    fn enter(&self, now: Timestamp, client: u64) -> Option<u32> {
        let class = Class::new(1);
        if self.workers.is_due(now) {
            let utilisation = self.gate.take_utilisation(Effect::Enforced);
            self.workers
                .on_sample(now, WorkerTerms::default(), utilisation, Effect::Enforced);
        }
        let judged = self
            .workers
            .judge(Round::at(now), class, CLASSES, mix(client));
        if judged.is_shed && !matches!(self.on, On::Adaptive) {
            return None;
        }
        let place = match self.on {
            On::Workers => Some(self.gate.pass(class, CLASSES, judged.share).0),
            On::Adaptive | On::Both => self.gate.enter(class, CLASSES, judged.share),
        };
        place.map(|place| place.in_flight)
    }

    fn leave(&self, now: Timestamp, in_flight: u32) {
        let ending = Ending::Answered;
        match self.calls {
            Calls::Streams => {
                self.gate
                    .leave_untimed(now, GatePlace { in_flight }, ending);
            }
            Calls::Plain => {
                let round_trip = RoundTrip {
                    took: ROUND_TRIP,
                    in_flight,
                    ending,
                };
                self.gate.leave(now, Some(round_trip));
            }
        }
    }

    /// The requests that are refused in each second.
    fn refused(&self) -> [u32; SECONDS] {
        let mut refused = [0; SECONDS];
        let spread = |client| (client * ROUND_TRIP.get() / CLIENTS, client, None);
        let mut events: BinaryHeap<_> = (0..CLIENTS).map(spread).map(Reverse).collect();
        while let Some(Reverse((at, client, place))) = events.pop() {
            let second = usize::try_from(at / 1_000_000).expect("few seconds");
            if second >= SECONDS {
                continue;
            }
            let now = Timestamp::from_micros(at);
            if let Some(in_flight) = place {
                self.leave(now, in_flight);
            }
            let place = self.enter(now, client);
            refused[second] += u32::from(place.is_none());
            events.push(Reverse((at + ROUND_TRIP.get(), client, place)));
        }
        refused
    }
}

#[test]
fn workers_alone_refuse_nothing_that_a_healthy_upstream_can_take() {
    for calls in [Calls::Plain, Calls::Streams] {
        let refused = Gateway::new(On::Workers, calls).refused();
        assert_eq!(refused, [0; SECONDS]);
    }
}

#[test]
fn a_limit_grows_to_what_a_healthy_upstream_can_take() {
    for calls in [Calls::Plain, Calls::Streams] {
        for on in [On::Adaptive, On::Both] {
            let refused = Gateway::new(on, calls).refused();

            assert_eq!(refused[SETTLED..], [0; SECONDS - SETTLED], "{refused:?}");
        }
    }
}

/// Seconds that a limit needs to settle, as docs/shedders.md says.
const SETTLED: usize = 2;
