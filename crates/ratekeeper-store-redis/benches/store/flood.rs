//! A closed loop: each task asks again as soon as it is answered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_core::Limit;
use ratekeeper_store::{Answer, Store};
use ratekeeper_testkit::process::thread_time;
use ratekeeper_testkit::random::Random;
use smallvec::SmallVec;
use tokio::runtime::Runtime;
use tokio::task::{JoinSet, yield_now};

use crate::scene::{request, step};

/// Decisions after which a task looks at the clock, and lets others have a turn.
const BETWEEN_LOOKS: u64 = 32;

/// A load: its callers and their keys.
#[derive(Clone, Copy)]
pub(crate) struct Flood {
    pub(crate) tasks: usize,
    pub(crate) keys: u64,
    /// Limits of one request, each about a key of its own.
    pub(crate) limits: usize,
    pub(crate) limit: Limit,
    pub(crate) run: Duration,
}

/// The outcome of a load.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Tally {
    pub(crate) decisions: f64,
    pub(crate) allowed: f64,
    /// Decisions that the store did not take.
    pub(crate) failed: f64,
    pub(crate) seconds: f64,
    /// Processor time of this thread, which is the runtime's.
    pub(crate) cpu_us: f64,
}

impl Tally {
    pub(crate) fn rate(&self) -> f64 {
        self.decisions / self.seconds
    }
}

impl Flood {
    /// Floods `store` from `runtime`.
    pub(crate) fn run<S>(&self, runtime: &Runtime, store: &Arc<S>) -> Tally
    where
        S: Store + Send + Sync + 'static,
        S::Ticket: Send,
    {
        let (begun, cpu) = (Instant::now(), thread_time());
        let end = begun + self.run;
        let mut tally = runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for task in 0..self.tasks {
                tasks.spawn(one(Arc::clone(store), *self, task as u64, end));
            }
            let mut all = Tally::default();
            for part in tasks.join_all().await {
                all.decisions += part.decisions;
                all.allowed += part.allowed;
                all.failed += part.failed;
            }
            all
        });
        tally.seconds = begun.elapsed().as_secs_f64();
        tally.cpu_us = (thread_time() - cpu).as_secs_f64() * 1e6;
        tally
    }
}

async fn one<S: Store>(store: Arc<S>, flood: Flood, task: u64, end: Instant) -> Tally {
    let mut tally = Tally::default();
    let mut random = Random::new(task);
    for turn in 0_u64.. {
        if turn.is_multiple_of(BETWEEN_LOOKS) {
            if Instant::now() >= end {
                break;
            }
            yield_now().await;
        }
        let steps = (0..flood.limits).map(|_| step(&flood.limit, random.below(flood.keys)));
        let steps: SmallVec<[_; 3]> = steps.collect();
        let verdicts = match store.decide(&request(&steps)) {
            Answer::Decided(verdicts) => Ok(verdicts),
            Answer::Pending(ticket) => ticket.await,
        };
        tally.decisions += 1.0;
        match verdicts {
            Ok(verdicts) => tally.allowed += f64::from(u8::from(verdicts.allowed)),
            Err(_) => tally.failed += 1.0,
        }
    }
    tally
}
