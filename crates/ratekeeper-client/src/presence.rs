//! Whether the service answers, and a word about it when that changes.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::{error, info, warn};

/// Between two words of the same trouble: a service that answers every other call does not fill the log.
const PAUSE: Duration = Duration::from_secs(10);

/// Why the fallback decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// The service gives no answer.
    Away = 1,
    /// The service is there and refuses to answer: it does not know the caller, or no such call.
    Refuses = 2,
}

/// How the last question fared. Relaxed everywhere: a word too many does no harm.
#[derive(Debug)]
pub(crate) struct Presence {
    /// A [`Trouble`], or 0.
    trouble: AtomicU8,
    /// Whether the log says so, and why.
    is_said: AtomicBool,
    said: Mutex<String>,
    since: Instant,
    /// When each trouble may be said again, in milliseconds since then.
    quiet_until: [AtomicU64; 2],
    /// The same for requests that are refused for what is in them.
    refusals_quiet_until: AtomicU64,
}

impl Presence {
    pub(crate) fn new() -> Self {
        Self {
            trouble: AtomicU8::new(0),
            is_said: AtomicBool::new(false),
            said: Mutex::default(),
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
        // Read first: while it answers, no thread writes what others read.
        if self.trouble().is_some() && self.trouble.swap(0, Ordering::Relaxed) != 0 {
            let is_said = self.is_said.swap(false, Ordering::Relaxed);
            if is_said {
                info!("the rate limit service answers again");
            }
        }
    }

    pub(crate) fn failed(&self, trouble: Trouble, why: &str) {
        let before = self.trouble.swap(trouble as u8, Ordering::Relaxed);
        let mut said = self.said.lock();
        if before == trouble as u8 && *said == why {
            return;
        }
        if !self.may_be_said(&self.quiet_until[usize::from(trouble as u8 - 1)]) {
            return;
        }
        why.clone_into(&mut said);
        self.is_said.store(true, Ordering::Relaxed);
        match trouble {
            Trouble::Away => {
                warn!("the rate limit service gives no answer, and the fallback decides: {why}");
            }
            Trouble::Refuses => {
                error!("the rate limit service refuses to answer, and the fallback decides: {why}");
            }
        }
    }
    /// A request was refused for what is in it; that is no trouble with the service.
    pub(crate) fn refused(&self, why: &str) {
        if self.may_be_said(&self.refusals_quiet_until) {
            warn!("a request that the rate limit service cannot decide: {why}");
        }
    }

    /// Whether it is time to say it; then it is not for a while.
    fn may_be_said(&self, quiet_until: &AtomicU64) -> bool {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.since.elapsed());
        if now < quiet_until.load(Ordering::Relaxed) {
            return false;
        }
        quiet_until.store(now.saturating_add(millis(PAUSE)), Ordering::Relaxed);
        true
    }
}
