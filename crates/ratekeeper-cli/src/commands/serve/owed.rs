//! Hits that failure modes let pass, when the node stops.

use std::time::Duration;

use ratekeeper_limiter::Limiter;
use ratekeeper_stores::Stores;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

/// The longest wait for the store to count them; it may be on its way back.
const WITHIN: Duration = Duration::from_secs(3);

/// The pause between looks for its answers.
const PAUSE: Duration = Duration::from_millis(2);

/// Posts to the store what is owed to it: no other node can, once this node has stopped.
pub(super) async fn flush(limiter: &Limiter<Stores>) {
    if limiter.flush_owed() && unsettled(limiter) > 0 {
        info!(
            hits = unsettled(limiter),
            "waiting for the store to count hits that failure modes let pass"
        );
    }
    let flushed = async {
        while limiter.flush_owed() {
            sleep(PAUSE).await;
        }
    };
    if timeout(WITHIN, flushed).await.is_err() {
        warn!(
            hits = unsettled(limiter),
            "the store did not answer in time, and does not count hits that failure modes let pass"
        );
    }
}

/// Hits that are owed and not counted by the store, as far as is known.
fn unsettled(limiter: &Limiter<Stores>) -> u64 {
    let counts = limiter.owed();
    counts.owed.saturating_sub(counts.posted + counts.dropped)
}
