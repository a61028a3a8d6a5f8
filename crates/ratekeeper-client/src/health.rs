//! Health of the service as seen from its calls, logged when it changes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{error, info, warn};

/// The minimum interval between log lines on the same trouble, so that a service that answers every
/// other call does not flood the log.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The reason why the fallback decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// The service does not answer.
    Away = 1,
    /// The service refuses to answer: it does not know the caller, or not the method.
    Refuses = 2,
}

/// The outcome of the last call. Relaxed everywhere: a superfluous log line does no harm.
#[derive(Debug)]
pub(crate) struct ServiceHealth {
    /// A [`Trouble`], or 0.
    trouble: AtomicU8,
    /// True if the log has reported the trouble, and for which reason.
    is_logged: AtomicBool,
    reason: Mutex<String>,
    since: Instant,
    /// Milliseconds after `since` from which each trouble may be logged again.
    quiet_until: [AtomicU64; 2],
    /// The same for requests refused because of their content.
    refusals_quiet_until: AtomicU64,
}

impl ServiceHealth {
    pub(crate) fn new() -> Self {
        Self {
            trouble: AtomicU8::new(0),
            is_logged: AtomicBool::new(false),
            reason: Mutex::default(),
            since: Instant::now(),
            quiet_until: [AtomicU64::new(0), AtomicU64::new(0)],
            refusals_quiet_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn trouble(&self) -> Option<Trouble> {
        match self.trouble.load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Trouble::Away),
            _ => Some(Trouble::Refuses),
        }
    }

    pub(crate) fn answered(&self) {
        // Load before swapping: while the service answers, the cache line stays shared between threads.
        if self.trouble().is_some() && self.trouble.swap(0, Ordering::Relaxed) != 0 {
            let is_logged = self.is_logged.swap(false, Ordering::Relaxed);
            if is_logged {
                info!("the rate limit service answers again");
            }
        }
    }

    pub(crate) fn failed(&self, trouble: Trouble, why: &str) {
        let before = self.trouble.swap(trouble as u8, Ordering::Relaxed);
        let mut reason = self.reason.lock();
        if before == trouble as u8 && *reason == why {
            return;
        }
        if !self.may_log(&self.quiet_until[usize::from(trouble as u8 - 1)]) {
            return;
        }
        why.clone_into(&mut reason);
        self.is_logged.store(true, Ordering::Relaxed);
        match trouble {
            Trouble::Away => {
                warn!("the rate limit service gives no answer, and the fallback decides: {why}");
            }
            Trouble::Refuses => {
                error!("the rate limit service refuses to answer, and the fallback decides: {why}");
            }
        }
    }
    /// Logs a request that the service refused because of its content; the service is healthy.
    pub(crate) fn refused(&self, why: &str) {
        if self.may_log(&self.refusals_quiet_until) {
            warn!("a request that the rate limit service cannot decide: {why}");
        }
    }

    /// Returns true if a log line is due, and starts the next interval.
    fn may_log(&self, quiet_until: &AtomicU64) -> bool {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.since.elapsed());
        if now < quiet_until.load(Ordering::Relaxed) {
            return false;
        }
        quiet_until.store(now.saturating_add(millis(LOG_INTERVAL)), Ordering::Relaxed);
        true
    }
}
