//! An upstream's answer as it comes, and the rest of it once its client is gone.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use ratekeeper_tower::UsageReading;
use tokio::time::timeout;

use super::held_slot::HeldSlot;
use crate::connect::Lease;

/// The most that is read of an answer whose client is gone, in bytes. An upstream that has sent so much is cut off.
const REST_BYTES_MAX: usize = 1 << 20;

/// The body of an answer, with what its exchange holds until all of it has arrived.
#[derive(Debug)]
pub(super) struct Received {
    /// None once this is dropped.
    incoming: Option<Incoming>,
    /// The connection it comes on, to be kept then.
    lease: Option<Lease>,
    /// None once the answer is over.
    slot: Option<HeldSlot>,
}

impl Received {
    pub(super) fn new(incoming: Incoming, lease: Option<Lease>, slot: Option<HeldSlot>) -> Self {
        let is_over = incoming.is_end_stream();
        let mut received = Self {
            incoming: Some(incoming),
            lease,
            slot,
        };
        if is_over {
            // Nothing follows the head.
            received.over();
        }
        received
    }

    pub(super) const fn incoming(&self) -> Option<&Incoming> {
        self.incoming.as_ref()
    }

    pub(super) const fn incoming_mut(&mut self) -> Option<&mut Incoming> {
        self.incoming.as_mut()
    }

    /// Records that all of it has arrived.
    pub(super) fn over(&mut self) {
        self.broken();
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }

    /// Records that no more of it will arrive.
    pub(super) fn broken(&mut self) {
        if let Some(slot) = self.slot.take() {
            slot.done();
        }
    }

    /// Reads the rest, as far as it is bounded, for the usage that it tells.
    async fn drain(mut self, usage: Option<UsageReading>, patience: Duration) {
        let Some(mut incoming) = self.incoming.take() else {
            return;
        };
        let rest = async {
            let mut left = REST_BYTES_MAX;
            while let Some(frame) = poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
                let Ok(frame) = frame else {
                    return Rest::Broken;
                };
                if let Some(usage) = &usage {
                    usage.frame(&frame);
                }
                match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(rest) => left = rest,
                    None => return Rest::TooLong,
                }
            }
            Rest::Over
        };
        match timeout(patience, rest).await {
            Ok(Rest::Over) => {
                if let Some(usage) = usage {
                    usage.whole();
                }
                self.over();
            }
            // Its time is over.
            Ok(Rest::Broken) | Err(_) => self.broken(),
            Ok(Rest::TooLong) => {}
        }
    }
}

/// The end of an answer whose client is gone.
enum Rest {
    Over,
    Broken,
    /// It was cut off.
    TooLong,
}

impl Drop for Received {
    fn drop(&mut self) {
        let goes_on = self.slot.as_ref().and_then(HeldSlot::goes_on);
        // Without the body, this is the end of `drain`.
        if let (Some((route, usage)), Some(incoming)) = (goes_on, self.incoming.take()) {
            let upstream = &route.upstream;
            let (patience, abandoned) = (upstream.response_timeout, upstream.abandoned.clone());
            let usage = usage.cloned();
            let rest = Self {
                incoming: Some(incoming),
                lease: self.lease.take(),
                slot: self.slot.take(),
            };
            abandoned.go_on(rest.drain(usage, patience));
        }
    }
}
