//! One server as the whole process sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{error, info, warn};

use crate::breaker::Breaker;
use crate::keeper::ServerStatus;
use crate::metrics::{Fault, Metrics, ShardCounts};
use crate::node::Node;

/// How long nothing more is said of answers that cannot be used.
const SILENCE: Duration = Duration::from_secs(60);

/// One server, its breaker and its counts.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) node: Node,
    pub(crate) name: Box<str>,
    pub(crate) breaker: Breaker,
    pub(crate) metrics: Metrics,
    /// What is known of it.
    pub(crate) status: Mutex<ServerStatus>,
    /// Why it was last found unable to serve; [`None`] while it serves.
    trouble: Mutex<Option<Box<str>>>,
    was_reached: AtomicBool,
    is_greeted: AtomicBool,
    /// When it was last said that its answers cannot be used.
    garbled: Mutex<Option<Instant>>,
    /// When it was last said that its clock went back.
    stepped_back: Mutex<Option<Instant>>,
    /// Whether the last that was heard of it is good: there is nothing to say then.
    serves: AtomicBool,
}

/// Whether nothing was said for long enough to say it again.
fn may_say(said: &Mutex<Option<Instant>>, now: Instant) -> bool {
    let mut said = said.lock();
    let may = said.is_none_or(|said| now.saturating_duration_since(said) >= SILENCE);
    if may {
        *said = Some(now);
    }
    may
}

impl Shard {
    pub(crate) fn new(node: Node) -> Self {
        Self {
            name: node.name().into(),
            node,
            breaker: Breaker::new(),
            metrics: Metrics::default(),
            status: Mutex::default(),
            trouble: Mutex::new(None),
            was_reached: AtomicBool::new(false),
            is_greeted: AtomicBool::new(false),
            garbled: Mutex::new(None),
            stepped_back: Mutex::new(None),
            serves: AtomicBool::new(false),
        }
    }

    /// The script failed, or answered nonsense: no fault that the breaker counts. Said now and
    /// then, for each decision may be answered so.
    pub(crate) fn garbled(&self, decisions: usize, why: &str) {
        self.metrics.fault(Fault::Reply, decisions);
        if may_say(&self.garbled, Instant::now()) {
            error!(shard = %self.name, why, "an answer of Redis cannot be used; others like it are only counted for a while");
        }
    }

    /// The script has found `moved` counters more than their window ahead of the server's clock,
    /// and moved them to where that is. Said once a step, however many counters it meets.
    pub(crate) fn clock_went_back(&self, moved: u64) {
        self.metrics.moved(moved);
        if may_say(&self.stepped_back, Instant::now()) {
            warn!(
                shard = %self.name,
                "Redis's clock went back by more than a window: counters keep their hits and go on in the current window"
            );
        }
    }

    /// The server failed in a way that the breaker counts. Said once, until it serves again.
    pub(crate) fn failed(&self, fault: Fault, decisions: usize, why: &str) {
        self.metrics.fault(fault, decisions);
        let opened = self.breaker.failed(Instant::now());
        let mut trouble = self.trouble.lock();
        if trouble.is_none() {
            warn!(shard = %self.name, why, "Redis failed");
        }
        *trouble = Some(why.into());
        self.serves.store(false, Ordering::Relaxed);
        if opened {
            warn!(shard = %self.name, why, "Redis is not asked until it answers a probe: failure modes decide");
        }
    }

    /// The server is there, and cannot be used as it is: it is not asked, and not probed. To be
    /// said again and again, for as long as that is so.
    pub(crate) fn refused(&self, why: &str) {
        let mut trouble = self.trouble.lock();
        if trouble.as_deref() != Some(why) {
            error!(shard = %self.name, why, "Redis is not used: failure modes decide");
        }
        *trouble = Some(why.into());
        self.serves.store(false, Ordering::Relaxed);
        drop(trouble);
        self.breaker.hold(Instant::now());
    }

    /// The server can be used after all.
    pub(crate) fn accepted(&self) {
        if self.breaker.release() {
            self.served();
        }
    }

    /// The server serves.
    pub(crate) fn served(&self) {
        // Relaxed: whoever sees it late says it late.
        if self.serves.swap(true, Ordering::Relaxed) {
            return;
        }
        self.was_reached.store(true, Ordering::Relaxed);
        let why = self.trouble.lock().take();
        if why.is_some() {
            info!(shard = %self.name, "Redis serves again");
        }
    }

    /// It was asked what it is, whatever came of it. True the first time.
    pub(crate) fn greeted(&self) -> bool {
        !self.is_greeted.swap(true, Ordering::Relaxed)
    }

    /// Whether it was asked what it is.
    pub(crate) fn is_greeted(&self) -> bool {
        self.is_greeted.load(Ordering::Relaxed)
    }

    /// Whether it has ever served.
    pub(crate) fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// Why it does not serve, if it does not.
    pub(crate) fn trouble(&self) -> Option<Box<str>> {
        self.trouble.lock().clone()
    }

    pub(crate) fn counts(&self) -> ShardCounts {
        let opened = self.breaker.opened();
        self.metrics
            .counts(&self.name, self.breaker.circuit(), opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_cannot_be_used_are_not_said_each_time() {
        let (shard, now) = (Shard::new(Node::default()), Instant::now());
        assert!(may_say(&shard.garbled, now));
        assert!(!may_say(&shard.garbled, now));
        assert!(!may_say(&shard.garbled, now + SILENCE / 2));
        assert!(may_say(&shard.garbled, now + SILENCE));
        assert!(!may_say(&shard.garbled, now + SILENCE));
    }
}
