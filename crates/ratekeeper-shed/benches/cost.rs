#![allow(
    clippy::cast_lossless,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "figures of tests are small"
)]

//! The cost of a request with all layers on: `cargo bench -p ratekeeper-shed`.

use std::hint::black_box;
use std::time::Instant;

use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_shed::{
    AdaptiveBounds, Class, ClassCount, Effect, Ending, FleetTerms, FleetUsage, Gate, Round,
    RoundTrip, WorkerShedder, WorkerTerms, mix,
};

const CLASSES: ClassCount = ClassCount::new(4);
const REQUESTS: u64 = 2_000_000;
const TERMS: FleetTerms = FleetTerms {
    capacity: 1_000,
    reserve_percent: 20,
};

struct Layers {
    fleet: FleetUsage,
    workers: WorkerShedder,
    gate: Gate,
}

impl Layers {
    /// Takes a request through all layers; it ends as the next one begins.
    fn request(&self, begun: Instant, tenant: u64, class: Class) -> bool {
        let now = Timestamp::from_micros(begun.elapsed().as_micros() as u64);
        if !self.fleet.admits(class, CLASSES, TERMS) {
            return false;
        }
        if self.workers.is_due(now) {
            let utilisation = self.gate.take_utilisation(Effect::Enforced);
            self.workers
                .on_sample(now, WorkerTerms::default(), utilisation, Effect::Enforced);
        }
        let judged = self.workers.judge(Round::at(now), class, CLASSES, tenant);
        if judged.is_shed {
            return false;
        }
        let Some(place) = self.gate.enter(class, CLASSES, judged.share) else {
            return false;
        };
        let cell = self.fleet.begin(class);
        self.fleet.end(cell);
        let now = Timestamp::from_micros(begun.elapsed().as_micros() as u64);
        let round_trip = RoundTrip {
            took: Micros::from_millis(20),
            in_flight: place.in_flight,
            ending: Ending::Answered,
        };
        self.gate.leave(now, Some(round_trip));
        true
    }
}

fn main() {
    let layers = Layers {
        fleet: FleetUsage::default(),
        workers: WorkerShedder::default(),
        gate: Gate::new(AdaptiveBounds { min: 1, max: 1_000 }),
    };
    let begun = Instant::now();
    let mut best = f64::INFINITY;
    for _ in 0..7 {
        let since = Instant::now();
        for number in 0..REQUESTS {
            let tenant = mix(number % 1_000);
            black_box(layers.request(begun, tenant, Class::new((number % 4) as u8)));
        }
        best = best.min(since.elapsed().as_secs_f64() * 1e9 / REQUESTS as f64);
    }
    println!("all layers: {best:.0} ns a request (best of 7 x {REQUESTS}, one thread)");
}
