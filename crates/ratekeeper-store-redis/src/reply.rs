//! The reply of one server to a decision.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ratekeeper_store::{StoreError, Verdicts};
use tokio::sync::oneshot;

/// The outcome of a decision.
pub(crate) type Decided = Result<Verdicts, StoreError>;

/// The decision of one server.
#[derive(Debug)]
pub(crate) struct Reply(Inner);

#[derive(Debug)]
enum Inner {
    Waiting(oneshot::Receiver<Told>),
    Failed(StoreError),
    /// It has failed with a timeout, and the answer may still come.
    Late(oneshot::Receiver<Decided>),
}

/// The first that is heard of a decision.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are of the large one, which is moved once"
)]
#[derive(Debug)]
pub(crate) enum Told {
    /// The outcome.
    Decided(Decided),
    /// No answer has come in time; what comes later comes here.
    Late(oneshot::Receiver<Decided>),
}

impl Reply {
    /// Makes a reply and its sender. If the sender is dropped, the reply is lost: only what was sent
    /// goes without an answer.
    pub(crate) fn new() -> (oneshot::Sender<Told>, Self) {
        let (sender, receiver) = oneshot::channel();
        (sender, Self(Inner::Waiting(receiver)))
    }

    /// Makes a reply that has failed already.
    pub(crate) const fn failed(error: StoreError) -> Self {
        Self(Inner::Failed(error))
    }

    /// Returns true if it is about an answer that has not come in time.
    pub(crate) const fn is_late(&self) -> bool {
        matches!(self.0, Inner::Late(_))
    }
}

impl Future for Reply {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut self.0 {
            Inner::Failed(error) => Poll::Ready(Err(*error)),
            Inner::Waiting(receiver) => match ready!(Pin::new(receiver).poll(cx)) {
                Ok(Told::Decided(decided)) => Poll::Ready(decided),
                Ok(Told::Late(receiver)) => {
                    self.0 = Inner::Late(receiver);
                    Poll::Ready(Err(StoreError::Timeout))
                }
                Err(_) => Poll::Ready(Err(StoreError::Lost)),
            },
            Inner::Late(receiver) => {
                let answer = ready!(Pin::new(receiver).poll(cx));
                Poll::Ready(answer.unwrap_or(Err(StoreError::Lost)))
            }
        }
    }
}
