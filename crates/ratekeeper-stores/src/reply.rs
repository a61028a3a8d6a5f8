//! The reply of a shared store to a decision.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use ratekeeper_store::{StoreError, Verdicts};
use tokio::sync::oneshot;

/// The outcome of a decision.
pub type Decided = Result<Verdicts, StoreError>;

/// The pending answer of a shared store.
#[derive(Debug)]
pub struct StoreReply(State);

#[derive(Debug)]
enum State {
    Waiting(oneshot::Receiver<First>),
    Failed(StoreError),
    /// It has failed with a timeout, and the answer may still come.
    Late(oneshot::Receiver<Decided>),
    /// A part was taken from leases; it is in a box, for no other is as large.
    Leased(Pin<Box<dyn Deciding>>),
}

/// The decision of a request of which a part was taken from leases.
pub(crate) trait Deciding: Future<Output = Decided> + fmt::Debug + Send {}

/// The first that is heard of a decision.
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all are of the large one, which is moved once"
)]
#[derive(Debug)]
enum First {
    Decided(Decided),
    /// No answer has come in time; what comes later comes here.
    Late(oneshot::Receiver<Decided>),
}

impl StoreReply {
    /// Makes a reply and its sender. If the sender is dropped, the reply is lost: only what was sent
    /// goes without an answer.
    #[must_use]
    pub fn new() -> (ReplySender, Self) {
        let (sender, receiver) = oneshot::channel();
        let sender = ReplySender {
            first: Some(sender),
            late: None,
        };
        (sender, Self(State::Waiting(receiver)))
    }

    /// Makes a reply that has failed already.
    #[must_use]
    pub const fn failed(error: StoreError) -> Self {
        Self(State::Failed(error))
    }

    /// Makes a reply of a request of which a part was taken from leases.
    pub(crate) fn leased(rest: impl Deciding + 'static) -> Self {
        Self(State::Leased(Box::pin(rest)))
    }

    /// The reply of a decision that failed with a timeout, as [`Store::late`](ratekeeper_store::Store::late) returns it.
    /// None is told of a request of which a part was taken from leases: that part is in its lease again.
    #[must_use]
    pub fn late(self) -> Option<Self> {
        matches!(self.0, State::Late(_)).then_some(self)
    }
}

impl Future for StoreReply {
    type Output = Decided;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decided> {
        match &mut self.0 {
            State::Failed(error) => Poll::Ready(Err(*error)),
            State::Waiting(receiver) => match ready!(Pin::new(receiver).poll(cx)) {
                Ok(First::Decided(decided)) => Poll::Ready(decided),
                Ok(First::Late(receiver)) => {
                    self.0 = State::Late(receiver);
                    Poll::Ready(Err(StoreError::Timeout))
                }
                Err(_) => Poll::Ready(Err(StoreError::Lost)),
            },
            State::Late(receiver) => {
                let answer = ready!(Pin::new(receiver).poll(cx));
                Poll::Ready(answer.unwrap_or(Err(StoreError::Lost)))
            }
            State::Leased(rest) => rest.as_mut().poll(cx),
        }
    }
}

/// The other end of a [`StoreReply`].
#[derive(Debug)]
pub struct ReplySender {
    first: Option<oneshot::Sender<First>>,
    /// The way for an answer that comes after the deadline.
    late: Option<oneshot::Sender<Decided>>,
}

impl ReplySender {
    /// Sends the answer, unless one was sent before or the caller has gone.
    pub fn answer(&mut self, decided: Decided) {
        if let Some(first) = self.first.take() {
            let _ = first.send(First::Decided(decided));
        } else if let Some(late) = self.late.take() {
            let _ = late.send(decided);
        }
    }

    /// Says to whoever still waits for a late answer that the request was not carried out.
    pub fn forgo_late(&mut self) {
        if let Some(late) = self.late.take() {
            let _ = late.send(Err(StoreError::Unavailable));
        }
    }

    /// Says that no answer has come in time. One that comes later is sent all the same.
    pub fn time_out(&mut self) {
        if let Some(first) = self.first.take() {
            let (late, receiver) = oneshot::channel();
            self.late = Some(late);
            let _ = first.send(First::Late(receiver));
        }
    }

    /// Returns true if no caller waits for it any more: it is answered, has timed out, or the caller has gone.
    #[must_use]
    pub fn is_answered(&self) -> bool {
        self.first.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}
