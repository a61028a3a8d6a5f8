//! Links that are no longer served on because the breaker opened, whose calls may still be answered.
//!
//! A server that hung carries out what it was sent when it goes on, and answers. Who waited has been answered by a failure
//! mode; the late answer settles what was charged: it is not owed, or given back.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::InFlight;
use crate::link::Link;
use crate::pipeline::PipelineEnd;

/// The most former links at once; calls on others end with an unknown outcome.
const LINKS_MAX: usize = 4;

/// The time for which answers are awaited.
const AWAITED: Duration = Duration::from_secs(60);

/// A link with calls in flight, on which nothing is sent any more.
pub(super) struct FormerLink<'a> {
    link: Link,
    in_flight: InFlight<'a>,
}

impl<'a> FormerLink<'a> {
    pub(super) const fn new(link: Link, in_flight: InFlight<'a>) -> Self {
        Self { link, in_flight }
    }

    /// Waits until all calls are answered, or cannot be any more.
    async fn end(mut self) {
        let answered = async {
            loop {
                tokio::select! {
                    biased;
                    end = self.in_flight.next() => match end {
                        Some(PipelineEnd::Answered) => {}
                        Some(PipelineEnd::Lost(_)) | None => return,
                    },
                    () = &mut self.link.driver => return,
                }
            }
        };
        // What is still in flight after that is lost with it.
        let _ = timeout(AWAITED, answered).await;
    }
}

/// Sees off the links that come from `left`, for ever.
pub(super) async fn see_off(mut left: Receiver<FormerLink<'_>>) {
    let mut links = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(()) = links.next() => {}
            Some(link) = left.recv(), if links.len() < LINKS_MAX => links.push(link.end()),
        }
    }
}
