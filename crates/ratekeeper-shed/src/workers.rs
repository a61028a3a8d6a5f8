//! The worker-utilisation shedder: sheds the least important requests until utilisation is good again.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::{Micros, Timestamp};

use crate::ladder::{Ladder, Memory, Rung, Threshold};
use crate::{Class, ClassCount, Share, TenantDemand, mix};

/// The time between two samples of the utilisation.
const TICK: Micros = Micros::from_millis(100);
/// The longest time that one sample stands for: a sampler that stalled does not make up for it.
const TICK_MAX_SECS: f64 = 0.5;
/// The time over which utilisation is averaged.
const AVERAGED_OVER_SECS: f64 = 0.14;
/// The time of bad utilisation before the first request is shed.
const DELAY_SECS: f64 = 0.3;
/// The time in which the admitted rate moves to where utilisation would be good.
const RAMP_SECS: f64 = 1.0;
/// The same while so much is refused further in that utilisation is above this.
const FAR_ABOVE: f64 = 1.5;
const FAST_RAMP_SECS: f64 = 0.3;
/// The time without a sample after which the last one says nothing: samples are taken by requests.
const STALE: Micros = Micros::from_secs(1);
/// The most decays of the demand that a sample makes up for: they leave a five-hundredth of it.
const DECAYS_MAX: u64 = 200;
/// The longest time for which the same tenants are shed.
const ROUND_US: u64 = 3_600_000_000;

/// The hour in which a request comes: it says which tenants of a class are shed first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round(u64);

impl Round {
    /// The hour of this time of day, so that all nodes shed the same tenants.
    #[must_use]
    pub const fn at(time: Timestamp) -> Self {
        Self(time.as_micros() / ROUND_US)
    }
}

/// The bounds of good utilisation, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerTerms {
    /// Below this, more is admitted.
    pub good_percent: u8,
    /// Above this, less is.
    pub bad_percent: u8,
}

impl Default for WorkerTerms {
    /// 70 % and 80 %, as Stripe has them.
    fn default() -> Self {
        Self {
            good_percent: 70,
            bad_percent: 80,
        }
    }
}

/// The effect of what a controller says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Requests that it wants refused are refused, and utilisation answers to that.
    Enforced,
    /// All passes, as in shadow mode.
    Shadow,
}

/// A sample of load since the last one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadSample {
    /// Work asked for as a part of what can be done at a time: 1 is fully used, more means that requests were
    /// refused further in.
    pub utilisation: f64,
    /// Requests that arrived.
    pub arrived: u32,
    /// Requests that were not shed.
    pub passed: u32,
}

/// Finds the part of the requests to shed from the utilisation of what serves them.
///
/// The control law is that of Stripe's worker utilisation load shedder ("Scaling your API with rate limiters", 2017):
/// a dead zone between good and bad utilisation in which nothing changes, shedding only after bad utilisation has
/// lasted for a while, and slow changes in both directions:
///
/// ```text
/// utilisation   0 ........ good (70 %) ..... bad (80 %) ........ 1
/// admitted rate    rises   |     stays     |      falls
/// ```
///
/// There the output is a probability of shedding. Here it is the *rate* that may pass, as in DAGOR (Zhou et al.,
/// "Overload Control for Scaling WeChat Microservices", SoCC 2018): when the offered load ends or doubles, the part
/// to shed follows at once and without any learning. As gateways find out early that an upstream is full, the times
/// are shorter than Stripe's 28 s and 120 s: 0.3 s and at most one second.
///
/// In shadow mode there is nothing to control: the rate is an estimate, from which it goes on once it is on.
#[derive(Clone, Debug)]
pub struct UtilisationControl {
    terms: WorkerTerms,
    last: Option<Timestamp>,
    utilisation: f64,
    strained_secs: f64,
    /// Requests per second that arrive, and that may pass; None while nothing is shed.
    arriving: f64,
    admitted: Option<f64>,
}

impl UtilisationControl {
    /// A controller that sheds nothing yet.
    #[must_use]
    pub const fn new(terms: WorkerTerms) -> Self {
        Self {
            terms,
            last: None,
            utilisation: 0.0,
            strained_secs: 0.0,
            arriving: 0.0,
            admitted: None,
        }
    }

    /// Changes the bounds.
    pub const fn set_terms(&mut self, terms: WorkerTerms) {
        self.terms = terms;
    }

    /// The averaged utilisation.
    #[must_use]
    pub const fn utilisation(&self) -> f64 {
        self.utilisation
    }

    /// Takes a sample, and returns the part of the requests to shed, from 0 to 1. A clock that is set back counts as
    /// no time.
    #[expect(clippy::cast_precision_loss, reason = "microseconds, far below 2^52")]
    pub fn on_sample(&mut self, now: Timestamp, load: LoadSample, effect: Effect) -> f64 {
        let Some(last) = self.last.replace(now) else {
            return 0.0;
        };
        let secs = (now.since(last).get() as f64 / 1e6).max(1e-6);
        let rate = |count: u32| f64::from(count) / secs;
        if secs < 1e-3 {
            return self.shed();
        }
        let step = secs.min(TICK_MAX_SECS);
        let weight = (step / AVERAGED_OVER_SECS).min(1.0);
        self.utilisation += (load.utilisation.clamp(0.0, 4.0) - self.utilisation) * weight;
        self.arriving += (rate(load.arrived) - self.arriving) * weight;
        match effect {
            Effect::Enforced => self.adjust(step, rate(load.passed)),
            Effect::Shadow => self.estimate(step),
        }
        self.shed()
    }

    fn adjust(&mut self, secs: f64, passing: f64) {
        let good = f64::from(self.terms.good_percent) / 100.0;
        let bad = f64::from(self.terms.bad_percent) / 100.0;
        let used = self.utilisation;
        let Some(admitted) = &mut self.admitted else {
            self.strained_secs = match used > bad {
                true => self.strained_secs + secs,
                false => 0.0,
            };
            if self.strained_secs >= DELAY_SECS {
                self.admitted = Some(passing.max(1.0));
            }
            return;
        };
        let ramp = match used > FAR_ABOVE {
            true => FAST_RAMP_SECS,
            false => RAMP_SECS,
        };
        let step = (secs / ramp).min(1.0);
        if used > bad {
            // A rate that is not used up cannot be why utilisation is bad.
            let from = admitted.min(self.arriving.max(1.0));
            *admitted = (from * (1.0 - step * (1.0 - bad / used))).max(1.0);
        } else if used < good {
            let room = (good / used.max(0.1) - 1.0).min(1.0);
            *admitted += *admitted * step * room;
            if *admitted > 1.2 * self.arriving {
                self.admitted = None;
                self.strained_secs = 0.0;
            }
        }
    }

    /// Says what would bring utilisation to the bad bound at once: as it does not answer, going on from the last rate would
    /// end at none.
    fn estimate(&mut self, secs: f64) {
        let bad = f64::from(self.terms.bad_percent) / 100.0;
        if self.utilisation < f64::from(self.terms.good_percent) / 100.0 {
            self.strained_secs = 0.0;
            self.admitted = None;
        } else if self.utilisation > bad {
            self.strained_secs += secs;
            if self.strained_secs >= DELAY_SECS {
                self.admitted = Some((self.arriving * bad / self.utilisation).max(1.0));
            }
        }
    }

    fn shed(&self) -> f64 {
        match self.admitted {
            Some(admitted) if admitted < self.arriving => 1.0 - admitted / self.arriving,
            _ => 0.0,
        }
    }
}

/// The judgement on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Judgement {
    /// The part of its tenant's demand that it belongs to.
    pub share: Share,
    /// True if it should be shed.
    pub is_shed: bool,
}

/// The input and the output of a worker-utilisation controller.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct WorkerState {
    /// The averaged utilisation.
    pub utilisation: f64,
    /// The part of the requests that is to be shed, from 0 to 1.
    pub share_shed: f64,
    /// The threshold that this leads to.
    pub threshold: Threshold,
}

/// The worker-utilisation shedder of one upstream, or of one process: shared by all threads.
///
/// [`UtilisationControl`] says how much to shed; the demand of the last moments says which [rung](Rung) of the order
/// that reaches to. So the least important requests are shed whatever the mix, and the same tenants for an hour.
#[derive(Debug)]
pub struct WorkerShedder {
    demand: [TenantDemand; 2],
    ladder: Ladder,
    threshold: AtomicU32,
    arrived: AtomicU32,
    passed: AtomicU32,
    /// The number of requests ever, from which lots are drawn.
    drawn: AtomicU64,
    next_tick_us: AtomicU64,
    control: Mutex<Control>,
}

#[derive(Debug)]
struct Control {
    utilisation: UtilisationControl,
    memory: Memory,
    shed: f64,
    /// The time of the last sample.
    sampled: Option<Timestamp>,
}

impl Default for WorkerShedder {
    fn default() -> Self {
        Self {
            demand: <[TenantDemand; 2]>::default(),
            ladder: Ladder::default(),
            threshold: AtomicU32::new(Threshold::NOTHING.bits()),
            arrived: AtomicU32::new(0),
            passed: AtomicU32::new(0),
            drawn: AtomicU64::new(0),
            next_tick_us: AtomicU64::new(0),
            control: Mutex::new(Control {
                utilisation: UtilisationControl::new(WorkerTerms::default()),
                memory: Memory::default(),
                shed: 0.0,
                sampled: None,
            }),
        }
    }
}

// Relaxed everywhere: counts and threshold are independent.
impl WorkerShedder {
    /// Judges a request of `class` by the tenant with this hash, which comes in `round`.
    #[expect(clippy::cast_possible_truncation, reason = "16 random bits")]
    pub fn judge(&self, round: Round, class: Class, classes: ClassCount, tenant: u64) -> Judgement {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let lot = mix(drawn);
        // Critical requests have a fair share of their own, which no other requests of the tenant use up.
        let [rest, critical] = &self.demand;
        let within = match classes.is_top(class) {
            true => critical.record(tenant),
            false => rest.record(tenant),
        };
        let share = match ((lot >> 48) as u32) < within {
            true => Share::Within,
            false => Share::Beyond,
        };
        let rung = Rung::new(class, classes, share, mix(tenant ^ round.0));
        self.ladder.record(rung);
        self.arrived.fetch_add(1, Ordering::Relaxed);
        let is_shed = self.threshold().sheds(rung, lot as u16);
        if !is_shed {
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
        Judgement { share, is_shed }
    }

    /// Returns true if a sample is due at `now`, to exactly one caller.
    pub fn is_due(&self, now: Timestamp) -> bool {
        let due = self.next_tick_us.load(Ordering::Relaxed);
        let now_us = now.as_micros();
        // A due time too far ahead is left over from before the clock was set back.
        let is_due = now_us >= due || due - now_us > 2 * TICK.get();
        is_due
            && self
                .next_tick_us
                .compare_exchange(
                    due,
                    now_us + TICK.get(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Takes a sample of the utilisation, and finds what to shed from now on, or in shadow mode what would be shed.
    pub fn on_sample(&self, now: Timestamp, terms: WorkerTerms, utilisation: f64, effect: Effect) {
        let mut control = self.control.lock();
        let since = control
            .sampled
            .replace(now)
            .map_or(TICK, |at| now.since(at));
        let ticks = (since.get() / TICK.get()).clamp(1, DECAYS_MAX);
        self.demand.iter().for_each(|demand| demand.decay(ticks));
        self.ladder.take(&mut control.memory);
        let load = LoadSample {
            utilisation,
            arrived: self.arrived.swap(0, Ordering::Relaxed),
            passed: self.passed.swap(0, Ordering::Relaxed),
        };
        control.utilisation.set_terms(terms);
        control.shed = control.utilisation.on_sample(now, load, effect);
        let threshold = control.memory.threshold(control.shed);
        self.threshold.store(threshold.bits(), Ordering::Relaxed);
    }

    /// The threshold in force.
    #[must_use]
    pub fn threshold(&self) -> Threshold {
        Threshold::from_bits(self.threshold.load(Ordering::Relaxed))
    }

    /// The state of the controller as it is at `now`: none once there were no requests for a second.
    #[must_use]
    pub fn state(&self, now: Timestamp) -> Option<WorkerState> {
        let control = self.control.lock();
        let is_fresh = control.sampled.is_some_and(|at| now.since(at) < STALE);
        is_fresh.then(|| WorkerState {
            utilisation: control.utilisation.utilisation(),
            share_shed: control.shed,
            threshold: self.threshold(),
        })
    }
}

#[cfg(test)]
mod tests;
