//! A discrete-event simulation of callers, a guard and an upstream.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use fastrand::Rng;
use ratekeeper_core::{Micros, Timestamp};
use ratekeeper_shed::{Class, Ending, RoundTrip};

use crate::guard::Guard;
use crate::upstream::{CAPACITY, Taken, Upstream, WORKERS};

/// The usual patience of clients, and of the gateway: an answer after this is of no use.
pub(crate) const PATIENCE_US: u64 = 1_000_000;
/// Tenants with equal demand; number 0 may storm.
const TENANTS: u64 = 50;
/// The load before a scenario begins, as a multiple of capacity.
const WARM_LOAD: f64 = 0.9;
/// The number of times that the storming tenant repeats a request that failed.
const RETRIES: u8 = 5;

/// The load that callers offer, and the state of the upstream, by time in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Seconds of load just below capacity before the scenario begins, in which limits find their place.
    pub(crate) warm: usize,
    pub(crate) seconds: usize,
    /// Offered load of all tenants, as a multiple of capacity.
    pub(crate) load: fn(f64) -> f64,
    /// Load that tenant 0 adds.
    pub(crate) storm: fn(f64) -> f64,
    /// The factor by which the upstream is slower than usual.
    pub(crate) slow: fn(f64) -> f64,
    /// The part of the upstream's workers that it has.
    pub(crate) workers: fn(f64) -> f64,
    /// The part of the requests that the upstream answers with 503 within no time, whatever its load.
    pub(crate) broken: fn(f64) -> f64,
    /// The time after which clients give up; the gateway does not, if they are less patient than it usually is.
    pub(crate) patience_us: u64,
}

/// Counts by class or group.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) offered: u32,
    pub(crate) succeeded: u32,
}

impl Tally {
    pub(crate) fn success(&self) -> f64 {
        match self.offered {
            0 => 1.0,
            offered => f64::from(self.succeeded) / f64::from(offered),
        }
    }
}

/// The requests that arrived in one second.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Second {
    pub(crate) by_class: [Tally; 4],
    /// Requests of tenants that do not storm, tests left out.
    pub(crate) others: [Tally; 4],
    /// Answers in time that came in this second, whenever they were asked for.
    pub(crate) good: u32,
}

#[derive(Clone, Copy)]
struct Job {
    arrived: u64,
    class: Class,
    tenant: u64,
    in_flight: u32,
    retries: u8,
    is_settled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival,
    Storm,
    Retry(usize),
    Done(usize),
    Refused(usize),
}

struct Simulation<'a, G> {
    scenario: Scenario,
    guard: &'a mut G,
    rng: Rng,
    upstream: Upstream,
    events: BinaryHeap<Reverse<(u64, Event)>>,
    /// The times at which the client or the gateway gives up on jobs, all equally long after their arrival.
    timeouts: VecDeque<(u64, usize)>,
    jobs: Vec<Job>,
    seconds: Vec<Second>,
    latencies: Vec<u32>,
}

/// The result of a simulation.
pub(crate) struct Run {
    pub(crate) seconds: Vec<Second>,
    /// Round trips of requests that succeeded, in microseconds.
    pub(crate) latencies: Vec<u32>,
}

/// The mix: test 10 %, read 60 %, write 20 %, critical 10 %.
fn class(rng: &mut Rng) -> Class {
    Class::new(match rng.u32(0..10) {
        0 => 0,
        1..=6 => 1,
        7 | 8 => 2,
        _ => 3,
    })
}

pub(crate) fn run<G: Guard>(scenario: Scenario, guard: &mut G, seed: u64) -> Run {
    let mut simulation = Simulation {
        scenario,
        guard,
        rng: Rng::with_seed(seed),
        upstream: Upstream::default(),
        events: BinaryHeap::new(),
        timeouts: VecDeque::new(),
        jobs: Vec::new(),
        seconds: vec![Second::default(); scenario.warm + scenario.seconds + 1],
        latencies: Vec::new(),
    };
    simulation.play();
    simulation.seconds.pop();
    simulation.seconds.drain(..scenario.warm);
    Run {
        seconds: simulation.seconds,
        latencies: simulation.latencies,
    }
}

impl<G: Guard> Simulation<'_, G> {
    fn play(&mut self) {
        self.events.push(Reverse((0, Event::Arrival)));
        self.events.push(Reverse((0, Event::Storm)));
        let end = (self.scenario.warm + self.scenario.seconds) as u64 * 1_000_000;
        loop {
            let next = self.events.peek().map(|Reverse((at, _))| *at);
            if let Some((at, job)) = self.timeouts.front().copied()
                && next.is_none_or(|next| at <= next)
            {
                self.timeouts.pop_front();
                let ending = match self.scenario.patience_us < PATIENCE_US {
                    true => Ending::GivenUp,
                    false => Ending::Dropped,
                };
                self.settle(at, job, ending);
                continue;
            }
            let Some(Reverse((now, event))) = self.events.pop() else {
                return;
            };
            match event {
                // What has begun by then comes to its end.
                Event::Arrival | Event::Storm | Event::Retry(_) if now >= end => {}
                Event::Arrival => {
                    self.next_arrival(now, self.scenario.load, WARM_LOAD, Event::Arrival);
                    let tenant = self.rng.u64(0..TENANTS);
                    self.arrive(now, tenant, 0);
                }
                Event::Storm => {
                    if self.next_arrival(now, self.scenario.storm, 0.0, Event::Storm) {
                        self.arrive(now, 0, RETRIES);
                    }
                }
                Event::Retry(job) => {
                    let Job { retries, .. } = self.jobs[job];
                    self.arrive(now, 0, retries - 1);
                }
                Event::Done(job) => self.done(now, job),
                Event::Refused(job) => self.settle(now, job, Ending::Dropped),
            }
        }
    }

    /// The time since the scenario began, in seconds; None while limits still find their place.
    fn since_start(&self, now: u64) -> Option<f64> {
        let start = self.scenario.warm as u64 * 1_000_000;
        (now >= start).then(|| (now - start) as f64 / 1e6)
    }

    /// The factor by which the upstream is slower than usual.
    fn slowness(&self, now: u64) -> f64 {
        self.since_start(now).map_or(1.0, self.scenario.slow)
    }

    /// The workers that the upstream has, at least one.
    fn workers(&self, now: u64) -> usize {
        let part = self.since_start(now).map_or(1.0, self.scenario.workers);
        ((WORKERS as f64 * part) as usize).max(1)
    }

    /// Schedules the next arrival of a Poisson process; false while its rate is zero.
    fn next_arrival(&mut self, now: u64, load: fn(f64) -> f64, warm: f64, event: Event) -> bool {
        let rate = self.since_start(now).map_or(warm, load) * CAPACITY;
        let is_on = rate > 0.0;
        let gap = match is_on {
            true => -(1.0 - self.rng.f64()).ln() / rate * 1e6,
            false => 10_000.0,
        };
        self.events.push(Reverse((now + gap as u64 + 1, event)));
        is_on
    }

    fn second(&mut self, at: u64) -> &mut Second {
        let last = self.seconds.len() - 1;
        &mut self.seconds[((at / 1_000_000) as usize).min(last)]
    }

    fn arrive(&mut self, now: u64, tenant: u64, retries: u8) {
        let class = class(&mut self.rng);
        let at = Timestamp::from_micros(now);
        let second = self.second(now);
        second.by_class[class.index()].offered += 1;
        if tenant != 0 {
            second.others[class.index()].offered += 1;
        }
        let entered = self.guard.enter(at, class, tenant);
        let id = self.jobs.len();
        self.jobs.push(Job {
            arrived: now,
            class,
            tenant,
            in_flight: entered.unwrap_or_default(),
            retries,
            is_settled: entered.is_none(),
        });
        if entered.is_none() {
            self.retry(now, id);
            return;
        }
        let broken = self.since_start(now).map_or(0.0, self.scenario.broken);
        if broken > 0.0 && self.rng.f64() < broken {
            self.events.push(Reverse((now + 1_000, Event::Refused(id))));
            return;
        }
        let slow = self.slowness(now);
        self.upstream.workers = self.workers(now);
        match self.upstream.take(id, slow, &mut self.rng) {
            Taken::Serving(us) => self.events.push(Reverse((now + us, Event::Done(id)))),
            Taken::Queued => {}
            Taken::Refused => {
                self.events.push(Reverse((now + 1_000, Event::Refused(id))));
                return;
            }
        }
        let patience = self.scenario.patience_us;
        self.timeouts.push_back((now + patience, id));
    }

    fn retry(&mut self, now: u64, id: usize) {
        if self.jobs[id].retries > 0 {
            let after = self.rng.u64(10_000..100_000);
            self.events.push(Reverse((now + after, Event::Retry(id))));
        }
    }

    fn done(&mut self, now: u64, id: usize) {
        let slow = self.slowness(now);
        self.upstream.workers = self.workers(now);
        if let Some((next, us)) = self.upstream.done(slow, &mut self.rng) {
            self.events.push(Reverse((now + us, Event::Done(next))));
        }
        self.settle(now, id, Ending::Answered);
    }

    /// The gateway gets an answer, or gives up.
    fn settle(&mut self, now: u64, id: usize, ending: Ending) {
        let job = &mut self.jobs[id];
        if std::mem::replace(&mut job.is_settled, true) {
            return;
        }
        let job = *job;
        let took = now - job.arrived;
        let round_trip = RoundTrip {
            took: Micros::new(took),
            in_flight: job.in_flight,
            ending,
        };
        self.guard.leave(Timestamp::from_micros(now), round_trip);
        if ending != Ending::Answered {
            self.retry(now, id);
            return;
        }
        if self.since_start(job.arrived).is_some() {
            self.latencies.push(took as u32);
        }
        self.second(now).good += 1;
        let second = self.second(job.arrived);
        second.by_class[job.class.index()].succeeded += 1;
        if job.tenant != 0 {
            second.others[job.class.index()].succeeded += 1;
        }
    }
}
