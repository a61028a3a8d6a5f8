//! The callers: they ask at their own pace, no matter how slow the answers are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use parking_lot::Mutex;
use ratekeeper_proto::WireEntry;
use ratekeeper_proto::ratekeeper::v1 as own;
use ratekeeper_proto::ratekeeper::v1::rate_limiter_service_client::RateLimiterServiceClient;
use ratekeeper_testkit::random::Random;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use tonic::transport::{Channel, Endpoint};

use super::scenario::{RegionPlan, Scenario};
use super::world::{DOMAIN, World};
use super::{HOME, NAMES, Way};

/// The most requests of one region under way.
const UNDER_WAY_MAX: usize = 2_048;

/// One check, as its caller saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    pub(super) way: Way,
    pub(super) region: usize,
    /// The times at which it was sent and answered, since the scenario began.
    pub(super) sent: Duration,
    pub(super) done: Duration,
    /// The window it was counted in, by the clock of the Redis that decided.
    pub(super) window: u64,
    pub(super) is_allowed: bool,
    /// True if a failure mode decided.
    pub(super) is_degraded: bool,
}

/// The answers that callers of a scenario got.
#[derive(Default, Debug)]
pub(super) struct Answers {
    pub(super) all: Vec<Answer>,
    /// Requests without an answer.
    pub(super) errors: u64,
    /// One of them.
    pub(super) error: Option<String>,
}

/// Callers at work in all regions.
pub(super) struct Callers {
    began: Instant,
    seen: Arc<Mutex<Answers>>,
    /// By region: true if it has no callers any more.
    left: Vec<Arc<AtomicBool>>,
    tasks: JoinSet<()>,
}

/// The callers of one region.
#[derive(Clone)]
struct Region {
    at: usize,
    nodes: Vec<RateLimiterServiceClient<Channel>>,
    began: Instant,
    /// The length of a window, and the seconds by which the clocks of its Redis and of the home's are ahead.
    window: Duration,
    clocks: (i64, i64),
    patience: Duration,
    has_left: Arc<AtomicBool>,
    seen: Arc<Mutex<Answers>>,
}

impl Callers {
    /// Starts to ask all nodes, as the scenario says.
    pub(super) fn start(
        runtime: &Handle,
        world: &World,
        plan: &RegionPlan,
        scenario: &Scenario,
    ) -> Result<Self> {
        let _entered = runtime.enter();
        let began = Instant::now();
        let mut callers = Self {
            began,
            seen: Arc::default(),
            left: NAMES.map(|_| Arc::default()).into(),
            tasks: JoinSet::new(),
        };
        for at in 0..NAMES.len() {
            let nodes = world.grpc(at).into_iter().map(|port| {
                let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}"))?;
                Ok(RateLimiterServiceClient::new(endpoint.connect_lazy()))
            });
            let region = Region {
                at,
                nodes: nodes.collect::<Result<_>>()?,
                began,
                window: plan.window,
                clocks: (scenario.clocks[at], scenario.clocks[HOME]),
                patience: plan.patience + Duration::from_secs(1),
                has_left: Arc::clone(&callers.left[at]),
                seen: Arc::clone(&callers.seen),
            };
            let of_limit = plan.limit as f64 / plan.window.as_secs_f64();
            let (traffic, lasting) = (scenario.traffic, plan.lasting.as_secs_f64());
            let rate = move |passed: f64| traffic.at(passed / lasting)[at] * of_limit;
            callers
                .tasks
                .spawn(region.ask(traffic.most() * of_limit, rate));
        }
        Ok(callers)
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    /// Takes the callers of a region away. What they have asked is not an error if it has no answer.
    pub(super) fn leave(&self, region: usize) {
        self.left[region].store(true, Ordering::Relaxed);
    }

    /// Stops them, and returns what they saw.
    pub(super) fn stop(self, runtime: &Handle) -> Answers {
        self.left
            .iter()
            .for_each(|it| it.store(true, Ordering::Relaxed));
        runtime.block_on(self.tasks.join_all());
        std::mem::take(&mut self.seen.lock())
    }
}

impl Region {
    /// Asks at random, `rate` times a second, until the callers leave. `most` is the most that `rate` is.
    async fn ask(self, most: f64, rate: impl Fn(f64) -> f64) {
        let mut random = Random::new(7 + self.at as u64);
        let room = Arc::new(Semaphore::new(UNDER_WAY_MAX));
        let mut under_way = JoinSet::new();
        let mut at = self.began;
        for number in 0.. {
            // Arrivals at the highest rate, of which some are left out, come at the rate of their moment.
            at += Duration::from_micros(random.gap((1e6 / most) as u64));
            sleep_until(at.into()).await;
            if self.has_left.load(Ordering::Relaxed) {
                break;
            }
            let passed = (at - self.began).as_secs_f64();
            if random.below(1 << 20) as f64 >= rate(passed) / most * f64::from(1 << 20) {
                continue;
            }
            while under_way.try_join_next().is_some() {}
            for way in Way::ALL {
                let Ok(room) = Arc::clone(&room).try_acquire_owned() else {
                    self.fail("too many requests are under way".to_owned());
                    continue;
                };
                let region = self.clone();
                under_way.spawn(async move {
                    region.ask_once(way, number).await;
                    drop(room);
                });
            }
        }
        under_way.join_all().await;
    }

    async fn ask_once(&self, way: Way, number: usize) {
        let entry = WireEntry {
            key: way.name().to_owned(),
            value: "a".to_owned(),
        };
        let descriptor = own::Descriptor {
            entries: vec![entry],
            ..Default::default()
        };
        let request = own::CheckRequest {
            domain: DOMAIN.to_owned(),
            descriptors: vec![descriptor],
            ..Default::default()
        };
        let mut node = self.nodes[number % self.nodes.len()].clone();
        let sent = self.began.elapsed();
        let answer = match timeout(self.patience, node.check(request)).await {
            Ok(Ok(response)) => response.into_inner(),
            Ok(Err(status)) => return self.fail(format!("{}: {status}", way.name())),
            Err(_) => return self.fail(format!("{}: no answer in time", way.name())),
        };
        let done = self.began.elapsed();
        let is_allowed = answer.decision() == own::Decision::Allow;
        let reset = answer.limit.filter(|_| is_allowed);
        let reset = reset.map(|limit| Duration::from_micros(limit.reset_after_us));
        let answer = Answer {
            way,
            region: self.at,
            sent,
            done,
            window: self.window_of(way, reset),
            is_allowed,
            is_degraded: answer.degraded,
        };
        self.seen.lock().all.push(answer);
    }

    /// The window of an answer that has just come. One that passed says how long it is to the window's end, so the nearest
    /// end is meant; of one that was denied it is the window of this moment.
    fn window_of(&self, way: Way, reset: Option<Duration>) -> u64 {
        let clock = match way {
            Way::Home => self.clocks.1,
            Way::Bounded | Way::Counted | Way::Regional | Way::Plain => self.clocks.0,
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_micros() as i64 + clock * 1_000_000;
        let window = self.window.as_micros() as i64;
        let number = match reset {
            Some(reset) => (now + reset.as_micros() as i64 + window / 2) / window - 1,
            None => now / window,
        };
        number as u64
    }

    fn fail(&self, why: String) {
        if self.has_left.load(Ordering::Relaxed) {
            return;
        }
        let mut seen = self.seen.lock();
        seen.errors += 1;
        seen.error.get_or_insert(why);
    }
}
