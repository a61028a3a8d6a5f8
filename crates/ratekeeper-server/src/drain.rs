//! The one-way switch from serving to shutting down.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Says whether the server is on its way out. Once begun, it does not end.
#[derive(Debug)]
pub(crate) struct Drain {
    /// The same as what the channel holds, but cheap to look at for each response.
    begun: AtomicBool,
    channel: watch::Sender<bool>,
}

impl Drain {
    pub(crate) fn new() -> Self {
        Self {
            begun: AtomicBool::new(false),
            channel: watch::Sender::new(false),
        }
    }

    /// Begins it. Again is the same as once.
    pub(crate) fn begin(&self) {
        // Relaxed: nothing else is published by it, and a response that misses it is
        // followed by one that does not.
        self.begun.store(true, Ordering::Relaxed);
        self.channel.send_replace(true);
    }

    /// Whether it has begun.
    pub(crate) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Waits until it begins.
    pub(crate) async fn begun(&self) {
        // The sender lives in `self`, so the channel cannot close while we wait.
        let _ = self.channel.subscribe().wait_for(|begun| *begun).await;
    }
}
