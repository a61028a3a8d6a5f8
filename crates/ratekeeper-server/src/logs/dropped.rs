//! Logs hits that failure modes let pass and that the store will not count.

use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use tokio::time::{Duration, Instant};
use tracing::{info, warn};

/// The shortest time between two lines.
const LOGGED_EVERY: Duration = Duration::from_secs(60);

/// The hits that were logged so far.
#[derive(Debug, Default)]
pub(crate) struct DroppedLog {
    lost: u64,
    expired: u64,
    /// The time of the last line.
    logged: Option<Instant>,
}

impl DroppedLog {
    /// Logs what was dropped since the last line.
    pub(crate) fn look(&mut self, limiter: &Limiter<Stores>) {
        let counts = limiter.owed();
        let lost = counts.dropped.saturating_sub(counts.expired);
        let is_news = lost > self.lost || counts.expired > self.expired;
        let is_recent = self.logged.is_some_and(|at| at.elapsed() < LOGGED_EVERY);
        if !is_news || is_recent {
            return;
        }
        if lost > self.lost {
            warn!(
                hits = lost - self.lost,
                "hits that failure modes let pass are dropped, and the store does not count them: there was no room for them, \
                 their counters have other names now, or a post failed for a minute"
            );
        }
        if counts.expired > self.expired {
            info!(
                hits = counts.expired - self.expired,
                "hits that failure modes let pass no longer count: their windows ended before the store was back"
            );
        }
        (self.lost, self.expired) = (lost, counts.expired);
        self.logged = Some(Instant::now());
    }
}
