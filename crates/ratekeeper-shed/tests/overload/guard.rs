//! Protections of an upstream.

use ratekeeper_core::Timestamp;
use ratekeeper_shed::{
    AdaptiveBounds, Class, ClassCount, Effect, Ending, Gate, Round, RoundTrip, WorkerShedder,
    WorkerTerms, mix,
};

use crate::peers::Limit;

pub(crate) const CLASSES: ClassCount = ClassCount::new(4);

pub(crate) trait Guard {
    /// Lets a request in, and returns the number in flight with it; None to refuse it.
    fn enter(&mut self, now: Timestamp, class: Class, tenant: u64) -> Option<u32>;
    fn leave(&mut self, now: Timestamp, round_trip: RoundTrip);
}

/// No protection.
#[derive(Default)]
pub(crate) struct Open(u32);

impl Guard for Open {
    fn enter(&mut self, _: Timestamp, _: Class, _: u64) -> Option<u32> {
        self.0 += 1;
        Some(self.0)
    }

    fn leave(&mut self, _: Timestamp, _: RoundTrip) {
        self.0 -= 1;
    }
}

/// A published concurrency limit.
#[derive(Default)]
pub(crate) struct Peer<L> {
    limit: L,
    in_flight: u32,
}

impl<L: Limit> Guard for Peer<L> {
    fn enter(&mut self, _: Timestamp, _: Class, _: u64) -> Option<u32> {
        if self.in_flight >= self.limit.limit() {
            return None;
        }
        self.in_flight += 1;
        Some(self.in_flight)
    }

    fn leave(&mut self, now: Timestamp, round_trip: RoundTrip) {
        self.in_flight -= 1;
        // They know of no clients that give up.
        if round_trip.ending != Ending::GivenUp {
            self.limit.on_sample(now, round_trip);
        }
    }
}

/// Ours: the worker shedder, then the gate, exactly as the gateway has them.
pub(crate) struct Ours {
    workers: WorkerShedder,
    pub(crate) gate: Gate,
}

impl Default for Ours {
    fn default() -> Self {
        Self {
            workers: WorkerShedder::default(),
            gate: Gate::new(AdaptiveBounds { min: 1, max: 1_000 }),
        }
    }
}

impl Guard for Ours {
    fn enter(&mut self, now: Timestamp, class: Class, tenant: u64) -> Option<u32> {
        if self.workers.is_due(now) {
            let utilisation = self.gate.take_utilisation(Effect::Enforced);
            self.workers
                .on_sample(now, WorkerTerms::default(), utilisation, Effect::Enforced);
        }
        let judged = self
            .workers
            .judge(Round::at(now), class, CLASSES, mix(tenant));
        if judged.is_shed {
            return None;
        }
        Some(self.gate.enter(class, CLASSES, judged.share)?.in_flight)
    }

    fn leave(&mut self, now: Timestamp, round_trip: RoundTrip) {
        self.gate.leave(now, Some(round_trip));
    }
}

/// Ours in shadow mode, and on after that many seconds.
#[derive(Default)]
pub(crate) struct ShadowFirst {
    ours: Ours,
}

/// The time at which it is switched on.
const ON_FROM: Timestamp = Timestamp::from_secs(25);

impl Guard for ShadowFirst {
    fn enter(&mut self, now: Timestamp, class: Class, tenant: u64) -> Option<u32> {
        if now >= ON_FROM {
            return self.ours.enter(now, class, tenant);
        }
        let Ours { workers, gate } = &self.ours;
        if workers.is_due(now) {
            let utilisation = gate.take_utilisation(Effect::Shadow);
            workers.on_sample(now, WorkerTerms::default(), utilisation, Effect::Shadow);
        }
        let judged = workers.judge(Round::at(now), class, CLASSES, mix(tenant));
        Some(gate.pass(class, CLASSES, judged.share).0.in_flight)
    }

    fn leave(&mut self, now: Timestamp, round_trip: RoundTrip) {
        self.ours.leave(now, round_trip);
    }
}
