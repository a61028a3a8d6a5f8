//! One server, as shared by the whole process.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_core::Timestamp;
use tracing::{error, info, warn};

use crate::breaker::Breaker;
use crate::clock::{Sent, ServerClock};
use crate::journal::{Condition, Journal};
use crate::metrics::{Fault, Metrics, ShardCounts};
use crate::replicas::Replicas;
use crate::server_address::ServerAddress;
use crate::server_status::ServerStatus;

/// The least time between two log lines about unusable answers.
const SILENCE: Duration = Duration::from_secs(60);

/// The most corrupt keys that are logged by name; more are only counted.
const CORRUPT_MAX: usize = 100;

/// One server, its breaker and its counts.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) server: ServerAddress,
    pub(crate) name: Box<str>,
    pub(crate) breaker: Breaker,
    pub(crate) metrics: Metrics,
    /// Its replicas, which leases wait for.
    pub(crate) replicas: Replicas,
    /// The server's clock.
    pub(crate) clock: ServerClock,
    /// Its last known status.
    pub(crate) status: Mutex<ServerStatus>,
    /// The reason it was last found unable to serve; [`None`] while it serves.
    trouble: Mutex<Option<Box<str>>>,
    /// The record of its log lines.
    journal: Mutex<Journal>,
    /// Answers that decisions had received when `status` last got an error.
    answers_at_error: AtomicU64,
    /// A warning that it is too far away for the deadline, if it is.
    pub(crate) distance: Mutex<Option<Box<str>>>,
    /// Keys already logged because they hold something else than a counter.
    corrupt: Mutex<BTreeSet<Box<str>>>,
    was_reached: AtomicBool,
    is_greeted: AtomicBool,
    /// True while it is known to have the hash key.
    has_hash_key: AtomicBool,
    /// The time of the last log line about unusable answers.
    garbled: Mutex<Option<Instant>>,
    /// The time of the last log line about its clock going back.
    clock_said: Mutex<Option<Instant>>,
    /// True if it served when last heard of: there is nothing to log then.
    serves: AtomicBool,
}

/// Returns true if the last log line is old enough for another.
fn may_say(said: &Mutex<Option<Instant>>, now: Instant) -> bool {
    let mut said = said.lock();
    let may = said.is_none_or(|said| now.saturating_duration_since(said) >= SILENCE);
    if may {
        *said = Some(now);
    }
    may
}

impl Shard {
    pub(crate) fn new(server: ServerAddress) -> Self {
        Self {
            name: server.name().into(),
            server,
            breaker: Breaker::new(),
            metrics: Metrics::default(),
            replicas: Replicas::default(),
            clock: ServerClock::default(),
            status: Mutex::default(),
            trouble: Mutex::new(None),
            journal: Mutex::default(),
            answers_at_error: AtomicU64::new(0),
            distance: Mutex::default(),
            corrupt: Mutex::default(),
            was_reached: AtomicBool::new(false),
            is_greeted: AtomicBool::new(false),
            has_hash_key: AtomicBool::new(false),
            garbled: Mutex::new(None),
            clock_said: Mutex::new(None),
            serves: AtomicBool::new(false),
        }
    }

    /// Counts an unusable answer, or a failure of the script: not a fault that the breaker counts.
    /// Logged now and then, because it may happen to every decision.
    pub(crate) fn garbled(&self, decisions: usize, why: &str) {
        self.metrics.fault(Fault::Reply, decisions);
        if may_say(&self.garbled, Instant::now()) {
            error!(shard = %self.name, why, "unusable reply from Redis; further ones are only counted for a while");
        }
    }

    /// Counts `decisions` that needed `key`, which holds something else than a counter. Logged once a key.
    pub(crate) fn corrupt(&self, decisions: usize, key: &str) {
        self.metrics.fault(Fault::Corrupt, decisions);
        let mut said = self.corrupt.lock();
        if said.len() < CORRUPT_MAX && said.insert(key.into()) {
            error!(
                shard = %self.name, key,
                "this key holds no counter, or one of a later version of Ratekeeper; failure modes decide until it is deleted, or that version runs here"
            );
        }
    }

    /// Takes in `time` from the answer to a call that was `sent` with this knowledge of the clock;
    /// the script found `moved` counters more than their window ahead, and moved them to the
    /// current one. A clock that went back is logged once a minute at most, however many answers
    /// show it.
    pub(crate) fn told_time(&self, sent: Sent, time: Timestamp, moved: u64) {
        self.metrics.moved(moved);
        let now = Instant::now();
        if let Some(back) = self.clock.observe(sent, time, now)
            && may_say(&self.clock_said, now)
        {
            warn!(
                shard = %self.name, ?back,
                "Redis's clock went back: counters keep their hits, those with shorter windows go on in the current window"
            );
        }
    }

    /// The warning to operators about its clock, for a while after it went back.
    pub(crate) fn clock_fault(&self) -> Option<String> {
        let (back, ago) = self.clock.step(Instant::now())?;
        let (name, back, ago) = (&self.name, back.as_secs_f64(), ago.as_secs());
        Some(format!(
            "the clock of Redis at {name} went back by {back:.1} s, {ago} s ago: callers may wait for up to two windows"
        ))
    }

    /// Counts a failure that the breaker counts too. Logged once, until the server serves again.
    pub(crate) fn failed(&self, fault: Fault, decisions: usize, why: &str) {
        self.metrics.fault(fault, decisions);
        let now = Instant::now();
        let opened = self.breaker.failed(now);
        *self.trouble.lock() = Some(why.into());
        self.serves.store(false, Ordering::Relaxed);
        let (news, condition) = {
            let mut journal = self.journal.lock();
            (journal.failed(now), journal.condition())
        };
        match news {
            Some(Condition::Failing) => warn!(shard = %self.name, why, "Redis failed"),
            Some(Condition::Unsteady) => warn!(
                shard = %self.name, why,
                "Redis is unsteady; further failures are not logged until 10 s pass without one"
            ),
            Some(Condition::Serving) | None => {}
        }
        if opened && condition == Condition::Failing {
            warn!(shard = %self.name, why, "Redis is down; failure modes decide until it recovers");
        }
    }

    /// Holds the breaker open: the server is there but cannot be used as it is, so it is neither
    /// asked nor probed. To be called again and again while that lasts.
    pub(crate) fn refused(&self, why: &str) {
        let mut trouble = self.trouble.lock();
        if trouble.as_deref() != Some(why) {
            error!(shard = %self.name, why, "Redis is not used; failure modes decide");
        }
        *trouble = Some(why.into());
        self.serves.store(false, Ordering::Relaxed);
        drop(trouble);
        self.breaker.hold(Instant::now());
    }

    /// Ends the refusal: the server can be used after all.
    pub(crate) fn accepted(&self) {
        if self.breaker.release() {
            self.served();
        }
    }

    /// Records that the server serves.
    pub(crate) fn served(&self) {
        // Relaxed: whoever sees it late logs it late. Read first, since it is mostly true already.
        if self.serves.load(Ordering::Relaxed) || self.serves.swap(true, Ordering::Relaxed) {
            return;
        }
        self.was_reached.store(true, Ordering::Relaxed);
        if self.journal.lock().served() {
            info!(shard = %self.name, "Redis is back");
        }
    }

    /// Records the reason why its monitor cannot ask it. Logged when that begins; readiness shows the latest reason.
    pub(crate) fn cannot_be_asked(&self, why: String, is_refused: bool) {
        let mut status = self.status.lock();
        if status.error.is_none() {
            warn!(shard = %self.name, why, "Redis cannot be asked");
        }
        let answers = self.metrics.answers();
        self.answers_at_error.store(answers, Ordering::Relaxed);
        (status.error, status.is_refused) = (Some(why), is_refused);
    }

    /// Checks if it serves steadily again; to be called now and then.
    pub(crate) fn settle(&self, now: Instant) {
        if self.journal.lock().settle(now) {
            info!(shard = %self.name, "Redis is steady again");
        }
    }

    /// The fault to report to operators, if it cannot decide.
    pub(crate) fn fault(&self) -> Option<String> {
        let (name, status) = (&self.name, self.status.lock().clone());
        let why = self.trouble.lock().clone();
        let why = why.as_deref().unwrap_or("it has failed");
        if !self.breaker.is_closed() {
            return Some(format!(
                "Redis at {name} does not serve, and failure modes decide: {why}"
            ));
        }
        if self.journal.lock().condition() == Condition::Unsteady {
            return Some(format!(
                "Redis at {name} fails and serves in turns, and failure modes decide where it fails: {why}"
            ));
        }
        // Decisions that were answered know better.
        let answers_at_error = self.answers_at_error.load(Ordering::Relaxed);
        let is_unanswered = self.metrics.answers() == answers_at_error;
        if let Some(why) = status.error.filter(|_| is_unanswered) {
            return Some(format!("Redis at {name} cannot be asked: {why}"));
        }
        let was_reached = self.was_reached() || status.server.is_some();
        (!was_reached).then(|| format!("Redis at {name} was not reached yet"))
    }

    /// Records that it was asked what it is, with any result. Returns true the first time.
    pub(crate) fn greeted(&self) -> bool {
        !self.is_greeted.swap(true, Ordering::Relaxed)
    }

    /// Returns true if it was asked what it is.
    pub(crate) fn is_greeted(&self) -> bool {
        self.is_greeted.load(Ordering::Relaxed)
    }

    /// Records that the hash key was compared with its own, or that it may have lost that since.
    pub(crate) fn set_has_hash_key(&self, has: bool) {
        self.has_hash_key.store(has, Ordering::Relaxed);
    }

    /// Returns true if it is known to have the hash key.
    pub(crate) fn has_hash_key(&self) -> bool {
        self.has_hash_key.load(Ordering::Relaxed)
    }

    /// Returns true if it has ever served.
    fn was_reached(&self) -> bool {
        self.was_reached.load(Ordering::Relaxed)
    }

    /// The reason it does not serve, or [`None`] if it does.
    pub(crate) fn trouble(&self) -> Option<Box<str>> {
        self.trouble.lock().clone()
    }

    pub(crate) fn counts(&self) -> ShardCounts {
        ShardCounts {
            opened: self.breaker.opened(),
            clock_steps_back: self.clock.steps(),
            ..self.metrics.counts(&self.name, self.breaker.circuit())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_cannot_be_used_are_not_said_each_time() {
        let (shard, now) = (Shard::new(ServerAddress::default()), Instant::now());
        assert!(may_say(&shard.garbled, now));
        assert!(!may_say(&shard.garbled, now));
        assert!(!may_say(&shard.garbled, now + SILENCE / 2));
        assert!(may_say(&shard.garbled, now + SILENCE));
        assert!(!may_say(&shard.garbled, now + SILENCE));
    }
}
