//! What is awaited while a decision is under way.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_store::{StoreError, Verdicts};
use tokio::sync::oneshot;

/// What becomes of a decision.
pub(crate) type Decided = Result<Verdicts, StoreError>;

/// A decision that Redis is asked for. Dropped before it was sent, it is never sent.
#[derive(Debug)]
pub struct Ticket(Inner);

#[derive(Debug)]
enum Inner {
    Waiting(oneshot::Receiver<Decided>),
    Failed(StoreError),
}

impl Ticket {
    /// A ticket, and where its answer goes. Whoever drops the sender leaves the store unavailable.
    pub(crate) fn new() -> (oneshot::Sender<Decided>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Inner::Waiting(receiver)))
    }

    /// A ticket that has failed already.
    pub(crate) const fn failed(error: StoreError) -> Self {
        Self(Inner::Failed(error))
    }
}

impl Future for Ticket {
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
