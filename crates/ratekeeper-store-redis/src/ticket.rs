//! What is awaited while a decision is under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_store::{StoreError, Verdicts, across};
use tokio::sync::oneshot;

use crate::slots::Slots;

/// What becomes of a decision.
pub(crate) type Decided = Result<Verdicts, StoreError>;

/// A decision that Redis is asked for. Dropped before it was sent, it is never sent; one that
/// several slots of a cluster decide is seen through.
#[derive(Debug)]
pub struct Ticket(pub(crate) across::Ticket<Slots>);

impl Future for Ticket {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// What one server decides.
#[derive(Debug)]
pub(crate) struct Reply(Inner);

#[derive(Debug)]
enum Inner {
    Waiting(oneshot::Receiver<Decided>),
    Failed(StoreError),
}

impl Reply {
    /// A reply, and where it comes from. Whoever drops the sender leaves the store unavailable.
    pub(crate) fn new() -> (oneshot::Sender<Decided>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Inner::Waiting(receiver)))
    }

    /// One that has failed already.
    pub(crate) const fn failed(error: StoreError) -> Self {
        Self(Inner::Failed(error))
    }
}

impl Future for Reply {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut self.0 {
            Inner::Failed(error) => Poll::Ready(Err(*error)),
            Inner::Waiting(receiver) => Pin::new(receiver)
                .poll(cx)
                .map(|answer| answer.unwrap_or(Err(StoreError::Unavailable))),
        }
    }
}
