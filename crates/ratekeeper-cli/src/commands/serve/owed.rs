//! Hits that failure modes let pass, when the node stops.

use std::time::Duration;

use ratekeeper_limiter::Limiter;
use ratekeeper_server::ServedStore;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// The longest wait for the store to count them.
const WITHIN: Duration = Duration::from_secs(1);

/// The pause between looks for its answers.
const PAUSE: Duration = Duration::from_millis(2);

/// Posts to the store what is owed to it: nobody else can, once this node has stopped.
pub(super) async fn flush<S: ServedStore>(limiter: &Limiter<S>) {
    let flushed = async {
        while limiter.flush_owed() {
            sleep(PAUSE).await;
        }
    };
    if timeout(WITHIN, flushed).await.is_err() {
        let counts = limiter.owed();
        let told = counts.posted + counts.dropped + counts.unknown;
        let hits = counts.owed.saturating_sub(told);
        warn!(
            hits,
            "the store did not answer in time, and does not count hits that failure modes let pass"
        );
    }
}
