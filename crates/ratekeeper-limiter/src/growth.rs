//! Unusual growth: rules, and callers by rule, with far more requests than in their own last hour.
//!
//! [`GrowthWatch`] counts requests by rule and subject, and tells a [`GrowthDetector`] every ten seconds. Nothing is limited
//! because of it.
//!
//! ```text
//! check -> sample: every request, or 1 in N of a busy node -> ten seconds -> detector -> Growth
//! ```

mod detector;
mod series;

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;

pub use detector::{
    Growth, GrowthChange, GrowthDetector, GrowthKey, GrowthRequests, SERIES_MAX, TICK_SECS,
};

use crate::stats::{STRIPES, stripe_of_thread};

/// The requests of a second that are counted; of more, each stands for several.
const SAMPLES_PER_SECOND: u64 = 2_000;

/// The most requests that one stands for.
const EVERY_MAX: u64 = 1_024;

/// The callers that a thread, and those beside it, count in ten seconds. Further ones count for their rules alone.
const CALLERS_MAX: usize = 256;

/// The reports that are kept after they ended.
const ENDED_MAX: usize = 100;

/// Watches the requests that a limiter decides.
#[derive(Debug)]
pub struct GrowthWatch {
    stripes: [Stripe; STRIPES],
    /// The requests for each one that is counted.
    every: AtomicU32,
    begun: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(Mutex<Counted>);

/// The requests of these ten seconds.
#[derive(Debug, Default)]
struct Counted {
    requests: HashMap<GrowthKey, Requests>,
    /// The requests of this second that were counted.
    samples: u64,
}

#[derive(Debug)]
struct Requests {
    domain: Arc<str>,
    subject: Option<Arc<str>>,
    count: u64,
}

#[derive(Debug, Default)]
struct State {
    detector: GrowthDetector,
    /// The ten seconds that are being counted.
    tick: u64,
    /// The most requests that one of them stands for.
    every: u32,
    ended: VecDeque<Growth>,
}

impl Default for GrowthWatch {
    fn default() -> Self {
        Self {
            stripes: Default::default(),
            every: AtomicU32::new(1),
            begun: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }
}

impl GrowthWatch {
    /// Returns true if this request of the thread is to be counted.
    #[inline]
    pub(crate) fn wants(&self) -> bool {
        thread_local! {
            static CALLS: Cell<u32> = const { Cell::new(0) };
        }
        // Relaxed: a request more or less at the turn of a second does no harm.
        let every = self.every.load(Ordering::Relaxed);
        CALLS.with(|calls| {
            let number = calls.get().wrapping_add(1);
            calls.set(number);
            number & (every - 1) == 0
        })
    }

    /// Counts a request that is [wanted](Self::wants), for a rule as a whole, and for one of its callers.
    pub(crate) fn count(
        &self,
        (domain, rule): (&Arc<str>, &Arc<str>),
        subject: u64,
        name: impl FnOnce() -> Arc<str>,
    ) {
        let every = u64::from(self.every.load(Ordering::Relaxed));
        // In range by construction.
        let mut stripe = self.stripes[stripe_of_thread()].0.lock();
        stripe.samples += 1;
        let requests = &mut stripe.requests;
        let key = |subject| GrowthKey {
            rule: Arc::clone(rule),
            subject,
        };
        let new = |subject| Requests {
            domain: Arc::clone(domain),
            subject,
            count: 0,
        };
        let all = requests.entry(key(None)).or_insert_with(|| new(None));
        all.count += every;
        let caller = key(Some(subject));
        if let Some(known) = requests.get_mut(&caller) {
            known.count += every;
        } else if requests.len() < CALLERS_MAX {
            let mut requests_of_new = new(Some(name()));
            requests_of_new.count = every;
            requests.insert(caller, requests_of_new);
        }
    }

    /// Ends a second, and every ten seconds tells the detector. Returns what began and what ended.
    pub fn roll(&self, now: Timestamp) -> Vec<GrowthChange> {
        let mut state = self.state.lock();
        let every = self.every.load(Ordering::Relaxed);
        state.every = state.every.max(every);
        let samples = self.stripes.iter();
        let samples = samples.map(|stripe| std::mem::take(&mut stripe.0.lock().samples));
        let requests = samples.sum::<u64>() * u64::from(every);
        let next = requests
            .div_ceil(SAMPLES_PER_SECOND)
            .clamp(1, EVERY_MAX)
            .next_power_of_two();
        self.every
            .store(u32::try_from(next).unwrap_or(1), Ordering::Relaxed);
        let tick = now.as_micros() / (TICK_SECS * 1_000_000);
        if tick == state.tick {
            return Vec::new();
        }
        state.tick = tick;
        let stands_for = std::mem::take(&mut state.every);
        let changes =
            state
                .detector
                .on_sample(now, self.drain().into_values().collect(), stands_for);
        for change in &changes {
            match change {
                GrowthChange::Began(_) => {
                    self.begun.fetch_add(1, Ordering::Relaxed);
                }
                GrowthChange::Ended(growth) => {
                    if state.ended.len() >= ENDED_MAX {
                        state.ended.pop_front();
                    }
                    state.ended.push_back(growth.clone());
                }
            }
        }
        changes
    }

    /// Takes the requests of all stripes, added up by rule and caller.
    fn drain(&self) -> HashMap<GrowthKey, GrowthRequests> {
        let mut all: HashMap<GrowthKey, GrowthRequests> = HashMap::new();
        for stripe in &self.stripes {
            let counted = std::mem::take(&mut stripe.0.lock().requests);
            for (key, requests) in counted {
                let known = all.entry(key.clone()).or_insert_with(|| GrowthRequests {
                    key,
                    domain: requests.domain,
                    subject: requests.subject,
                    count: 0,
                });
                known.count += requests.count;
            }
        }
        all
    }

    /// The growth that goes on now, the largest first.
    #[must_use]
    pub fn active(&self) -> Vec<Growth> {
        self.state.lock().detector.active()
    }

    /// The growth that has ended, the last first; at most a hundred.
    #[must_use]
    pub fn ended(&self) -> Vec<Growth> {
        let state = self.state.lock();
        state.ended.iter().rev().cloned().collect()
    }

    /// The number of reports since the start.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }

    /// The rules and callers that are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.state.lock().detector.watched()
    }
}

#[cfg(test)]
mod tests;
