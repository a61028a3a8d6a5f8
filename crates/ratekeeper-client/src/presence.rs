//! Whether the service answers, and a word about it when that changes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::{info, warn};

/// Between two words that it is away: one that answers every other call does not fill the log.
const PAUSE: Duration = Duration::from_secs(10);

/// Whether the last question was answered. Relaxed everywhere: a word too many does no harm.
#[derive(Debug)]
pub(crate) struct Presence {
    is_away: AtomicBool,
    /// Whether the log says that it is away.
    is_said: AtomicBool,
    since: Instant,
    /// When that may be said again, in milliseconds since then.
    quiet_until: AtomicU64,
}

impl Presence {
    pub(crate) fn new() -> Self {
        Self {
            is_away: AtomicBool::new(false),
            is_said: AtomicBool::new(false),
            since: Instant::now(),
            quiet_until: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    pub(crate) fn answered(&self) {
        // Read first: while it answers, no thread writes what others read.
        if self.is_away() && self.is_away.swap(false, Ordering::Relaxed) {
            let is_said = self.is_said.swap(false, Ordering::Relaxed);
            if is_said {
                info!("the rate limit service answers again");
            }
        }
    }

    pub(crate) fn gave_no_answer(&self, why: &str) {
        if self.is_away.swap(true, Ordering::Relaxed) {
            return;
        }
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let now = millis(self.since.elapsed());
        if now >= self.quiet_until.load(Ordering::Relaxed) {
            let quiet_until = now.saturating_add(millis(PAUSE));
            self.quiet_until.store(quiet_until, Ordering::Relaxed);
            self.is_said.store(true, Ordering::Relaxed);
            warn!("the rate limit service gives no answer, and the fallback decides: {why}");
        }
    }
}
