//! The door to an upstream: as many requests as its adaptive limit says, the important ones first.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::{Micros, Timestamp};

use crate::{AdaptiveBounds, AdaptiveLimit, Class, ClassCount, Effect, Ending, RoundTrip, Share};

/// The part of the limit, in 32nds, that every class but the top one leaves free for that, and for each other class
/// above it.
const TOP_32NDS: u64 = 2;
const RESERVED_32NDS: u64 = 1;
/// The part, in 32nds, that requests beyond their tenant's fair share leave free for all others.
const SPARED_32NDS: u64 = 10;
/// The part of the counts of a flow that is kept from one reading to the next: it is an average of some readings.
const FLOW_KEPT: f64 = 0.8;

/// A concurrency limit with room reserved for important requests: shared by all threads.
///
/// Each class may fill the limit up to a thirty-second less than the class above it, and the top class a sixteenth
/// more than all others (trunk reservation, Roberts 1983). What a tenant asks for beyond its fair share may fill
/// about two thirds of it. So under overload the lower classes find a closed door that is still open to the higher
/// ones. That holds from the first moment, before any controller has reacted.
#[derive(Debug)]
pub struct Gate {
    in_flight: AtomicU32,
    limit: AtomicU32,
    /// True while the limit is a guess.
    is_guess: AtomicBool,
    /// Of the requests since the last reading: the sum of what they found in flight, how many came, and how many of
    /// them got in.
    found_sum: AtomicU64,
    came: AtomicU32,
    entered: AtomicU32,
    /// The requests that left since the last reading.
    left: AtomicU32,
    flow: Mutex<Flow>,
    control: Mutex<AdaptiveLimit>,
}

/// The requests that came and that left lately.
#[derive(Clone, Copy, Default, Debug)]
struct Flow {
    came: f64,
    left: f64,
}

impl Flow {
    fn add(&mut self, came: u32, left: u32) {
        self.came = self.came * FLOW_KEPT + f64::from(came);
        self.left = self.left * FLOW_KEPT + f64::from(left);
    }
}

/// The place of a request that entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GatePlace {
    /// The requests in flight, itself included.
    pub in_flight: u32,
}

// Relaxed everywhere: the limit is a number, and nothing else is protected by it.
impl Gate {
    /// A gate whose limit moves within `bounds`.
    #[must_use]
    pub fn new(bounds: AdaptiveBounds) -> Self {
        let control = AdaptiveLimit::new(bounds);
        Self {
            in_flight: AtomicU32::new(0),
            limit: AtomicU32::new(control.limit()),
            is_guess: AtomicBool::new(control.is_guess()),
            found_sum: AtomicU64::new(0),
            came: AtomicU32::new(0),
            entered: AtomicU32::new(0),
            left: AtomicU32::new(0),
            flow: Mutex::default(),
            control: Mutex::new(control),
        }
    }

    /// Changes the bounds of the limit.
    pub fn set_bounds(&self, bounds: AdaptiveBounds) {
        let mut control = self.control.lock();
        control.set_bounds(bounds);
        self.publish(&control);
    }

    /// The requests that may be in flight before one of `class` is refused, at least 1.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most the limit")]
    pub fn limit_of(&self, class: Class, classes: ClassCount, share: Share) -> u32 {
        let limit = self.limit();
        let reserved = match share {
            Share::Within if classes.is_top(class) => 0,
            Share::Within => TOP_32NDS + (classes.above(class) as u64 - 1) * RESERVED_32NDS,
            Share::Beyond => SPARED_32NDS,
        };
        (limit - (u64::from(limit) * reserved / 32) as u32).max(1)
    }

    /// Lets a request in, if there is room for its class.
    pub fn enter(&self, class: Class, classes: ClassCount, share: Share) -> Option<GatePlace> {
        let limit = self.limit_of(class, classes, share);
        let next = |in_flight: u32| (in_flight < limit).then_some(in_flight + 1);
        let entered = self
            .in_flight
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let (Ok(found) | Err(found)) = entered;
        self.record(found, entered.is_ok());
        entered.ok().map(|found| GatePlace {
            in_flight: found + 1,
        })
    }

    /// Lets a request in, whatever the limit: for shadow mode, which still learns. None for a place beyond the limit.
    pub fn pass(&self, class: Class, classes: ClassCount, share: Share) -> (GatePlace, bool) {
        let limit = self.limit_of(class, classes, share);
        let found = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let has_room = found < limit;
        self.record(found, has_room);
        let in_flight = found.saturating_add(1);
        (GatePlace { in_flight }, has_room)
    }

    fn record(&self, found: u32, entered: bool) {
        self.found_sum
            .fetch_add(u64::from(found), Ordering::Relaxed);
        self.came.fetch_add(1, Ordering::Relaxed);
        if entered {
            self.entered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records that a request that got in has left. With its round trip, unless it says nothing about the load:
    /// upgrades, requests that their client gave up.
    pub fn leave(&self, now: Timestamp, round_trip: Option<RoundTrip>) {
        self.free();
        if let Some(round_trip) = round_trip {
            let mut control = self.control.lock();
            control.on_sample(now, round_trip);
            self.publish(&control);
        }
    }

    /// Records that the client of a request that has been in flight for so long has given up. Its place is still taken.
    pub fn give_up(&self, now: Timestamp, place: GatePlace, took: Micros) {
        let mut control = self.control.lock();
        control.on_sample(
            now,
            RoundTrip {
                took,
                in_flight: place.in_flight,
                ending: Ending::GivenUp,
            },
        );
        self.publish(&control);
    }

    fn free(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        self.left.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a call has left that may stream: its ending says something about the load, and its length nothing.
    pub fn leave_untimed(&self, now: Timestamp, place: GatePlace, ending: Ending) {
        self.free();
        let mut control = self.control.lock();
        control.on_untimed(now, place.in_flight, ending);
        self.publish(&control);
    }

    fn publish(&self, control: &AdaptiveLimit) {
        self.limit.store(control.limit(), Ordering::Relaxed);
        // Load before storing: the cache line stays shared between threads.
        if self.is_guess.load(Ordering::Relaxed) != control.is_guess() {
            self.is_guess.store(control.is_guess(), Ordering::Relaxed);
        }
    }

    /// The limit.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The requests in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The unloaded round trip, and the average one of the last window; zero while unknown.
    #[must_use]
    pub fn round_trips(&self) -> (Micros, Micros) {
        let control = self.control.lock();
        (control.unloaded(), control.average())
    }

    /// The utilisation since the last call: what was in flight as a part of the limit, times the requests that came
    /// for each one that got in. So it exceeds 1 by as much as is asked for in vain. Zero if nothing came, and while
    /// the limit is a guess: a part of it says nothing.
    ///
    /// In shadow mode, where what comes is in flight for as long as it takes, it is the part of the limit that is used
    /// while there is room, and then the requests that came lately for each one that left, at least 1.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a mean for a decision, far below 2^52"
    )]
    pub fn take_utilisation(&self, effect: Effect) -> f64 {
        let came = self.came.swap(0, Ordering::Relaxed);
        let entered = self.entered.swap(0, Ordering::Relaxed);
        let found_sum = self.found_sum.swap(0, Ordering::Relaxed);
        let left = self.left.swap(0, Ordering::Relaxed);
        let flow = {
            let mut flow = self.flow.lock();
            flow.add(came, left);
            *flow
        };
        if self.is_guess.load(Ordering::Relaxed) {
            return 0.0;
        }
        if came == 0 {
            return f64::from(self.in_flight()) / f64::from(self.limit());
        }
        let used = found_sum as f64 / f64::from(came) / f64::from(self.limit());
        match effect {
            Effect::Enforced => used * f64::from(came) / f64::from(entered.max(1)),
            // Where round trips are long, more comes than leaves at each rise of the load.
            Effect::Shadow if used < 1.0 => used,
            Effect::Shadow => (flow.came / flow.left.max(1.0)).max(1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: ClassCount = ClassCount::new(4);
    const BOUNDS: AdaptiveBounds = AdaptiveBounds { min: 64, max: 64 };

    #[test]
    fn each_class_leaves_room_for_those_above() {
        let gate = Gate::new(BOUNDS);
        let entered = |class: u8| {
            let enter = || gate.enter(Class::new(class), CLASSES, Share::Within);
            std::iter::from_fn(enter).count()
        };
        assert_eq!([0, 1, 2, 3].map(entered), [56, 2, 2, 4]);
        assert_eq!(gate.in_flight(), 64);
        gate.leave(Timestamp::EPOCH, None);
        assert_eq!(gate.enter(Class::new(0), CLASSES, Share::Within), None);
        assert_eq!(
            gate.enter(Class::new(3), CLASSES, Share::Within),
            Some(GatePlace { in_flight: 64 })
        );
    }

    #[test]
    fn a_storm_leaves_a_third_to_others() {
        let gate = Gate::new(BOUNDS);
        let enter = || gate.enter(Class::new(3), CLASSES, Share::Beyond);
        assert_eq!(std::iter::from_fn(enter).count(), 44);
        assert!(gate.enter(Class::new(0), CLASSES, Share::Within).is_some());
    }

    #[test]
    fn a_limit_of_one_lets_every_class_in() {
        let gate = Gate::new(AdaptiveBounds { min: 1, max: 1 });
        assert!(gate.enter(Class::new(0), CLASSES, Share::Within).is_some());
        assert!(gate.enter(Class::new(3), CLASSES, Share::Within).is_none());
    }

    #[test]
    fn utilisation_counts_requests_that_did_not_get_in() {
        let gate = Gate::new(BOUNDS);
        for _ in 0..128 {
            gate.enter(Class::new(3), CLASSES, Share::Within);
        }
        // 64 came while 0 to 63 were in flight, 64 while it was full; half of them got in.
        let expected = (31.5 + 64.0) / 2.0 / 64.0 * 2.0;
        assert!((gate.take_utilisation(Effect::Enforced) - expected).abs() < 1e-9);
        assert!((gate.take_utilisation(Effect::Enforced) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn in_shadow_mode_utilisation_is_what_comes_for_each_one_that_leaves() {
        let gate = Gate::new(BOUNDS);
        let pass = || {
            gate.pass(Class::new(3), CLASSES, Share::Within);
        };
        let drive = |left: u32| {
            (0..200).for_each(|_| pass());
            (0..left).for_each(|_| gate.leave(Timestamp::EPOCH, None));
            gate.take_utilisation(Effect::Shadow)
        };
        for _ in 0..50 {
            drive(200);
        }
        // As many leave as come, and they fill what there is.
        (0..100).for_each(|_| pass());
        for _ in 0..50 {
            drive(200);
        }
        assert!((drive(200) - 1.0).abs() < 0.05);
        for _ in 0..50 {
            drive(100);
        }
        assert!((drive(100) - 2.0).abs() < 0.05);
    }

    #[test]
    fn in_shadow_mode_a_rise_of_the_load_is_no_overload_while_there_is_room() {
        let gate = Gate::new(AdaptiveBounds { min: 100, max: 100 });
        let drive = |come: u32, leave: u32| {
            for _ in 0..come {
                gate.pass(Class::new(3), CLASSES, Share::Within);
            }
            (0..leave).for_each(|_| gate.leave(Timestamp::EPOCH, None));
            gate.take_utilisation(Effect::Shadow)
        };
        // Round trips take ten ticks.
        drive(30, 0);
        for _ in 0..20 {
            drive(3, 3);
        }
        for tick in 0..10 {
            let told = drive(6, 3);
            assert!(told <= 0.65, "{told} in tick {tick}");
        }
    }

    #[test]
    fn shadow_mode_lets_everything_in_and_tells() {
        let gate = Gate::new(AdaptiveBounds { min: 1, max: 1 });
        assert_eq!(
            gate.pass(Class::new(0), CLASSES, Share::Within),
            (GatePlace { in_flight: 1 }, true)
        );
        assert_eq!(
            gate.pass(Class::new(0), CLASSES, Share::Within),
            (GatePlace { in_flight: 2 }, false)
        );
    }
}
