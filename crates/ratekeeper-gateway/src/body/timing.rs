//! The time that a client has to send the body of its request.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_server::{Pace, Patience};
use tokio::time::{Instant, Sleep, sleep};

/// The pace of a body; only the time in which the upstream would take more of it counts.
#[derive(Debug)]
pub(super) struct Timing {
    pace: Pace,
    /// The time at which the wait for the client began or ended.
    since: Instant,
    is_awaited: bool,
    /// Begins when the client is first waited for.
    end: Option<Pin<Box<Sleep>>>,
}

impl Timing {
    /// Returns None if a client may take as long as it likes.
    pub(super) fn new(patience: Patience) -> Option<Self> {
        patience.stall_timeout.map(|_| Self {
            pace: Pace::new(patience),
            since: Instant::now(),
            is_awaited: false,
            end: None,
        })
    }

    /// Records that `bytes` arrived.
    pub(super) fn came(&mut self, bytes: usize) {
        if std::mem::replace(&mut self.is_awaited, false) {
            let now = Instant::now();
            self.pace.waited(now.saturating_duration_since(self.since));
            self.since = now;
        }
        self.pace.came(bytes as u64);
    }

    /// Records that nothing is there yet. Returns true if the client's time is up.
    pub(super) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        if !std::mem::replace(&mut self.is_awaited, true) {
            let now = Instant::now();
            self.pace.rested(now.saturating_duration_since(self.since));
            self.since = now;
            match &mut self.end {
                Some(end) => end.as_mut().reset(now + self.pace.left()),
                None => self.end = Some(Box::pin(sleep(self.pace.left()))),
            }
        }
        let end = self.end.as_mut().map(|end| end.as_mut().poll(cx));
        end.is_some_and(|end| end == Poll::Ready(()))
    }
}
