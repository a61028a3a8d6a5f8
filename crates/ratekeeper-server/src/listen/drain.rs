//! The one-way switch from serving to shutting down, and the time before it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

/// Says whether the server is on its way out. Once begun, it does not end.
#[derive(Debug)]
pub(crate) struct Drain {
    /// The same as what the channel holds, but cheap to look at for each response.
    begun: AtomicBool,
    channel: watch::Sender<bool>,
    /// The time for what is under way, if whoever began it says so.
    within: OnceLock<Duration>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self {
            begun: AtomicBool::new(false),
            channel: watch::Sender::new(false),
            within: OnceLock::new(),
        }
    }

    /// Begins it, with no more time than `within` for what is under way.
    pub(crate) fn begin_within(&self, within: Duration) {
        self.within.get_or_init(|| within);
        self.begin();
    }

    /// The time for what is under way: `most`, unless it was begun with less.
    pub(crate) fn time(&self, most: Duration) -> Duration {
        self.within.get().map_or(most, |within| most.min(*within))
    }

    /// Begins it. Again is the same as once.
    pub(crate) fn begin(&self) {
        // Relaxed: nothing else is published by it, and a response that misses it is
        // followed by one that does not.
        self.begun.store(true, Ordering::Relaxed);
        self.channel.send_replace(true);
    }

    /// Returns true if the drain has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until it begins.
    pub(crate) async fn begun(&self) {
        // The sender lives in `self`, so the channel cannot close while we wait.
        let _ = self.channel.subscribe().wait_for(|begun| *begun).await;
    }
}

/// The time between the shutdown and the drain, in which the server reports that it is not ready
/// but still serves: balancers have to see the report first.
#[derive(Clone, Debug)]
pub struct DrainDelay {
    /// True once the delay is over.
    over: Arc<watch::Sender<bool>>,
}

impl DrainDelay {
    pub(crate) fn new() -> Self {
        Self {
            over: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Ends it at once, or skips it if the shutdown has not begun. Returns false if it was over
    /// already.
    #[must_use = "tells whether there was anything to end"]
    pub fn end(&self) -> bool {
        self.over
            .send_if_modified(|over| !std::mem::replace(over, true))
    }

    /// Lets `delay` pass, or less if it is ended.
    pub(crate) async fn pass(&self, delay: Duration) {
        let mut over = self.over.subscribe();
        // The sender lives in `self`, so the channel cannot close while we wait.
        let _ = timeout(delay, over.wait_for(|over| *over)).await;
        self.over.send_replace(true);
    }
}
