//! The futures of decisions under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_store::{StoreError, Verdicts, across};
use tokio::sync::oneshot;

use crate::slots::Slots;

/// The outcome of a decision.
pub(crate) type Decided = Result<Verdicts, StoreError>;

/// A decision under way in Redis. Dropped before it was sent, it is never sent; one that several
/// slots of a cluster decide is seen through.
#[derive(Debug)]
pub struct Ticket(pub(crate) across::Ticket<Slots>);

impl Future for Ticket {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        Pin::new(&mut self.0).poll(cx)
    }
}

/// The decision of one server.
#[derive(Debug)]
pub(crate) struct Reply(Inner);

#[derive(Debug)]
enum Inner {
    Waiting(oneshot::Receiver<Decided>),
    Failed(StoreError),
}

impl Reply {
    /// Makes a reply and its sender. If the sender is dropped, the reply is lost: only what was sent
    /// goes without an answer.
    pub(crate) fn new() -> (oneshot::Sender<Decided>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Inner::Waiting(receiver)))
    }

    /// Makes a reply that has failed already.
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
                .map(|answer| answer.unwrap_or(Err(StoreError::Lost))),
        }
    }
}
